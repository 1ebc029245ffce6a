"""Texts with one label each."""

from sparring.lab.kinds.base import register_kind
from sparring.lab.kinds.text import TextKind


@register_kind
class MultiClassKind(TextKind):
    """A text and one of several labels."""

    name = "multi-class"
    fields = ("text", "label")
    roles = {"text": "text", "label": "label"}
