"""Checks of this installation on this machine: `sparring doctor`."""
