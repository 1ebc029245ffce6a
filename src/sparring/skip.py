"""Exact backward skipping: another name of ``sparring.backward``."""

from sparring.backward.compact import Compaction, compact
from sparring.backward.skipper import MODES, Counts, Look, Pass, Skipper
from sparring.backward.stats import SkipStats

__all__ = ["MODES", "Compaction", "Counts", "Look", "Pass", "SkipStats", "Skipper", "compact"]
