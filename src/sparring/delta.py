"""Schedules of δ and κ: another name of ``sparring.losses.delta`` and ``sparring.losses.concede``."""

from sparring.losses.concede import *  # noqa: F403
from sparring.losses.delta import *  # noqa: F403
