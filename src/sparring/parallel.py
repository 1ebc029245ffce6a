"""Heads whose classes are spread over ranks: another name of ``sparring.heads.parallel``."""

from sparring.heads.parallel import *  # noqa: F403
