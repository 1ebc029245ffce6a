"""A run is gone on with only as what it was begun: other settings and other data are named."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from sparring import AdaptiveDelta, ASSoftmaxLoss, SoftmaxLoss, WarmupDelta
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.identity import RANDOM, digest_of, fingerprint
from sparring.training.loop import Loop
from sparring.training.optimizers import linear_schedule
from sparring.training.resume import ResumeError, ResumeWarning
from tests.training.toy import N, digits_like, gap, net


def loop(folder: Path, **settings: Any) -> Loop:
    """Of two epochs; ``optimizer`` is a function of the model."""
    given: dict[str, Any] = {"model": net(), "loss": ASSoftmaxLoss(0.3), "data": digits_like(), **settings}
    if "optimizer" in given:
        given["optimizer"] = given["optimizer"](given["model"].parameters())
    model, loss, data = (given.pop(name) for name in ("model", "loss", "data"))
    return Loop(model, loss, data, folder=folder, **{"batch_size": 8, "epochs": 2, "lr": 0.02, **given})


def stopped(folder: Path, **settings: Any) -> None:
    """After seven of its 24 batches."""
    interrupted = loop(folder, **settings)
    interrupted.log_step = lambda entry: interrupted.stop() if entry["step"] >= 7 else None
    with pytest.raises(KeyboardInterrupt):
        interrupted.run()


def other_data() -> TensorDataset:
    x, y = digits_like().tensors
    x = x.clone()
    x[5, 2] += 1
    return TensorDataset(x, y)


def step_schedule(gamma: float) -> Any:
    return functools.partial(torch.optim.lr_scheduler.StepLR, gamma=gamma)


ADAMW = functools.partial(torch.optim.AdamW, lr=0.02)
CHANGES = [
    ({}, {"lr": 0.01}, r"optimizer.groups\[0\].lr 0.02 \(now 0.01\)"),
    ({}, {"schedule": "cosine"}, r"schedule.function linear_schedule \(now cosine_schedule\)"),
    ({"schedule": step_schedule(0.1)}, {"schedule": step_schedule(0.2)}, r"schedule.gamma 0.1 \(now 0.2\)"),
    (
        {"optimizer": ADAMW},
        {"optimizer": functools.partial(torch.optim.SGD, lr=0.02)},
        r"optimizer.type AdamW \(now SGD\)",
    ),
    (
        {"optimizer": ADAMW},
        {"optimizer": functools.partial(ADAMW, weight_decay=0.3)},
        r"weight_decay 0.01 \(now 0.3\)",
    ),
    (
        {"optimizer": ADAMW},
        {"optimizer": functools.partial(ADAMW, betas=(0.8, 0.999))},
        r"betas\[0\] 0.9 \(now 0.8\)",
    ),
    ({}, {"accumulation": 2}, r"accumulation.max_steps 1 \(now 2\)"),
    (
        {"accumulation": AdaptiveAccumulation(0.5)},
        {"accumulation": AdaptiveAccumulation(1.5)},
        r"lam 0.5 \(now 1.5\)",
    ),
    ({}, {"max_grad_norm": None}, r"max_grad_norm 1.0 \(now None\)"),
    ({}, {"skip": "off"}, r"skip rows \(now off\)"),
    ({}, {"speed": "fast"}, "loss.delta 0.3 .*scorecard None"),
    (
        {"scorecard": Scorecard(N, spare=0.1)},
        {"scorecard": Scorecard(N, spare=0.2)},
        r"scorecard.spare 0.1 \(now 0.2\)",
    ),
    ({"lengths": [1] * N}, {"lengths": [*([1] * (N - 1)), 2]}, "other lengths"),
    ({}, {"lengths": [1] * N}, "other lengths"),
    ({}, {"loss": ASSoftmaxLoss(0.2)}, r"loss.delta 0.3 \(now 0.2\)"),
    ({}, {"loss": SoftmaxLoss()}, r"loss.name as-softmax \(now softmax\)"),
    ({}, {"loss": ASSoftmaxLoss(0.3, weight=torch.ones(3))}, "loss.weight None"),
    (
        {"loss": ASSoftmaxLoss(WarmupDelta(0.3, total_steps=24, share=0.1))},
        {"loss": ASSoftmaxLoss(WarmupDelta(0.3, total_steps=24, share=0.2))},
        r"loss.delta.share 0.1 \(now 0.2\)",
    ),
    (
        {"loss": ASSoftmaxLoss(WarmupDelta(AdaptiveDelta(), total_steps=24))},
        {"loss": ASSoftmaxLoss(WarmupDelta(AdaptiveDelta(won=0.6), total_steps=24))},
        r"loss.delta.after.won 0.5 \(now 0.6\)",
    ),
    ({}, {"data": other_data()}, "holds a run with other data;"),
    ({}, {"model": net(dropout=0.2)}, r"model.modules.2 Dropout\(0.1\) \(now Dropout\(0.2\)\)"),
    ({"epochs": 2}, {"epochs": 3}, r"epochs 2 \(now 3\)"),
    ({}, {"seed": 1}, r"seed 0 \(now 1\)"),
    ({}, {"forward": lambda model, batch: (model(batch[0]), batch[1])}, "forward forward .now <lambda>."),
    (
        {},
        {"evaluate": lambda _: 0.0, "patience": 1, "load_best": True},
        "patience None.*load_best False.*evaluates False",
    ),
]


@pytest.mark.parametrize(("before", "after", "message"), CHANGES)
def test_what_changed_is_named(
    before: dict[str, Any], after: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """It is refused; with ``resume="anyway"`` the run is resumed with the settings of now, and warns."""
    stopped(tmp_path, **before)
    with pytest.raises(ResumeError, match=rf'(?s){message}.*resume="anyway" to go on with what is set now'):
        loop(tmp_path, **{**before, **after}).run()
    with pytest.warns(ResumeWarning, match=message):
        record = loop(tmp_path, resume="anyway", **{**before, **after}).run()
    assert record.done


def test_the_same_settings_are_the_same(tmp_path: Path) -> None:
    """Made anew, every one of them; workers, device and how often is saved may change."""
    for before, _, _ in CHANGES:
        stopped(tmp_path, resume=False, **before)
    settings: dict[str, Any] = {"optimizer": ADAMW, "schedule": step_schedule(0.5), "lengths": [1] * N}
    stopped(tmp_path, resume=False, **settings)
    record = loop(tmp_path, save_every=3, log=print, **settings).run()
    assert record.totals["n_forward"] == 2 * N


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"batch_size": 4}, "batch_size 8"), ({"data": digits_like(N - 8)}, "samples 96")],
)
def test_some_things_cannot_change(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    stopped(tmp_path)
    with pytest.raises(ResumeError, match=rf"{message}.*resume=False to start anew$"):
        loop(tmp_path, resume="anyway", **settings).run()


@pytest.mark.filterwarnings("ignore::sparring.training.resume.ResumeWarning")
def test_another_model_does_not_fit(tmp_path: Path) -> None:
    stopped(tmp_path)
    for resume, message in (
        (True, r"model.tensors.0.weight float32 24×6 trained \(now float32 3×6"),
        ("anyway", "does not fit this run"),
    ):
        with pytest.raises(ResumeError, match=message):
            loop(tmp_path, resume=resume, model=nn.Sequential(nn.Linear(6, 3))).run()


def test_a_rate_that_was_changed_on_purpose_is_used(tmp_path: Path) -> None:
    """The optimizer's moments are kept, and the schedule is as far as the run is."""
    stopped(tmp_path)
    steps: list[dict[str, Any]] = []
    with pytest.warns(ResumeWarning, match=r"lr 0.02 \(now 0.2\)"):
        loop(tmp_path, resume="anyway", lr=0.2, log_step=steps.append).run()
    rates = linear_schedule(ADAMW(net().parameters(), lr=0.2), 24)
    expected = []
    for _ in range(24):
        expected.append(rates.get_last_lr()[0])
        rates.optimizer.step()
        rates.step()
    assert [step["step"] for step in steps] == list(range(8, 25))
    assert [step["lr"] for step in steps] == pytest.approx(expected[7:])


