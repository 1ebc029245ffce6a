"""Kinds of tasks. Importing this package registers all of them, in the order in which they are listed."""

# isort: skip_file
from sparring.lab.kinds.base import Kind, get_kind, list_kinds, register_kind
from sparring.lab.kinds import multi_class, pair, token, spelling, multi_label, image, audio, generation  # noqa: F401

__all__ = ["Kind", "get_kind", "list_kinds", "register_kind"]
