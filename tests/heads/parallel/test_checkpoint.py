"""Checkpoints: saved with p ranks and loaded with q, read as plain tensors, and whole or not there at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from sparring.heads.parallel import Checkpoints, manifest
from tests.heads.parallel.launch import ENVIRONMENT, ROOT, run, torchrun


def weights(folder: Path, n: int) -> list[torch.Tensor]:
    return [each.detach() for each in torch.load(folder / f"weights-{n}.pt", weights_only=False)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps on three ranks."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(3, "tests.heads.parallel.saving", str(folder), "0", "6")
    return folder


def half_way(undisturbed: Path, folder: Path) -> None:
    """As it was after three steps."""
    shutil.copytree(Checkpoints(undisturbed).path(3), Checkpoints(folder).path(3))


def test_saved_with_three_ranks_and_gone_on_with_by_two(undisturbed: Path, tmp_path: Path) -> None:
    assert Checkpoints(undisturbed).steps() == [3, 4, 5, 6]  # the last four stay
    half_way(undisturbed, tmp_path)
    run(2, "tests.heads.parallel.saving", str(tmp_path), "3", "6")
    for a, b in zip(weights(undisturbed, 3), weights(tmp_path, 2), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_is_read_as_one_plain_tensor(undisturbed: Path) -> None:
    from torch.distributed.checkpoint.state_dict_loader import load

    state = {"model": {"head.weight": torch.empty(19, 6), "head.bias": torch.empty(19)}}
    with pytest.warns(UserWarning, match="single process"):
        load(state, checkpoint_id=Checkpoints(undisturbed).path(6))
    assert torch.equal(state["model"]["head.weight"], weights(undisturbed, 3)[2])


def test_a_rank_that_dies_while_saving_loses_nothing_of_the_last_one(
    undisturbed: Path, tmp_path: Path
) -> None:
    half_way(undisturbed, tmp_path)
    command = [*torchrun(3), "-m", "tests.heads.parallel.saving", str(tmp_path), "3", "3", "die"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode != 0
    assert list(tmp_path.glob("*.part"))  # it was under way
    assert Checkpoints(tmp_path).steps() == [3]
    run(3, "tests.heads.parallel.saving", str(tmp_path), "3", "6")
    assert not list(tmp_path.glob("*.part"))
    for a, b in zip(weights(undisturbed, 3), weights(tmp_path, 3), strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-6, atol=1e-7
        )  # DDP sums three ranks in another order once it has seen a backward


def test_all_ranks_leave_a_damaged_checkpoint_for_the_same_one_before(
    undisturbed: Path, tmp_path: Path
) -> None:
    """One file of one rank has a flipped bit; the other rank's files are good."""
    for step in (5, 6):
        shutil.copytree(Checkpoints(undisturbed).path(step), Checkpoints(tmp_path).path(step))
    damaged = sorted(Checkpoints(tmp_path).path(6).glob("*.distcp"))[-1]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    run(
        2, "tests.heads.parallel.saving", str(tmp_path), "5", "6"
    )  # each rank looks whether it began with step 5
    for a, b in zip(weights(undisturbed, 3), weights(tmp_path, 2), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert manifest.verify(Checkpoints(tmp_path).path(6)) is None  # it was saved again


def test_in_one_process(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = Checkpoints(tmp_path / "deep" / "folder", keep=1)
    assert checkpoints.load(model, optimizer) == 0
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = checkpoints.save(5, model, optimizer)
    assert path.name == "step-00000005"
    kept = [each.detach().clone() for each in model.parameters()]
    optimizer.step()
    assert checkpoints.load(model, optimizer) == 5
    assert all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=True))
    assert float(next(iter(optimizer.state.values()))["step"]) == 1
    model(torch.ones(1, 3)).sum().backward()
    fresh = torch.optim.AdamW(model.parameters())
    assert checkpoints.load(model, fresh) == 5  # although there were gradients
    assert len(fresh.state) == 2
    checkpoints.save(6, model, optimizer)
    assert checkpoints.steps() == [6]
    with pytest.raises(FileNotFoundError, match="no checkpoint of step 5; there are 6"):
        checkpoints.load(model, optimizer, step=5)
    with pytest.raises(ValueError, match="keep must be a whole number"):
        Checkpoints(tmp_path, keep=0)


def test_a_crash_while_a_step_is_saved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, checkpoints = nn.Linear(3, 2), Checkpoints(tmp_path, keep=1)
    checkpoints.save(5, model)
    kept = model.weight.detach().clone()
    real, calls = os.replace, []

    def dies(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:  # the old one has been put aside, the new one is not in its place
            raise KeyboardInterrupt
        real(source, target)

    with torch.no_grad():
        model.weight.zero_()
    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(5, model)
    monkeypatch.setattr(os, "replace", real)
    assert checkpoints.steps() == []
    assert checkpoints.load(model) == 5
    assert torch.equal(model.weight, kept)
    checkpoints.save(5, model)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_going_back_drops_what_came_later(tmp_path: Path) -> None:
    model, checkpoints, told = nn.Linear(3, 2), Checkpoints(tmp_path), {"seen": torch.zeros(1)}
    for step in (100, 200):
        checkpoints.save(step, model, told={"seen": torch.full((1,), float(step))})
    assert checkpoints.load(model, step=100, told=told) == 100
    assert told["seen"].item() == 100
    assert checkpoints.save(110, model).is_dir()
    assert checkpoints.steps() == [100, 110]
    with pytest.raises(ValueError, match="epoch: expected a dict or a tensor, which can be filled; got int"):
        checkpoints.load(model, epoch=0)
