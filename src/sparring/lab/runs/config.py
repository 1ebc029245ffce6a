"""What a run is made of: one frozen, typed record. TOML in, flags on top; the folder of a run is named by it.

A field without a value (None) takes the task's, the model's or the loss's own default; `resolved` fills it in, so that the record of
a run says everything.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from sparring.backward.skipper import MODES
from sparring.lab.errors import UserError
from sparring.lab.kinds import list_kinds
from sparring.lab.models import trust
from sparring.lab.task import Task
from sparring.lab.untrusted import read_text, reason
from sparring.losses import Loss, make_loss
from sparring.losses.base import find_loss
from sparring.losses.delta import AdaptiveDelta, WarmupDelta, delta_value
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.divergence import MODES as DIVERGENCE_MODES
from sparring.training.presets import SPEEDS
from sparring.training.schedules import SCHEDULES

LOSS_SETTINGS = ("delta", "warmup", "tau", "epsilon", "k", "scale", "margin")
AUGMENTATIONS = ("off", "crop", "flip")  # of images: see pixels.py
MAX_SEED = 2**32 - 1  # numpy's
MAX_INTEGER = 2**31 - 1  # of a setting that has no limit of its own
AS_SPEED = "as-speed"  # AS-Softmax with adaptive accumulation: a method of the paper's tables


def setting(
    default: Any,
    help: str,
    *,
    group: str,
    changes: bool = True,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A field with what ``--help`` says of it and its range; ``changes`` is False where the result does not depend on it."""
    facts = {"help": help, "group": group, "changes": changes, "choices": choices, "low": low, "high": high}
    return field(default=default, metadata=facts)


