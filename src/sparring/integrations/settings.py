"""The settings of the integrations: the same names in Hugging Face's Trainer and in Lightning."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from torch import nn

from sparring.losses import Loss, make_loss
from sparring.losses.concede import CONCEDE_WARMUP, with_warmup
from sparring.losses.delta import TRAINING_DELTA, SettleDelta, WarmupDelta
from sparring.training.presets import (
    RunParts,
    check_loss,
    find_speed,
    resolve_speed,
    set_length,
    settles,
)
from sparring.training.progress import settles_at


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class Settings:
    """Settings of a run, next to those of its framework.

    As keywords, ``loss``, ``rest`` and ``accumulation`` may also be a Loss, a Scorecard and an
    AdaptiveAccumulation.
    """

    loss: str | None = _setting(None, "name of a loss; default: as-softmax, or its multi-label form")
    delta: float | None = _setting(None, "δ of AS-Softmax (default: 0.8; 0.6 with speed=fast)")
    delta_warmup: float = _setting(0.0, "share of the training in which δ is 1, plain softmax")
    concede: float | None = _setting(None, "κ: give up samples whose strongest rival is ahead by more than κ")
    concede_warmup: float = _setting(CONCEDE_WARMUP, "share of the training in which nothing is conceded")
    speed: str = _setting("skip", "off, skip (exact) or fast (samples that are won, or nearly, rest)")
    fit_head: bool | None = _setting(None, "begin with a last layer fitted in closed form; overrides speed")
    settle: float | None = _setting(None, "share of plain softmax for every sample at the end (fast: 0.25)")
    skip: str | None = _setting(None, "off, micro, rows, two-pass or auto; overrides speed")
    rest: bool | None = _setting(None, "whether won samples rest; overrides speed")
    accumulation: int | None = _setting(None, "AS-Speed: most batches of one optimizer step")
    lam: float = _setting(0.5, "λ of AS-Speed")

    @classmethod
    def split(cls, keywords: dict[str, Any], base: Any = None) -> tuple[Settings, dict[str, Any]]:
        """Settings from keywords, on top of the attributes of ``base``; and the other keywords."""
        names = [setting.name for setting in fields(Settings)]
        defaults = Settings(**{name: getattr(base, name) for name in names if hasattr(base, name)})
        values = {name: keywords[name] for name in names if keywords.get(name) is not None}
        others = {name: value for name, value in keywords.items() if name not in names}
        return replace(defaults, **values), others

    def resolve(self, model: nn.Module, n_samples: int | None = None, seed: int = 0) -> RunParts:
        """The parts of a run. The loss is a copy, so that every run starts with a new δ schedule."""
        loss: Loss | str | None = self.loss
        if loss is None:
            problem = getattr(getattr(model, "config", None), "problem_type", None)
            loss = "multilabel-as-softmax" if problem == "multi_label_classification" else "as-softmax"
        own = {"delta": self.delta, "concede": self.concede}
        by_name = isinstance(loss, str)
        loss = mean_loss(loss, **{name: value for name, value in own.items() if value is not None})
        if by_name and self.delta is None and hasattr(loss, "delta"):
            setattr(loss, "delta", find_speed(self.speed).delta)  # noqa: B010
        if self.delta_warmup and not hasattr(loss, "delta"):
            raise ValueError(f"delta_warmup={self.delta_warmup}, but {loss.name} has no δ")
        return resolve_speed(
            model,
            n_samples,
            loss=copy.deepcopy(loss),
            speed=self.speed,
            skip=self.skip,
            rest=self.rest,
            check=False if self.rest is False else None,
            accumulation=self.accumulation,
            lam=self.lam,
            settle=self.settle,
            fit_head=self.fit_head,
            seed=seed,
        )

    def set_length(self, parts: RunParts, total_steps: float, n_planned: int | None = None) -> None:
        """Add warm-ups and settling to δ and κ, once the length of the training is known.

        Args:
            parts: Its loss and its scorecard are changed in place.
            total_steps: Steps of the whole training.
            n_planned: Steps of an epoch, if they are known.

        Raises:
            ValueError: A share of a training without an end.
        """
        loss: Any = parts.loss
        warms_delta = self.delta_warmup and not isinstance(loss.delta, WarmupDelta)
        concede = getattr(loss, "concede", None)
        warms_concede = self.concede_warmup and with_warmup(concede, 1) is not concede
        if math.isinf(total_steps) and (warms_delta or warms_concede or settles(loss, parts.settle)):
            raise ValueError(
                "a warm-up and settling are shares of the training, whose length is unknown; set the number"
                " of epochs or steps, or delta_warmup=0, concede_warmup=0 and settle=0"
            )
        if not math.isinf(total_steps):
            n_steps = int(total_steps)
            if warms_delta and isinstance(loss.delta, SettleDelta):
                loss.delta = loss.delta.after_warmup(self.delta_warmup)
            elif warms_delta:
                loss.delta = WarmupDelta(loss.delta, total_steps=n_steps, share=self.delta_warmup)
            set_length(loss, n_steps, n_planned, settle=parts.settle, concede_warmup=self.concede_warmup)
        if parts.scorecard is not None and n_planned is not None:
            ends = not math.isinf(total_steps)
            step = settles_at(loss, int(total_steps) if ends else 0, n_planned, parts.settle if ends else 0.0)
            parts.scorecard.awake_from = None if step is None else step // n_planned
            length = (total_steps / n_planned, total_steps) if ends else (None, None)
            parts.scorecard.plan_rests(*length)


def mean_loss(loss: Loss | str, **settings: Any) -> Loss:
    """A loss by its name, or as it is, that reduces to the mean."""
    if isinstance(loss, str):
        named: Any = make_loss(loss, **settings)
        if hasattr(named, "delta") and "delta" not in settings:
            named.delta = TRAINING_DELTA
        return cast("Loss", named)
    check_loss(loss)
    if not isinstance(loss, Loss):
        raise TypeError(
            f"loss must be a loss of logits or its name, got {type(loss).__name__}; use the training loop"
        )
    if settings:
        raise ValueError(
            f"{', '.join(settings)} belongs to a loss by name; this {loss.name} is an object with settings"
        )
    if loss.reduction != "mean":
        raise ValueError(
            f'a window needs the mean over its rows; got a loss with reduction="{loss.reduction}"'
        )
    return loss
