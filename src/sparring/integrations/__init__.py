"""Other people's trainers: thin coats over ``training``."""