@dataclass(frozen=True)
class Config:
    """Fields are flags (``--batch-size``) and TOML keys (``batch_size``)."""

    task: str = setting(
        MISSING, "a task's name, a file, a folder or a Hugging Face data set", group="task", changes=False
    )
    loss: str | None = setting(
        None, "a loss's name, or as-speed (default: the AS-Softmax of the task's kind)", group="loss"
    )
    delta: float | str | None = setting(
        None,
        "δ of as-softmax, or adaptive: 0.3, less while little is won",
        group="loss",
        choices=("adaptive",),
    )
    warmup: float | None = setting(
        None, "share of training with δ = 1 before it (the paper's r)", group="loss", low=0
    )
    tau: float | None = setting(None, "temperature of t-softmax", group="loss")
    epsilon: float | None = setting(None, "ε of label-smoothing", group="loss")
    k: int | None = setting(None, "classes that sparse-softmax keeps", group="loss")
    scale: float | None = setting(None, "s of am-softmax", group="loss")
    margin: float | None = setting(None, "m of am-softmax, margin of as-logit", group="loss")

    model: str = setting(
        "tiny",
        "tiny (from scratch), minilm, m3e-small; images: resnet, convnext, efficientnet-lite0; sounds: ast, resemblyzer; a Hugging "
        "Face name or a folder",
        group="model",
    )
    layers: int | None = setting(
        None, "keep only the first n layers of a pre-trained model", group="model", low=1
    )
    freeze_embeddings: bool = setting(
        False, "do not train the embeddings of a pre-trained model", group="model"
    )
    pooling: str | None = setting(
        None,
        "mean: the head is on the mean of the tokens, as sentence encoders want it (default: the model's own)",
        group="model",
        choices=("mean",),
    )
    max_length: int | None = setting(None, "tokens of a text beyond which it is cut", group="model", low=4)
    max_target_length: int | None = setting(
        None, "likewise of a text to generate (64, or the task's own)", group="model", low=2
    )
    beams: int | None = setting(
        None, "beams of the search when text is generated (default: 1, greedy)", group="model", low=1
    )
    trust_remote_code: bool = setting(
        False,
        "run code that a model brings along, for a model that you trust; never taken from a file",
        group="model",
        changes=False,
    )
    image_size: int | None = setting(
        None, "width and height of images (default: theirs, or the model's)", group="model", low=4, high=4096
    )
    augment: str | None = setting(
        None,
        "what training does to images: crop moves them, flip mirrors them too (default: the task's)",
        group="model",
        choices=AUGMENTATIONS,
    )

    epochs: int | None = setting(
        None, "passes over the data (8 for tiny, 5 for others)", group="training", low=1
    )
    batch_size: int | None = setting(
        None, "samples in a batch (32, or the task's own)", group="training", low=1
    )
    lr: float | None = setting(
        None,
        "peak learning rate (3e-3 for tiny, 3e-4 for minilm and m3e-small, 5e-5 for others)",
        group="training",
        low=0,
    )
    schedule: str = setting("linear", "of the learning rate", group="training", choices=tuple(SCHEDULES))
    weight_decay: float = setting(0.01, "of AdamW", group="training", low=0)
    max_grad_norm: float = setting(
        1.0, "gradients are clipped to it; 0: they are not", group="training", low=0
    )
    accumulation: int | str = setting(
        1, "batches an optimizer step, or adaptive: AS-Speed", group="training", choices=("adaptive",), low=1
    )
    lam: float = setting(0.5, "λ of AS-Speed", group="training")
    max_steps: int = setting(5, "most batches an optimizer step under AS-Speed", group="training", low=1)
    speed: str = setting(
        "skip",
        "off; skip the backward of won samples; all: besides, winners sit out epochs and δ adapts",
        group="training",
        choices=tuple(SPEEDS),
    )
    skip: str | None = setting(
        None,
        "how a backward is skipped (default: rows); auto measures which way is fastest",
        group="training",
        choices=MODES,
    )
    rest: bool | None = setting(None, "winners sit out epochs (default: with --speed all)", group="training")
    max_rest: int | None = setting(None, "most epochs they sit out in a row", group="training", low=1)
    check: bool | None = setting(
        None, "winners that do not rest are looked at without gradients first", group="training"
    )
    patience: int | None = setting(
        None, "evaluations without a better one before the run ends", group="training", low=1
    )
    eval_every: int | None = setting(
        None, "batches between evaluations (default: an epoch)", group="training", low=1
    )
    metric: str | None = setting(
        None, "the figure that picks the best model (default: the task's)", group="training"
    )
    mixed_precision: str = setting(
        "no", "train in half precision", group="training", choices=("no", "bf16", "fp16")
    )
    seed: int = setting(0, "of everything random", group="training", low=0, high=MAX_SEED)

    n_train: int | None = setting(
        None, "train on so many samples only, chosen at random", group="data", low=1
    )
    n_dev: int | None = setting(None, "likewise for dev", group="data", low=1)
    n_test: int | None = setting(None, "likewise for test", group="data", low=1)
    test: bool = setting(True, "score the best model on the test set", group="data")
    text_column: str | None = setting(None, "your file's column with the text", group="data")
    text_b_column: str | None = setting(None, "with the second text of a pair", group="data")
    label_column: str | None = setting(None, "with the label, labels, tags or target", group="data")
    label_separator: str | None = setting(None, "between labels in one cell", group="data")
    kind: str | None = setting(
        None,
        "what kind of task your file is",
        group="data",
        choices=tuple(form.name for form in list_kinds() if form.roles),
    )
    data_dir: str | None = setting(
        None,
        "folder that holds one folder per data set (default: $SPARRING_DATA)",
        group="data",
        changes=False,
    )

    out: str = setting("runs", "folder for the run folders", group="record", changes=False)
    save_every: int | None = setting(
        None,
        "batches between checkpoints (default: an epoch, or half a minute)",
        group="record",
        changes=False,
        low=1,
    )
    on_divergence: str = setting(
        "raise",
        "a loss, gradient or weight that is NaN or infinite ends the run with an error, is warned of once, or ignored",
        group="record",
        changes=False,
        choices=DIVERGENCE_MODES,
    )
    tensorboard: bool = setting(False, "write TensorBoard events too", group="record", changes=False)
    device: str | None = setting(
        None, "cpu keeps it off the GPU", group="record", changes=False, choices=("cpu",)
    )
    threads: int | None = setting(
        None, "CPU threads of a run", group="record", changes=False, low=1, high=1024
    )

    # ------------------------------------------------------------ made from TOML, flags and words

    @classmethod
    def read(cls, path: Path | None, flags: Mapping[str, Any]) -> Config:
        """The file's values with the flags' on top."""
        values = _toml(path) if path is not None else {}
        if values.pop(trust.FIELD, False):
            raise UserError(
                f"{path}: {trust.FIELD} is not taken from a file; {trust.FLAG} says that you trust the model"
            )
        values |= flags
        if not values.get("task"):
            raise UserError("which task? name one (sparring tasks lists them) or a file of your own")
        return cls(
            **{
                name: typed(name, value, f"{path}: " if path and name not in flags else "")
                for name, value in values.items()
            }
        )

    def with_contestant(self, text: str) -> Config:
        """``as-softmax:delta=0.2:skip=off``: a loss and whatever else it takes with it."""
        name, *pairs = text.strip().split(":")
        changes: dict[str, Any] = {"loss": name}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            key = key.strip().replace("-", "_")
            if not equals:
                raise UserError(
                    f'"{text}": expected name:setting=value, such as as-softmax:delta=0.2:skip=off; got "{pair}"'
                )
            if key not in OWN:
                raise UserError(f'"{text}": a contestant has no setting {key}; it may have {", ".join(OWN)}')
            changes[key] = typed(key, value.strip(), f'"{text}": ')
        _check_taken(name, [key for key in changes if key in LOSS_SETTINGS])
        return dataclasses.replace(self, **changes)

    def replace(self, **changes: Any) -> Config:
        return dataclasses.replace(self, **changes)

    # ------------------------------------------------------------ what it means

    def resolved(self, task: Task, *, epochs: int, lr: float, pieces: int = 1, strict: bool = True) -> Config:
        """Every default filled in, for a task; ``epochs``, ``lr`` and ``pieces`` (of a token) are the model's own. A loss that does not
        fit is refused, and (``strict``) so is a setting the loss does not take."""
        self.check_ranges()
        kind = task.kind
        own = kind.loss_name("as-softmax")
        filled: dict[str, Any] = {"loss": own if self.loss in (None, AS_SPEED) else self.loss}
        if self.loss == AS_SPEED:
            filled["accumulation"] = "adaptive"
        loss_settings(filled["loss"])  # an unknown name is refused as such
        if filled["loss"] not in kind.losses:
            raise UserError(
                f'the loss "{self.loss}" does not fit {task.name}, whose kind is {kind.name}; these do: {", ".join(kind.losses)}'
            )
        filled |= self._loss_settings(filled["loss"], strict)
        filled["epochs"] = self.epochs if self.epochs is not None else task.settings.get("epochs", epochs)
        filled["lr"] = self.lr if self.lr is not None else task.settings.get("lr", lr)
        filled["batch_size"] = (
            self.batch_size if self.batch_size is not None else task.settings.get("batch_size", 32)
        )
        filled["max_length"] = self.max_length or task.max_length * pieces
        filled["metric"] = self.metric or task.metric
        filled["augment"] = self.augment or task.settings.get("augment")
        if kind.generates:
            filled |= {
                "max_target_length": self.max_target_length or task.settings.get("max_target_length", 64),
                "beams": self.beams or 1,
            }
        elif self.beams is not None or self.max_target_length is not None:
            raise UserError(
                f"beams and max_target_length are for generation; {task.name}'s kind is {task.kind}"
            )
        return dataclasses.replace(self, **filled)

    def check_ranges(self) -> None:
        """Numbers within their range."""
        for f in fields(self):
            value, low, high = getattr(self, f.name), f.metadata["low"], f.metadata["high"]
            if not isinstance(value, (int, float)):
                continue
            if low is not None and value < low:
                raise UserError(f"{f.name} must be at least {low}, got {value}")
            high = MAX_INTEGER if high is None and isinstance(value, int) else high
            if high is not None and value > high:
                raise UserError(f"{f.name} must be at most {high}, got {value}")
        if self.warmup is not None and self.warmup > 1:
            raise UserError(f"warmup is a share of training, at most 1, got {self.warmup}")

    def _loss_settings(self, loss: str, strict: bool) -> dict[str, Any]:
        """The loss's own settings, given or default; the others are out."""
        takes = loss_settings(loss)
        given = {name: getattr(self, name) for name in LOSS_SETTINGS if getattr(self, name) is not None}
        if strict:
            _check_taken(loss, given)
        return {name: given.get(name, takes[name]) if name in takes else None for name in LOSS_SETTINGS}

    def make_loss(self, total_steps: int, *, schedule: bool = True) -> Loss:
        """The loss of a resolved config; for judging, without its ``schedule``: one δ throughout, so that losses can be compared."""
        settings = {
            name: getattr(self, name)
            for name in LOSS_SETTINGS
            if name != "warmup" and getattr(self, name) is not None
        }
        if "delta" in settings:
            delta = AdaptiveDelta.below(0.3) if settings["delta"] == "adaptive" else settings["delta"]
            if not schedule:
                delta = delta_value(delta)
            settings["delta"] = (
                WarmupDelta(delta, total_steps=total_steps, share=self.warmup)
                if self.warmup and schedule
                else delta
            )
        assert self.loss is not None
        return make_loss(self.loss, **settings)

    def make_accumulation(self) -> AdaptiveAccumulation | int:
        if isinstance(self.accumulation, int):
            return self.accumulation
        return AdaptiveAccumulation(self.lam, self.max_steps)

    # ------------------------------------------------------------ its name and its file

    @property
    def label(self) -> str:
        """The contestant in few words: ``as-softmax delta=0.3``."""
        given = {name: getattr(self, name) for name in LOSS_SETTINGS if getattr(self, name) is not None}
        settings = [
            f"{name}={_short(value)}" for name, value in given.items() if (name, value) != ("warmup", 0.0)
        ]
        settings += [f"accumulation={self.accumulation}"] if self.accumulation != 1 else []
        return " ".join([str(self.loss), *settings])

    def digest(self, data: str) -> str:
        """Eight letters for everything the result depends on, the seed left out; ``data`` is the data's own."""
        kept = {
            name: getattr(self, name)
            for name in IDENTITY
            if name not in LATER or getattr(self, name) is not None
        }
        return hashlib.sha256(json.dumps([kept, data], sort_keys=True).encode()).hexdigest()[:8]

    def flags(self) -> list[str]:
        """What makes it again on the command line."""
        given = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name != "task" and getattr(self, f.name) != f.default
        }
        words = [
            [f"--{'' if value else 'no-'}{n}"] if isinstance(value, bool) else [f"--{n}", _short(value)]
            for n, value in given.items()
        ]
        return [word.replace("_", "-") if word.startswith("--") else word for pair in words for word in pair]

    def toml(self) -> str:
        given = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name != trust.FIELD and getattr(self, f.name) is not None
        }
        return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in given.items())


