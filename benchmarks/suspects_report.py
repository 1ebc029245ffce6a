"""Tables of `suspects.py` (under construction)."""


def show(*_: object) -> None:
    raise NotImplementedError
