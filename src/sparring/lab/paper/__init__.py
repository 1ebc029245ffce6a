"""The papers' tables and figures made again: which runs they need, at which scale, and what came out beside what was published."""
