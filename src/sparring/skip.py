"""Exact backward skipping: the public names of ``sparring.backward``."""

from sparring.backward.compact import Compaction, compact
from sparring.backward.skipper import MODES, Counts, ForwardResult, Skipper, StepResult
from sparring.backward.stats import SkipStats

__all__ = ["MODES", "Compaction", "Counts", "ForwardResult", "SkipStats", "Skipper", "StepResult", "compact"]
