"""The numbers and settings that the two papers print; the tables are read from ``published.toml``."""

import sys
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PublishedTable = dict[str, dict[str, Any]]  # by row and column; None where the paper leaves a cell empty


def _rows(columns: list[str], **rows: list[Any]) -> PublishedTable:
    return {
        name: {column: None if value == "-" else value for column, value in zip(columns, values, strict=True)}
        for name, values in rows.items()
    }


_FILE = tomllib.loads(resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))
PARAMETERS: dict[str, list[str]] = _FILE.pop("PARAMETERS")
_TABLES = {name: _rows(**table) for name, table in _FILE.items()}

# AS-Softmax, Tables 1 to 8
DATASETS = _TABLES["DATASETS"]
QUALITY = _TABLES["QUALITY"]
QUALITY_ROBERTA = _TABLES["QUALITY_ROBERTA"]
TIME = _TABLES["TIME"]
CORRELATION = _TABLES["CORRELATION"]
TRAINING = _TABLES["TRAINING"]
SETTINGS = _TABLES["SETTINGS"]
HARD_SAMPLES = _TABLES["HARD_SAMPLES"]
GLUE = _TABLES["GLUE"]

# AS-Softmax, the text
HARD_SHARE = 0.11  # of the training samples are hard: "approximately 11% of all"
DELTAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)  # Figure 2: "from 0.05 to 0.5"
BEST_DELTA = {"sst5": 0.2}  # "slightly larger" is better on conll2003
LOGIT_MARGINS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)  # Figure 5: "from 0 to 7"
SOFTMAX_FROM_MARGIN = 6  # with a larger margin the variant is softmax

# Sparse-Softmax, Tables 1 to 6
SPARSE_QUALITY = _TABLES["SPARSE_QUALITY"]
SPARSE_DATASETS = _TABLES["SPARSE_DATASETS"]
SPARSE_GENERATION = _TABLES["SPARSE_GENERATION"]
SPARSE_TRAINING = _TABLES["SPARSE_TRAINING"]
SPARSE_SUMMARIES = _TABLES["SPARSE_SUMMARIES"]
SPARSE_IMAGES = _TABLES["SPARSE_IMAGES"]
SPARSE_SIZES = (1, 10, 20, 50, 100)  # k

# Neither paper's: another team's runs
INDEPENDENT = _TABLES["INDEPENDENT"]

# The papers' tasks
TEXT_TASKS = tuple(TIME["Softmax"])  # Tables 2 to 6
GLUE_TASKS = tuple(name for name in GLUE["Softmax"] if name != "Avg")
SPARSE_TASKS = tuple(SPARSE_DATASETS)
