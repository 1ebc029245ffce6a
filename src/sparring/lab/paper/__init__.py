"""The papers' tables and figures made again, with our numbers beside the published ones."""
