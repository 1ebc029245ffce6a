"""The settings of a run: a frozen record, read from TOML and flags.

A setting that is None takes the default of the task, the model or the loss. `Config.resolved` fills it in, so
that the record of a run is complete.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparring.backward.skipper import MODES
from sparring.lab.errors import UserError, option
from sparring.lab.kinds import list_kinds
from sparring.lab.loss_settings import AS_SPEED, check_taken, loss_settings
from sparring.lab.loss_settings import LOSS_SETTINGS as LOSS_SETTINGS
from sparring.lab.models import trust
from sparring.lab.runs.settings import read_toml, setting, settings_of, short, to_flags, to_toml
from sparring.lab.task import Task
from sparring.losses import Loss, make_loss
from sparring.losses.concede import CONCEDE_WARMUP, with_warmup
from sparring.losses.delta import AdaptiveDelta, WarmupDelta, delta_value
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.divergence import MODES as DIVERGENCE_MODES
from sparring.training.optimizers import SCHEDULES
from sparring.training.presets import SPEEDS

TABLE_KINDS = tuple(form.name for form in list_kinds() if form.roles)  # those that a table can hold
MAX_SEED = 2**32 - 1  # numpy's limit

_loss = partial(setting, group="loss")
_model = partial(setting, group="model")
_training = partial(setting, group="training")
_data = partial(setting, group="data")
_record = partial(setting, group="record", changes=False)


@dataclass(frozen=True)
class Config:
    """Settings of a run. Each field is a flag (``--batch-size``) and a TOML key (``batch_size``).

    Values are converted to the type of their field, so text from a flag may be passed.

    Raises:
        UserError: A value has the wrong type or is out of range.
    """

    task: str = setting(
        MISSING, "name of a task, a file, a folder or a Hugging Face data set", group="task", changes=False
    )

    loss: str | None = _loss(None, "name of a loss, or as-speed (default: the AS-Softmax that fits)")
    delta: float | str | None = _loss(
        None,
        "δ of as-softmax (0.8; 0.6 with --speed fast), or adaptive",
        choices=("adaptive",),
    )
    warmup: float | None = _loss(None, "share of training with δ = 1 at first (the paper's r)", low=0, high=1)
    tau: float | None = _loss(None, "temperature of t-softmax")
    epsilon: float | None = _loss(None, "ε of label-smoothing")
    k: int | None = _loss(None, "number of classes that sparse-softmax keeps")
    scale: float | None = _loss(None, "s of am-softmax")
    margin: float | None = _loss(None, "m of am-softmax, margin of as-logit")
    q: float | None = _loss(None, "q of gce")
    gamma: float | None = _loss(None, "γ of focal")
    alpha: float | None = _loss(None, "α of sce: factor of the cross entropy")
    beta: float | None = _loss(None, "β of sce: factor of the reverse cross entropy")
    concede: float | None = _loss(None, "κ: give up samples that a rival leads by more than κ", low=0, high=1)
    concede_warmup: float | None = _loss(None, "share of training before that (0.2)", low=0, high=1)

    model: str = _model(
        "tiny",
        "tiny (from scratch), minilm, m3e-small; images: resnet, convnext, efficientnet-lite0; "
        "sounds: ast, resemblyzer; a Hugging Face name or a folder",
    )
    layers: int | None = _model(None, "keep only the first n layers of a pre-trained model", low=1)
    freeze_embeddings: bool = _model(False, "do not train the embeddings of a pre-trained model")
    freeze_layers: int | None = _model(None, "nor its first n layers, which then run only once", low=1)
    pooling: str | None = _model(
        None,
        "mean: put the head on the mean of the tokens, as for sentence encoders (default: the model's own)",
        choices=("mean",),
    )
    max_length: int | None = _model(None, "cut texts to this many tokens", low=4)
    max_target_length: int | None = _model(None, "the same for generated texts (64, or the task's)", low=2)
    beams: int | None = _model(None, "number of beams when text is generated (default: 1, greedy)", low=1)
    trust_remote_code: bool = _model(
        False,
        "run code that comes with a model, for a model that you trust; never read from a file",
        changes=False,
    )
    image_size: int | None = _model(None, "of images (default: the data's, or the model's)", low=4, high=4096)
    augment: str | None = _model(
        None,
        "augmentation of training images: crop shifts them, flip also mirrors them (default: the task's)",
        choices=("off", "crop", "flip"),
    )

    epochs: int | None = _training(None, "passes over the data (8 for tiny, 5 for others)", low=1)
    budget: float | None = _training(None, "instead: spend what so many epochs of softmax cost", low=0)
    forward_share: float | None = _training(None, "cost of a forward pass in it (measured)", low=0, high=1)
    batch_size: int | None = _training(None, "samples in a batch (32, or the task's own)", low=1)
    lr: float | None = _training(None, "peak learning rate (default: the model's; 5e-5 for others)", low=0)
    schedule: str = _training("linear", "learning rate schedule", choices=tuple(SCHEDULES))
    weight_decay: float = _training(0.01, "weight decay of AdamW", low=0)
    max_grad_norm: float = _training(1.0, "clip gradients to this norm; 0: do not clip", low=0)
    accumulation: int | str = _training(
        1, "batches per optimizer step, or adaptive: AS-Speed", choices=("adaptive",), low=1
    )
    lam: float = _training(0.5, "λ of AS-Speed")
    max_steps: int = _training(5, "largest number of batches per optimizer step under AS-Speed", low=1)
    speed: str = _training(
        "skip",
        "off; skip: no backward pass for won samples; fast: samples also rest",
        choices=tuple(SPEEDS),
    )
    fit_head: bool | None = _training(None, "begin with a fitted last layer (default: with --speed fast)")
    settle: float | None = _training(None, "last share with plain softmax (fast: 0.25)", low=0, high=1)
    skip: str | None = _training(
        None, "how the backward pass is skipped (default: rows); auto measures the fastest way", choices=MODES
    )
    rest: bool | None = _training(None, "samples rest for some epochs (default: with --speed fast)")
    max_rest: int | None = _training(None, "most epochs that a sample rests in a row", low=1)
    check: bool | None = _training(None, "check won samples that do not rest without gradients first")
    patience: int | None = _training(None, "stop after this many evaluations without a better one", low=1)
    eval_every: int | None = _training(None, "batches between evaluations (default: an epoch)", low=1)
    metric: str | None = _training(None, "metric that selects the best model (default: the task's)")
    mixed_precision: str = _training("no", "train in half precision", choices=("no", "bf16", "fp16"))
    seed: int = _training(0, "seed of all random numbers", low=0, high=MAX_SEED)

    n_train: int | None = _data(None, "train on this many samples, drawn at random", low=1)
    n_dev: int | None = _data(None, "likewise for dev", low=1)
    n_test: int | None = _data(None, "likewise for test", low=1)
    test: bool = _data(True, "evaluate the best model on the test set")
    text_column: str | None = _data(None, "column of your file with the text")
    text_b_column: str | None = _data(None, "column with the second text of a pair")
    label_column: str | None = _data(None, "column with the label, labels, tags or target")
    label_separator: str | None = _data(None, "separator of several labels in a cell")
    kind: str | None = _data(None, "kind of task of your file", choices=TABLE_KINDS)
    missing: str | None = _data(
        None, "rows with an empty cell: drop them (default: error)", choices=("drop", "error"), changes=False
    )
    data_dir: str | None = _data(None, "folder of the data sets (default: $SPARRING_DATA)", changes=False)

    out: str = _record("runs", "folder for the run folders")
    save_every: int | None = _record(None, "batches between checkpoints (default: an epoch or 30 s)", low=1)
    on_divergence: str = _record(
        "raise",
        "a loss, gradient or weight that is NaN or infinite: end the run with an error, warn once or ignore",
        choices=DIVERGENCE_MODES,
    )
    tensorboard: bool = _record(False, "also write TensorBoard events")
    device: str | None = _record(
        None, "where to train (default: a GPU if there is one)", choices=("cpu", "cuda", "mps")
    )
    threads: int | None = _record(None, "CPU threads of a run (default: free cores)", low=1, high=1024)

    def __post_init__(self) -> None:
        for name, known in SETTINGS.items():
            value = getattr(self, name)
            if value is not known.default:
                object.__setattr__(self, name, known.parse(value))

    @classmethod
    def read(cls, path: Path | None, flags: Mapping[str, Any]) -> "Config":
        """Read a TOML file. ``flags`` override its values."""
        values = read_toml(path, SETTINGS) if path is not None else {}
        if values.pop(trust.FIELD, False):
            advice = f"{option(trust.FIELD, True)} sets it, for a model that you trust"
            raise UserError(f"{path}: {trust.FIELD} is not taken from a file; {advice}")
        values |= flags
        if not values.get("task"):
            raise UserError("no task: name one (sparring tasks lists them) or a file of your own")
        return cls(**values)

    def with_contestant(self, text: str) -> "Config":
        """Parse a loss with settings of its own, such as ``as-softmax:delta=0.2:skip=off``."""
        loss, *pairs = text.strip().split(":")
        changes: dict[str, Any] = {"loss": loss}
        for pair in pairs:
            name, value = split_own(pair, f'"{text}": ')
            changes[name] = SETTINGS[name].parse(value, f'"{text}": ')
        check_taken(loss, [name for name in changes if name in LOSS_SETTINGS])
        return self.replace(**changes)

    def replace(self, **changes: Any) -> "Config":
        return dataclasses.replace(self, **changes)

    def resolved(
        self, task: Task, *, epochs: int, lr: float, pieces: int = 1, strict: bool = True
    ) -> "Config":
        """Fill in every default. ``epochs``, ``lr`` and ``pieces`` (tokens per word) are those of the model.

        Raises:
            UserError: The loss does not fit the task, or (``strict``) a setting does not fit the loss.
        """
        kind = task.kind
        loss = kind.loss_name("as-softmax") if self.loss in (None, AS_SPEED) else str(self.loss)
        takes = loss_settings(loss)
        if "delta" in takes:
            takes["delta"] = SPEEDS[self.speed].delta
        if loss not in kind.losses:
            fitting = ", ".join(kind.losses)
            raise UserError(
                f'loss "{loss}" does not fit {task.name}, whose kind is {kind.name}; use one of {fitting}'
            )
        values = {name: getattr(self, name) for name in LOSS_SETTINGS if getattr(self, name) is not None}
        if strict:
            check_taken(loss, values)
        defaults = {"epochs": epochs, "lr": lr, "batch_size": 32, "augment": None, "metric": task.metric}
        defaults["max_length"] = task.max_length * pieces
        if kind.generates:
            defaults |= {"max_target_length": 64, "beams": 1}
        elif self.beams is not None or self.max_target_length is not None:
            about = f"{task.name}'s kind is {kind.name}"
            raise UserError(
                f"{option('beams')} and {option('max_target_length')} are for generation; {about}"
            )
        defaults |= {name: value for name, value in task.settings.items() if name in defaults}
        changes = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        changes |= {name: values.get(name, takes[name]) if name in takes else None for name in LOSS_SETTINGS}
        if self.loss == AS_SPEED:
            changes["accumulation"] = "adaptive"
        return self.replace(loss=loss, **changes)

    def make_loss(self, total_steps: int, *, schedule: bool = True) -> Loss:
        """Build the loss of a resolved config. Without ``schedule``, as for evaluation, δ is constant."""
        assert self.loss is not None
        settings = {name: getattr(self, name) for name in loss_settings(self.loss) if "warmup" not in name}
        if settings.get("concede") is not None:
            share = CONCEDE_WARMUP if self.concede_warmup is None else self.concede_warmup
            settings["concede"] = with_warmup(self.concede, total_steps, share) if schedule else None
        if "delta" in settings:
            delta = settings["delta"]
            if delta == "adaptive":
                delta = AdaptiveDelta.below(loss_settings(self.loss)["delta"])
            if not schedule:
                delta = delta_value(delta)
            elif self.warmup:
                delta = WarmupDelta(delta, total_steps=total_steps, share=self.warmup)
            settings["delta"] = delta
        return make_loss(self.loss, **settings)

    def make_accumulation(self) -> AdaptiveAccumulation | int:
        if isinstance(self.accumulation, int):
            return self.accumulation
        return AdaptiveAccumulation(self.lam, self.max_steps)

    @property
    def label(self) -> str:
        """The contestant's name: ``as-softmax delta=0.3``."""
        shown = {name: getattr(self, name) for name in LOSS_SETTINGS if name != "warmup" or self.warmup}
        if self.accumulation != 1:
            shown["accumulation"] = self.accumulation
        settings = [f"{name}={short(value)}" for name, value in shown.items() if value is not None]
        return " ".join([str(self.loss), *settings])

    def digest(self, data: str) -> str:
        """Hash everything that the result depends on except the seed; ``data`` is the data's fingerprint."""
        values = {name: getattr(self, name) for name in IDENTITY}
        values = {name: value for name, value in values.items() if value is not None or name not in LATER}
        return hashlib.sha256(json.dumps([values, data], sort_keys=True).encode()).hexdigest()[:8]

    def flags(self) -> list[str]:
        """The flags that give this config on the command line."""
        return to_flags(self, SETTINGS, without=("task",))

    def toml(self) -> str:
        return to_toml(self, SETTINGS, without=(trust.FIELD,))


SETTINGS = settings_of(Config)
IDENTITY = [name for name, known in SETTINGS.items() if known.changes and name != "seed"]
# Settings that came later: while they are not set, folders made before them keep their names.
LATER = (
    "pooling", "freeze_layers", "image_size", "augment", "max_target_length", "beams",
    "budget", "forward_share", "settle", "fit_head",
    *LOSS_SETTINGS[-6:],
)  # fmt: skip
# Settings that a contestant may have for itself.
OWN = [
    name
    for name, known in SETTINGS.items()
    if known.group in ("loss", "model", "training") and name not in ("loss", "metric", "seed", trust.FIELD)
]


def split_own(text: str, place: str) -> tuple[str, str]:
    """Split ``name=value``, the text of a setting that a contestant may have for itself."""
    name, _, value = (part.strip() for part in text.partition("="))
    name = name.replace("-", "_")
    if not value:
        raise UserError(f'{place}expected setting=value, such as delta=0.2, got "{text}"')
    if name not in OWN:
        raise UserError(f"{place}a contestant has no setting {name}; it may have {', '.join(OWN)}")
    return name, value