def loss_settings(loss: str) -> dict[str, Any]:
    """The settings a loss takes, with their defaults."""
    try:
        cls = find_loss("as-softmax" if loss == AS_SPEED else loss)
    except ValueError as error:
        raise UserError(str(error)) from None
    takes = {
        name: p.default for name, p in inspect.signature(cls).parameters.items() if name in LOSS_SETTINGS
    }
    return {**takes, "warmup": 0.0} if "delta" in takes else takes


def _check_taken(loss: str, names: Iterable[str]) -> None:
    takes = loss_settings(loss)
    if extra := [name for name in names if name not in takes]:
        raise UserError(f'"{loss}" takes no {", ".join(extra)}; it takes {", ".join(takes) or "no setting"}')


def _short(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


IDENTITY = [
    f.name for f in fields(Config) if f.metadata["changes"] and f.name != "seed"
]  # what a result depends on, but for the seed
LATER = (
    "pooling",
    "image_size",
    "augment",
    "max_target_length",
    "beams",
)  # while they are not set, folders made before them keep their names
OWN = [
    f.name
    for f in fields(Config)
    if f.metadata["group"] in ("loss", "model", "training")
    and f.name not in ("loss", "metric", "seed", trust.FIELD)
]
TYPES = {
    f.name: [part.strip() for part in str(f.type).split("|") if part.strip() != "None"]
    for f in fields(Config)
}


def typed(name: str, value: Any, place: str) -> Any:
    """A value from TOML or the command line as the field's type; text is read as a number where the field is one."""
    types, words = TYPES[name], next(f for f in fields(Config) if f.name == name).metadata["choices"]
    made = _parse(types, value)
    if made is None or (words and isinstance(made, str) and made not in words):
        numbers = [
            text
            for word, text in (("int", "an integer"), ("float", "a number"), ("bool", "true or false"))
            if word in types
        ]
        expected = [*numbers, *(words or (["a word"] if "str" in types else []))]
        raise UserError(f"{place}{name} must be {' or '.join(expected)}; got {value!r:.80}")
    if isinstance(made, str) and "\0" in made:
        raise UserError(f"{place}{name} must not hold a null character; got {value!r:.80}")
    return made


def _parse(types: list[str], value: Any) -> Any:
    """The value as the first of the types that takes it, None where none does."""
    if "bool" in types:
        words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        return value if isinstance(value, bool) else words.get(str(value).lower())
    if isinstance(value, bool):
        return None
    for word in ("int", "float"):
        if word in types:
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
            if math.isfinite(number) and (word == "float" or number == int(number)):
                return int(number) if word == "int" else number
    return str(value) if "str" in types and isinstance(value, (str, int, float)) else None


def _toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values = tomllib.loads(read_text(path))
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: not TOML, or an integer with thousands of digits
        raise UserError(f"{path}: not TOML: {reason(error)}") from None
    values = {name.replace("-", "_"): value for name, value in values.items()}
    if unknown := [name for name in values if name not in TYPES]:
        raise UserError(f"{path}: no setting named {', '.join(unknown)}; known: {', '.join(TYPES)}")
    return values
