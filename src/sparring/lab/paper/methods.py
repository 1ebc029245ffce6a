"""The methods of the papers' tables as contestants of ours, by the names the papers print."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparring.lab.kinds import Kind
from sparring.lab.paper import published as paper

LOSSES = {
    "Softmax": "softmax",
    "T-Softmax": "t-softmax",
    "Sparse-Softmax": "sparse-softmax",
    "Sparsemax": "sparsemax",
    "Entmax": "entmax15",
    "Label-Smoothing": "label-smoothing",
    "AM-Softmax": "am-softmax",
    "AS-Softmax": "as-softmax",
    "AS-Speed": "as-speed",
}
EVERYTHING = "AS-Softmax, --speed all"  # beyond the paper
NOT_MEASURED = ("sighan2015", "ecspell")  # with EVERYTHING, for the time it takes
ALL_NAMES = (*LOSSES, EVERYTHING)
OTHERWISE: dict[str, dict[str, float]] = {  # for tasks that Table 6 does not have: usual values
    "T-Softmax": {"tau": 0.5},
    "Sparse-Softmax": {"k": 10},
    "Label-Smoothing": {"epsilon": 0.1},
    "AM-Softmax": {"scale": 5, "margin": 0.3},
    "AS-Softmax": {"delta": 0.3, "warmup": 0},
    "AS-Speed": {"lam": 0.5, "max_steps": 2},
}


class Method(NamedTuple):
    name: str
    words: str  # what `Config.with_contestant` takes


def settings(name: str, task: str) -> dict[str, Any]:
    """A method's own settings on a task: Table 6, or what stands in for it.

    >>> settings("AS-Softmax", "conll2003"), settings("AS-Softmax", "languages")
    ({'delta': 0.35, 'warmup': 0.25}, {'delta': 0.3, 'warmup': 0})
    """
    for names, row in paper.SETTINGS.get(name, {}).items():
        value = row.get(task)
        if value is not None and names != "alpha":  # entmax15 is made for α = 1.5
            return dict(zip(names.split("/"), value if isinstance(value, tuple) else [value], strict=True))
    return dict(OTHERWISE.get(name, {}))


def method(name: str, task: str, kind: Kind, **changes: Any) -> Method | None:
    """A method on a task; None where it has no form for the task's kind."""
    loss = LOSSES.get(name, "as-softmax")
    if loss != "as-speed":
        loss = kind.loss_name(loss)
        if loss not in kind.losses:
            return None
    if name == EVERYTHING and task in NOT_MEASURED:
        return None
    own = settings(name, task)
    if name in ("AS-Speed", EVERYTHING):
        own = {**settings("AS-Softmax", task), **own}
    if name == EVERYTHING:
        own = {"delta": own["delta"], "speed": "all"}  # without the paper's warm-up, in which nothing is won
    if "max_steps" in own:
        own["max_steps"] = int(own["max_steps"])
    return Method(
        name,
        ":".join(
            [
                loss,
                *(
                    f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
                    for key, value in {**own, **changes}.items()
                ),
            ]
        ),
    )


def methods(names: tuple[str, ...], task: str, kind: Kind) -> list[Method]:
    """Those of the names that have a form for the kind."""
    return [made for name in names if (made := method(name, task, kind)) is not None]