def test_more_epochs_on_purpose(tmp_path: Path) -> None:
    loop(tmp_path).run()
    with pytest.warns(ResumeWarning, match="epochs 2"):
        record = loop(tmp_path, epochs=5, resume="anyway").run()
    assert [epoch["epoch"] for epoch in record.epochs] == [0, 1, 2, 3, 4]


def test_resume_takes_three_values(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='resume must be True, False or "anyway"'):
        loop(tmp_path, resume="always")


# ------------------------------------------------------------ data


class Samples(Dataset[Any]):
    """Samples made by a function of their index."""

    def __init__(self, make: Any, n: int = N) -> None:
        self.make, self.n, self.reads = make, n, 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.make(index)


class Odd:
    """Neither hashable nor to be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value, self.myself = value, self

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    @property
    def bad(self) -> int:
        raise RuntimeError("no")


SAMPLES = [
    lambda i: {"text": f"text {i}", "labels": [i, None, 2.5, True]},
    lambda i: (torch.full((2, 3), float(i)).to(torch.bfloat16), torch.tensor(i)),
    lambda i: {"ids": torch.arange(i + 1), "inner": {"x": {i, "y"}, 3: (b"bytes", bytearray([i]))}},
    lambda i: torch.sparse_coo_tensor([[0]], [float(i)], (4,), check_invariants=True),
    lambda i: Odd(i),
    lambda i: torch.tensor([complex(i, 1)]).conj(),
    lambda i: ["\ud800", i],
]


@pytest.mark.parametrize("make", SAMPLES)
def test_other_samples_have_another_fingerprint(make: Any) -> None:
    whole = fingerprint(Samples(make))
    assert whole == fingerprint(Samples(make)) != RANDOM
    listed = fingerprint([make(i) for i in range(N)])
    assert listed == fingerprint([make(i) for i in range(N)])
    assert whole != fingerprint(Samples(lambda i: make(i + (i == N - 1))))
    assert listed != fingerprint([make(i + (i == 50)) for i in range(N)])
    assert whole != fingerprint(Samples(make, N + 1))


def test_numpy_and_images() -> None:
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    pixels = numpy.arange(12, dtype=numpy.uint8).reshape(2, 6)
    for make in (
        lambda p: p,
        lambda p: numpy.array([p.tolist(), "x"], dtype=object),
        lambda p: image.fromarray(p),
        lambda p: p.astype("float16")[::-1],
    ):
        assert digest_of(make(pixels)) == digest_of(make(pixels.copy())) != digest_of(make(pixels + 1))


def test_a_large_data_set_is_sampled() -> None:
    data = Samples(lambda i: i, 1_000_000)
    assert fingerprint(data) == fingerprint(Samples(lambda i: i, 1_000_000))
    assert data.reads == 64


def test_samples_that_raise_or_never_end() -> None:
    endless: list[Any] = []
    endless.append(endless)

    def make(index: int) -> Any:
        if index % 2:
            raise IndexError
        return endless

    assert fingerprint(Samples(make)) == fingerprint(Samples(make))


class Augmented(Samples):
    """Noise on every read; from torch's own generator, or from one that nobody else can seed."""

    def __init__(self, generator: torch.Generator | None) -> None:
        x, y = digits_like().tensors
        super().__init__(lambda i: (x[i] + torch.randn(6, generator=generator), y[i]))


def unseeded() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator


def test_random_samples_do_not_keep_a_run_from_going_on(tmp_path: Path) -> None:
    """From torch's generator the run still ends the same to the bit; the fingerprint itself draws nothing."""
    ends: list[dict[str, Tensor]] = []
    for folder in (None, tmp_path / "whole", tmp_path / "cut"):
        if folder == tmp_path / "cut":
            stopped(folder, data=Augmented(None))
        last = loop(folder, data=Augmented(None))  # type: ignore[arg-type]
        last.run()
        ends.append(last.model.state_dict())
    assert gap(ends[0], ends[1]) == gap(ends[0], ends[2]) == 0
    stopped(tmp_path / "own", data=Augmented(unseeded()))
    assert fingerprint(Augmented(unseeded())) == RANDOM
    assert loop(tmp_path / "own", data=Augmented(unseeded())).run().done
