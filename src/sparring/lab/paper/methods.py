"""The methods that the papers compare: printed name, loss, and settings on each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.kinds import Kind
from sparring.lab.paper import published
from sparring.lab.runs.config import Config
from sparring.lab.task import Task


@dataclass(frozen=True)
class Method:
    """A method of the papers' tables, equal to another one of the same name."""

    name: str  # as the papers print it; records of runs keep it
    loss: str = field(compare=False)  # for one label; multi-label tasks use its multi-label form
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)  # for tasks not in Table 6
    extends: Method | None = field(default=None, compare=False)  # its settings come before this one's
    fixed: Mapping[str, Any] = field(default_factory=dict, compare=False)  # the same on every task
    point: tuple[str, float] | None = field(default=None, compare=False)  # what a figure varies, its value
    left_out: tuple[str, ...] = field(default=(), compare=False)  # tasks on which it is not run

    def printed(self, form: str = "") -> str:
        """The name in tables and records; ``form`` names a variant of a study's settings.

        >>> SOFTMAX.printed("pre-trained"), SOFTMAX.printed()
        ('Softmax, pre-trained', 'Softmax')
        """
        return f"{self.name}, {form}" if form else self.name

    def settings(self, task: str) -> dict[str, Any]:
        """The method's settings on a task: those of Table 6, or the defaults.

        >>> AS_SOFTMAX.settings("conll2003"), AS_SOFTMAX.settings("languages")
        ({'delta': 0.35, 'warmup': 0.25}, {'delta': 0.3, 'warmup': 0.0})
        """
        settings = self.extends.settings(task) if self.extends else {}
        values = published.SETTINGS.get(self.name, {}).get(task)
        if values is None:
            settings |= self.defaults
        else:
            values = values if isinstance(values, list) else [values]
            settings |= zip(published.PARAMETERS[self.name], values, strict=True)
        settings.pop("alpha", None)  # the loss entmax15 has α = 1.5
        return {**settings, **self.fixed}

    def fits(self, kind: Kind) -> bool:
        """Whether the loss has a form for the kind."""
        return kind.loss_name(self.loss) in kind.losses

    def configure(self, config: Config, task: Task) -> Config:
        """The config of a run of this method on a task."""
        return config.replace(loss=task.kind.loss_name(self.loss), **self.settings(task.name))

    def at(self, setting: str, value: float) -> Method:
        """The same method with another value of a setting, such as ``k=10``."""
        name = f"{setting}={value:g}"
        return Method(name, self.loss, extends=self, fixed={setting: value}, point=(setting, value))


SOFTMAX = Method("Softmax", "softmax")
T_SOFTMAX = Method("T-Softmax", "t-softmax", {"tau": 0.5})
SPARSE_SOFTMAX = Method("Sparse-Softmax", "sparse-softmax", {"k": 10})
SPARSEMAX = Method("Sparsemax", "sparsemax")
ENTMAX = Method("Entmax", "entmax15")
LABEL_SMOOTHING = Method("Label-Smoothing", "label-smoothing", {"epsilon": 0.1})
AM_SOFTMAX = Method("AM-Softmax", "am-softmax", {"scale": 5.0, "margin": 0.3})
AS_SOFTMAX = Method("AS-Softmax", "as-softmax", {"delta": 0.3, "warmup": 0.0})
_SPEED = {"lam": 0.5, "max_steps": 2}
AS_SPEED = Method("AS-Speed", "as-softmax", _SPEED, AS_SOFTMAX, {"accumulation": "adaptive"})
SPEED_FAST = Method(  # beyond the papers, and without the warm-up, in which no sample is won
    "AS-Softmax, --speed fast",
    "as-softmax",
    extends=AS_SOFTMAX,
    fixed={"delta": None, "warmup": None, "speed": "fast"},
    left_out=("sighan2015", "ecspell"),  # for the time it takes
)
HARD_SAMPLES = Method("Hard samples", "softmax")
RANDOM_SAMPLES = Method("Random samples", "softmax")

CORRELATED = (SOFTMAX, SPARSE_SOFTMAX, SPARSEMAX, ENTMAX, LABEL_SMOOTHING, AM_SOFTMAX, AS_SOFTMAX)  # Table 4
TIMED = (*CORRELATED, AS_SPEED, SPEED_FAST)  # Table 3
ALL_METHODS = (SOFTMAX, T_SOFTMAX, *TIMED[1:])  # Table 2
DELTA_POINTS = tuple(AS_SOFTMAX.at("delta", delta) for delta in published.DELTAS)
SIZE_POINTS = tuple(SPARSE_SOFTMAX.at("k", k) for k in published.SPARSE_SIZES)
COST_POINTS = tuple(  # beyond the papers: from the start, and won samples have no backward pass
    Method(
        f"δ = {delta:g}, skip",
        "as-softmax",
        fixed={"delta": delta, "warmup": 0.0, "speed": "skip"},
        point=("delta", delta),
    )
    for delta in (0.1, 0.3, 0.6, 0.8, 0.97)
)
MARGIN_POINTS = tuple(Method("AS-Logit", "as-logit").at("margin", m) for m in published.LOGIT_MARGINS)

_POINTS = (*DELTA_POINTS, *SIZE_POINTS, *COST_POINTS, *MARGIN_POINTS)
_BY_NAME = {method.name: method for method in (*ALL_METHODS, HARD_SAMPLES, RANDOM_SAMPLES, *_POINTS)}


def method_named(name: str) -> Method:
    """The method of a record. A name that is not ours is a method without settings."""
    return _BY_NAME.get(name) or Method(name, "softmax")
