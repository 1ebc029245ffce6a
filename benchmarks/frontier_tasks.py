"""The tasks of the frontier benchmark: a data set, a network, and how a method is trained on it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from label_noise import calibration_error
from rivals import RIVALS, RivalCard
from torch import Tensor, nn

from sparring import make_loss
from sparring.lab.datasets import get_task
from sparring.lab.kinds.encoder import Encoder
from sparring.lab.models.settings import ModelOptions
from sparring.lab.models.text.frozen import frozen_layers
from sparring.lab.runs.evaluate import Evaluator
from sparring.lab.runs.plan import cut
from sparring.lab.task import Where
from sparring.training import Scorecard
from sparring.training.loop import Loop
from sparring.training.optimizers import adamw
from sparring.training.resting.weighted import WeightedScorecard

BUDGETS = (1.0, 2.0, 3.5, 4.0, 8.0)  # in epochs of softmax
# Loss and settings of the loop, by method. "softmax" at a smaller budget is the control "fewer epochs".
# "fast" is the preset with plain softmax, "fast AS" with AS-Softmax. Those "as long" have as many epochs as
# softmax, and so a smaller cost.
METHODS: dict[str, dict[str, Any]] = {
    "softmax": {"loss": "softmax", "speed": "off"},
    "softmax, fitted head": {"loss": "softmax", "speed": "off", "fit_head": True},
    "skip": {"loss": "as-softmax", "speed": "skip"},
    "fast": {"loss": "softmax", "speed": "fast"},
    "fast, short": {"loss": "softmax", "speed": "fast"},
    "fast, as long": {"loss": "softmax", "speed": "fast", "as_long": True},
    "fast AS": {"loss": "as-softmax", "speed": "fast"},
    "fast AS, as long": {"loss": "as-softmax", "speed": "fast", "as_long": True},
    **{name: {"loss": "softmax", "speed": "off", "rival": name} for name in RIVALS},
}
# Forms of the preset, to compare on dev with `frontier.py choose`.
FORMS: dict[str, dict[str, Any]] = {
    "softmax, margin from 0.6": {"loss": "softmax"},
    "softmax, margin from 0": {"loss": "softmax", "weighted": {"margin_from": 0.0}},
    "softmax, rest up to 2": {"loss": "softmax", "weighted": {"max_rest": 2}},
    "δ 0.6, rest 2, settle 0.25": {},
    "δ 0.3": {"delta": 0.3},
    "δ 0.9": {"delta": 0.9},
    "rest 4": {"rest": 4},
    "settle 0": {"settle": 0.0},
    "concede 0.5": {"delta": 0.6, "concede": 0.5},
}
Plan = dict[str, tuple[float, ...]]  # the budgets of each method
WHOLE: Plan = {
    "softmax": (1.0, 2.0, 4.0, 8.0),
    "fast": (1.0, 2.0, 4.0),
    "softmax, fitted head": (2.0,),
    "fast, as long": (8.0,),
    **dict.fromkeys(RIVALS, (2.0,)),
}
SHORT: Plan = {"fast, short": (3.5,)}  # for less than 0.45 of the time of softmax at 8 epochs
FEW: Plan = {
    "softmax": (2.0, 4.0),
    "fast": (2.0, 4.0),
    "softmax, fitted head": (2.0,),
    "fast, as long": (4.0,),
    **dict.fromkeys(RIVALS, (2.0,)),
}
LATE: Plan = {  # a network that learns nothing in two epochs
    "softmax": (4.0, 8.0),
    "fast": (4.0, 8.0),
    "fast, as long": (8.0,),
    **dict.fromkeys(RIVALS, (4.0,)),
}


@dataclass(frozen=True)
class Setting:
    """A task of the benchmark."""

    task: str
    model: str
    lr: float  # where the search for softmax's learning rate begins
    options: dict[str, Any] = field(default_factory=dict)  # of the model
    n_train: int | None = None
    n_dev: int | None = 1000
    n_test: int | None = None
    batch_size: int = 32
    max_length: int | None = None
    n_seeds: int = 3
    plan: Plan = field(default_factory=lambda: FEW)

    @property
    def name(self) -> str:
        return self.task if self.model != "convnext" else f"{self.task}-scratch"


# All six layers of MiniLM. The first are frozen, and what they compute is computed once for all runs.
LAYER = {"freeze_layers": 5}
POOLED = {**LAYER, "pooling": "mean"}
CHINESE = {"freeze_layers": 3, "pooling": "mean"}  # m3e-small has four
SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("clinc_oos", "minilm", 1e-3, POOLED, n_train=6000, n_seeds=5, plan=SHORT | WHOLE),
        Setting("languages", "tiny", 8e-3, n_train=6000, n_seeds=5, plan=WHOLE),
        Setting("conll2003", "minilm", 1e-3, LAYER, n_train=3000, n_test=1500, n_seeds=5),
        Setting("fsdd", "tiny", 4e-3, n_seeds=5),
        Setting("sst5", "minilm", 5e-4, POOLED, n_train=4000, max_length=48),
        Setting("reuters21578", "minilm", 1e-3, POOLED, n_train=3000, max_length=64),
        Setting("iflytek", "m3e-small", 1e-3, CHINESE, n_train=2000, max_length=64, n_seeds=5),
        Setting("cifar100", "efficientnet-lite0", 1e-4, {"image_size": 96}, n_train=1000, n_test=1000),
        Setting("cifar100", "convnext", 2e-3, n_train=2000, plan=LATE),
    )
}


class Bench:
    """The samples of a task, encoded once."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        task = get_task(setting.task)
        self.kind = task.kind
        self.data = task.load(Where.default(None))
        self.metric = task.metric
        length = setting.max_length or task.max_length * self.kind.model_defaults(setting.model).pieces
        model = self.build(0)
        self.encoder = self.data.encoder(
            model.processor, self.kind.limit_length(model, length), top_k=task.top_k
        )
        self.train = self.encoder.encode(cut(self.data.train, setting.n_train))
        frozen = frozen_layers(model.net)
        if frozen is not None:
            frozen.add_outputs(model.net, self.encoder, self.train)
        loss = make_loss(self.kind.loss_name("softmax"))
        self.splits = {
            split: Evaluator(self.kind, self.encoder, cut(samples, size), loss)
            for split, samples, size in (
                ("dev", self.data.dev, setting.n_dev),
                ("test", self.data.test, setting.n_test),
            )
        }
        if frozen is not None:
            for evaluator in self.splits.values():
                frozen.add_outputs(model.net, self.encoder, evaluator.features)

    def build(self, seed: int) -> Any:
        torch.manual_seed(seed)
        return self.data.build_model(self.setting.model, ModelOptions(**self.setting.options))

    def run(
        self, method: dict[str, Any], lr: float, budget: float, seed: int, forward_share: float
    ) -> dict[str, Any]:
        """Train once under a budget, and measure the last network."""
        settings = {**method}
        rival = settings.pop("rival", None)
        as_long = settings.pop("as_long", False)
        length = {"epochs": round(budget)} if as_long else {"budget": budget, "forward_share": forward_share}
        losses = {key: settings.pop(key) for key in ("delta", "concede") if key in settings}
        loss: Any = self.kind.loss_name(settings.pop("loss"))
        net = self.build(seed).net
        card: Scorecard | None = RIVALS[rival](len(self.train), seed) if rival else None
        if (rules := settings.pop("weighted", None)) is not None:
            card = WeightedScorecard(len(self.train), seed=seed, **rules)
        if (rest := settings.pop("rest", None)) is not None:
            card = Scorecard(len(self.train), max_rest=rest, narrow=rest, watch=True)
        loop = Loop(
            net,
            make_loss(loss, **losses) if losses else loss,
            self.train,
            **length,
            optimizer=adamw(net, lr),
            scorecard=card,
            seed=seed,
            **self.loading(self.train),
            **settings,
        )
        if isinstance(card, RivalCard):
            follow(loop, card)
        record = loop.run()
        names = ("n_forward", "n_backward", "n_updates", "seconds", "cpu_seconds")
        return {
            **{split: self.measure(net, split) for split in self.splits},
            **{name: record.totals[name] for name in names},
            "epochs": len(record.epochs),
            "forward_share": forward_share,
            "resting": [entry.get("rest", 0) / len(self.train) for entry in record.epochs],
            "won": [entry["won_share"] for entry in record.epochs],
            "notes": record.notes,
        }

    def loading(self, features: list[Any]) -> dict[str, Any]:
        """How a loop loads samples."""
        return {
            "batch_size": self.setting.batch_size,
            "lengths": self.encoder.lengths(features),
            "forward": self.encoder.forward,
            "collate": self.encoder.collate_for_training,
            "progress": False,
        }

    def measure_cost(self, n_samples: int = 512, n_turns: int = 3) -> float:
        """The cost of an epoch without backward passes, over that of an epoch with all.

        A network learns a few samples by heart. Then epochs with and without skipping take turns, at a
        learning rate of 0. Samples that are still lost are taken into account.
        """
        features = self.train[:n_samples]
        net = self.build(0).net
        name, optimizer = self.kind.loss_name("softmax"), adamw(net, self.setting.lr)
        Loop(net, name, features, speed="off", epochs=12, optimizer=optimizer, **self.loading(features)).run()
        shares = []
        for _ in range(n_turns):
            full, skipped = (self.epoch(net, features, speed, delta=0.05) for speed in ("off", "skip"))
            left = skipped["n_backward"] / full["n_backward"]
            shares.append((skipped["cpu_seconds"] / full["cpu_seconds"] - left) / max(1 - left, 0.1))
        return round(min(max(statistics.median(shares), 0.05), 1.0), 3)

    def measure_overhead(self, n_samples: int = 512, n_turns: int = 7) -> dict[str, float]:
        """The processor time of an epoch over that of softmax, where nothing is won; in turns."""
        features = self.train[:n_samples]
        net = self.build(0).net
        names = ("softmax", "skip", "fast", "fast AS")
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(n_turns):
            for name in names:
                method = METHODS[name]
                totals = self.epoch(net, features, method["speed"], loss=method["loss"], delta=0.9)
                seconds[name].append(totals["cpu_seconds"])
        return {
            name: statistics.median(a / b for a, b in zip(times, seconds["softmax"], strict=True))
            for name, times in seconds.items()
        }

    def epoch(
        self, net: nn.Module, features: list[Any], speed: str, *, delta: float, loss: str = "as-softmax"
    ) -> dict[str, Any]:
        """The totals of an epoch that changes nothing: its learning rate is 0."""
        name = self.kind.loss_name(loss)
        objective = make_loss(name, delta=delta) if loss == "as-softmax" else make_loss(name)
        settings = {"speed": speed, "settle": 0.0, "epochs": 1, **self.loading(features)}
        return Loop(net, objective, features, optimizer=adamw(net, 0.0), **settings).run().totals

    def measure(self, net: nn.Module, split: str) -> dict[str, float]:
        """Quality and calibration of a network. Multi-label rows have no calibration of a class."""
        evaluator = self.splits[split]
        rows = KeptRows(self.encoder)
        evaluator.encoder = cast("Encoder", rows)
        figures = evaluator.outcome(net).figures
        result = {"metric": figures[self.metric], "nll": figures["loss"]}
        if rows.logits:
            logits, target = torch.cat(rows.logits), torch.cat(rows.targets)
            result["ece"] = calibration_error(logits.softmax(1), target)
            right = (logits.argmax(1) == target).float()
            result["worst_class"] = min(float(right[target == label].mean()) for label in target.unique())
        return result


class KeptRows:
    """An encoder that keeps logits and targets of all rows with one class."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.logits: list[Tensor] = []
        self.targets: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def forward(self, net: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        outputs, target = self.encoder.forward(net, batch)
        if target.shape != outputs.shape:
            valid = target.reshape(-1) >= 0
            self.logits.append(outputs.movedim(1, -1).reshape(-1, outputs.shape[1])[valid].float())
            self.targets.append(target.reshape(-1)[valid])
        return outputs, target


def follow(loop: Loop, card: RivalCard) -> None:
    """Let a rival's card see how much is spent, and set the learning rate by its factor."""
    card.share_done = lambda: getattr(loop, "n_done", 0) / loop.total_steps
    if hasattr(card, "factor"):
        schedule = loop.make_schedule

        def with_factor(optimizer: Any, total_steps: int) -> Any:
            made = schedule(optimizer, total_steps)
            made.lr_lambdas = [
                lambda step, inner=inner: inner(step) * card.factor for inner in made.lr_lambdas
            ]
            return made

        loop.make_schedule = with_factor
