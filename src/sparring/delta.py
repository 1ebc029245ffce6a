"""Schedules of δ: another name of ``sparring.losses.delta``."""

from sparring.losses.delta import *  # noqa: F403
