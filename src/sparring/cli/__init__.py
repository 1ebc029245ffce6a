"""The ``sparring`` command."""

from sparring.cli.app import main

__all__ = ["main"]
