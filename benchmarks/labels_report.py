"""Tables of `labels.py` (under construction)."""


def show(*_: object) -> None:
    raise NotImplementedError
