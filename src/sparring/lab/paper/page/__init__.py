"""The page of results: the claims, what the runs can decide, and all tables."""
