"""Checkpoints: saved by three ranks and loaded by two or one, complete or absent, verified."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from sparring.heads.parallel import Checkpoints
from sparring.heads.parallel.checkpoint import verify_manifest
from tests.processes import run_ranks

SCRIPT = "tests.heads.parallel.checkpoint_training"


def weights(folder: Path, n_ranks: int) -> list[torch.Tensor]:
    tensors = torch.load(folder / f"weights-{n_ranks}.pt", weights_only=False)
    return [tensor.detach() for tensor in tensors]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps on three ranks."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_ranks(3, SCRIPT, folder, 0, 6)
    return folder


def test_a_checkpoint_is_read_as_one_plain_tensor(undisturbed: Path) -> None:
    from torch.distributed.checkpoint.state_dict_loader import load

    state = {"model": {"head.weight": torch.empty(19, 6), "head.bias": torch.empty(19)}}
    with pytest.warns(UserWarning, match="single process"):
        load(state, checkpoint_id=Checkpoints(undisturbed).path(6))
    assert torch.equal(state["model"]["head.weight"], weights(undisturbed, 3)[2])


def test_two_ranks_continue_after_a_crash_of_three(undisturbed: Path, tmp_path: Path) -> None:
    """One of three ranks dies while saving, and a file of the next checkpoint has a flipped bit.

    All of two ranks continue from the last good checkpoint, to the weights of the undisturbed training.
    """
    source, checkpoints = Checkpoints(undisturbed), Checkpoints(tmp_path)
    assert source.steps() == [3, 4, 5, 6]  # the last four are kept
    shutil.copytree(source.path(3), checkpoints.path(3))
    run_ranks(3, SCRIPT, tmp_path, 3, 3, "die", fails=True)
    assert list(tmp_path.glob("*.part"))  # the checkpoint was being written
    assert checkpoints.steps() == [3]

    shutil.copytree(source.path(4), checkpoints.path(4))
    damaged = sorted(checkpoints.path(4).glob("*.distcp"))[-1]  # a file of one rank
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    run_ranks(2, SCRIPT, tmp_path, 3, 6)  # each rank asserts that it begins with step 3
    assert not list(tmp_path.glob("*.part"))
    for a, b in zip(weights(undisturbed, 3), weights(tmp_path, 2), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert verify_manifest(checkpoints.path(4)) is None  # it was saved again


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
    saved = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.step()
    assert checkpoints.load(model, optimizer) == 5
    assert all(torch.equal(a, b) for a, b in zip(saved, model.parameters(), strict=True))
    assert float(next(iter(optimizer.state.values()))["step"]) == 1
    model(torch.ones(1, 3)).sum().backward()
    fresh = torch.optim.AdamW(model.parameters())
    assert checkpoints.load(model, fresh) == 5  # although there were gradients
    assert len(fresh.state) == 2
    checkpoints.save(6, model, optimizer)
    assert checkpoints.steps() == [6]
    with pytest.raises(FileNotFoundError, match="no checkpoint of step 5; available: 6"):
        checkpoints.load(model, optimizer, step=5)
    with pytest.raises(ValueError, match="keep must be a whole number"):
        Checkpoints(tmp_path, keep=0)


def test_a_crash_while_a_step_is_saved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, checkpoints = nn.Linear(3, 2), Checkpoints(tmp_path, keep=1)
    checkpoints.save(5, model)
    saved = model.weight.detach().clone()
    replace, calls = os.replace, []

    def interrupted(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:  # the old checkpoint has been moved away, the new one is not in place yet
            raise KeyboardInterrupt
        replace(source, target)

    with torch.no_grad():
        model.weight.zero_()
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(5, model)
    monkeypatch.setattr(os, "replace", replace)
    assert checkpoints.steps() == []
    assert checkpoints.load(model) == 5
    assert torch.equal(model.weight, saved)
    checkpoints.save(5, model)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_saving_an_earlier_step_removes_later_ones(tmp_path: Path) -> None:
    model, checkpoints = nn.Linear(3, 2), Checkpoints(tmp_path)
    progress = {"step": torch.zeros(1)}
    for step in (100, 200):
        checkpoints.save(step, model, progress={"step": torch.full((1,), float(step))})
    assert checkpoints.load(model, step=100, progress=progress) == 100
    assert progress["step"].item() == 100
    assert checkpoints.save(110, model).is_dir()
    assert checkpoints.steps() == [100, 110]
    with pytest.raises(ValueError, match="epoch: expected a dict or a tensor to fill, got int"):
        checkpoints.load(model, epoch=0)
