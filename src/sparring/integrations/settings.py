"""What a trainer of ours can be told beside what its framework knows: the same words everywhere."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import nn

from sparring.losses import Loss, make_loss
from sparring.losses.delta import DEFAULT_DELTA, WarmupDelta
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.presets import Speed, find_speed
from sparring.training.scorecard import Scorecard


@dataclass
class Settings:
    """Everything of ours in a run. As keywords, ``loss``, ``rest`` and ``accumulation`` may also be a Loss, a Scorecard and an
    AdaptiveAccumulation."""

    loss: str | None = field(
        default=None, metadata={"help": "name of a loss; default: as-softmax, or its multi-label form"}
    )
    delta: float | None = field(default=None, metadata={"help": f"δ of AS-Softmax (default {DEFAULT_DELTA})"})
    delta_warmup: float = field(
        default=0.0, metadata={"help": "share of the training in which δ is 1, plain softmax"}
    )
    speed: str = field(default="skip", metadata={"help": "off, skip (exact) or all (winners rest, too)"})
    skip: str | None = field(
        default=None, metadata={"help": "off, micro, rows, two-pass or auto, on top of speed"}
    )
    rest: bool | None = field(default=None, metadata={"help": "let winners sit out epochs, on top of speed"})
    accumulation: int | None = field(
        default=None, metadata={"help": "AS-Speed: how many batches a step may gather at most"}
    )
    lam: float = field(default=0.5, metadata={"help": "λ of AS-Speed"})

    @classmethod
    def split(cls, keywords: dict[str, Any], base: Any = None) -> tuple[Settings, dict[str, Any]]:
        """Ours among some keywords, on top of the fields that ``base`` has; and the others."""
        names = [each.name for each in fields(Settings)]
        found = Settings(**{name: getattr(base, name) for name in names if hasattr(base, name)})
        given = {name: value for name, value in keywords.items() if name in names and value is not None}
        return replace(found, **given), {name: value for name, value in keywords.items() if name not in names}

    def objective(self, model: nn.Module) -> Loss:
        """The loss, with the preset's δ."""
        config: Any = getattr(model, "config", None)
        usual = (
            "multilabel-as-softmax"
            if getattr(config, "problem_type", None) == "multi_label_classification"
            else "as-softmax"
        )
        own = {} if self.delta is None else {"delta": self.delta}
        made = as_loss(usual if self.loss is None else self.loss, **own)
        if self.delta_warmup and not hasattr(made, "delta"):
            raise ValueError(f"delta_warmup={self.delta_warmup}, but {made.name} has no δ")
        return self._preset().adapted(
            copy.deepcopy(made)
        )  # a run's own: a schedule begins anew with the next

    def warm(self, loss: Any, total_steps: int) -> None:
        """δ = 1 at first, once it is known how long the training is."""
        if self.delta_warmup and not isinstance(loss.delta, WarmupDelta):
            loss.delta = WarmupDelta(loss.delta, total_steps=total_steps, share=self.delta_warmup)

    def skipping(self) -> str:
        return self.skip or self._preset().skip

    def rests(self, model: nn.Module) -> bool:
        return self.card(1, model) is not None

    def card(self, n_samples: int, model: nn.Module) -> Scorecard | None:
        if isinstance(self.rest, Scorecard):
            return self.rest
        return self._preset().card(
            n_samples, model, rest=self.rest, check=False if self.rest is False else None
        )

    def windows(self) -> AdaptiveAccumulation | None:
        """AS-Speed, or None."""
        given: Any = self.accumulation
        if given is None or not isinstance(given, AdaptiveAccumulation):
            return None if given is None else AdaptiveAccumulation(self.lam, given)
        return given

    def _preset(self) -> Speed:
        return find_speed(self.speed)


def as_loss(loss: Loss | str, **settings: Any) -> Loss:
    """A loss of ours, by name or as it is, whose mean can be taken over a window."""
    made = make_loss(loss, **settings) if isinstance(loss, str) else loss
    if not isinstance(made, Loss):
        raise ValueError(f"loss must be one of ours or its name, got {type(loss).__name__}")
    if settings and not isinstance(loss, str):
        raise ValueError(
            f"{', '.join(settings)} belongs to a loss given by name; {made.name} was given as an object, which has its own"
        )
    if made.reduction != "mean":
        raise ValueError(
            f'a window needs the mean over its rows; got a loss with reduction="{made.reduction}"'
        )
    return made
