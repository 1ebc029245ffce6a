"""Kinds of tasks. Importing this package registers all of them."""

from sparring.lab.kinds.base import Kind, get_kind, list_kinds, register_kind

# isort: off
from sparring.lab.kinds import multi_class, pair, token, spelling, multi_label, image, audio, generation

# isort: on

__all__ = [
    "Kind",
    "audio",
    "generation",
    "get_kind",
    "image",
    "list_kinds",
    "multi_class",
    "multi_label",
    "pair",
    "register_kind",
    "spelling",
    "token",
]
