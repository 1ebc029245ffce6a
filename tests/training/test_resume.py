"""Stop at any point, continue, and end the same to the bit. ``hostile/test_kills.py`` kills processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparring import ASSoftmaxLoss
from sparring.backward.skipper import ForwardResult, Skipper
from sparring.files import CheckpointWarning
from sparring.training.batches import Batch
from tests.training.toy import gap, run


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(
            a.nan_to_num(9.0) if a.is_floating_point() else a,
            b.nan_to_num(9.0) if b.is_floating_point() else b,
        )
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(
            same(a[key], b[key]) for key in a if key not in ("seconds", "cpu_seconds")
        )
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list) else bool(a == b)


@pytest.mark.parametrize("seconds", [0.0, 1000.0, None])
def test_time_passes_and_it_is_saved(tmp_path: Path, seconds: float | None) -> None:
    """In the middle of an epoch, as soon as a save would not take more than a twentieth of the time."""

    def log_step(entry: dict[str, Any]) -> None:
        time.sleep(0.2)
        if entry["step"] == 7:
            raise RuntimeError("power cut")

    whole = run(folder=tmp_path / "whole", epochs=2)
    with pytest.raises(RuntimeError, match="power cut"):
        run(folder=tmp_path / "cut", epochs=2, save_seconds=seconds, log_step=log_step)
    assert (tmp_path / "cut" / "checkpoint.pt").exists() == (seconds == 0.0)
    again = run(folder=tmp_path / "cut", epochs=2)
    assert gap(again[0], whole[0]) == 0.0


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first, record = run(folder=tmp_path)
    again, restored = run(folder=tmp_path)
    assert gap(first, again) == 0
    assert restored.totals == record.totals
    with pytest.raises(
        ValueError,
        match=r"holds a run with batch_size 8 \(now 4\); use another folder, or resume=False to start anew$",
    ):
        run(folder=tmp_path, batch_size=4)
    anew, _ = run(folder=tmp_path, resume=False)
    assert gap(first, anew) == 0


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    first, _ = run(folder=tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(b"half a file")
    with pytest.warns(
        CheckpointWarning, match="no checkpoint of this program; the run goes on from checkpoint-previous.pt"
    ):
        again, record = run(folder=tmp_path)
    assert gap(first, again) == 0
    assert len(record.epochs) == 4
    (tmp_path / "checkpoint.pt").write_bytes(b"half a file")
    (tmp_path / "checkpoint-previous.pt").write_bytes(b"another")
    with pytest.raises(ValueError, match=r"no checkpoint can be read.*resume=False to start anew"):
        run(folder=tmp_path)


@pytest.mark.parametrize("won", [True, False])
def test_two_passes_draw_no_numbers_for_skipped_samples(won: bool) -> None:
    """To find the parameters that a backward pass would reach must not move the generator."""
    model, loss = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train(), ASSoftmaxLoss(0.3)
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2) * 9)
        model[0].bias.zero_()

    def compute(batch: Batch) -> ForwardResult:
        x, y = batch.data
        logits = model(x)
        return ForwardResult(logits, y, loss.rows(logits, y), len(batch.indices))

    x, y = torch.tensor([[1.0, 0.0]] * 4), torch.full((4,), 0 if won else 1)
    skipper, before = Skipper(model, "two-pass"), torch.get_rng_state()
    step = skipper.forward(compute, Batch((x, y), torch.arange(4)), Batch.select)
    assert torch.equal(torch.get_rng_state(), before) == won
    assert skipper.backward(step, 1.0) == (0 if won else 4)
    assert all(
        parameter.grad is not None and bool((parameter.grad == 0).all()) == won
        for parameter in model.parameters()
    )
