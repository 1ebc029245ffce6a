"""Checkpoint folders are read without running code from them, even if the checksums are right."""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.metadata import Metadata

from sparring.heads.parallel import Checkpoints
from sparring.heads.parallel.checkpoint import verify_manifest, write_manifest
from sparring.heads.parallel.safe_reader import UntrustedCheckpointError, read_metadata


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, dtype=torch.float32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    extra = {
        "epoch": 3,
        "name": "a",
        "rates": [0.1, 0.2],
        "nothing": None,
        "half": torch.ones(3, dtype=torch.bfloat16),
    }
    Checkpoints(tmp_path).save(3, *trained(), extra=extra)
    return tmp_path


class Runs:
    """Unpickled, it creates a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def plant(file: Path, content: bytes) -> None:
    """A file in place of a checkpoint's, with its checksum: what refuses it then is the reader."""
    file.write_bytes(content)
    write_manifest(file.parent)
    assert verify_manifest(file.parent) is None


def test_what_was_saved_is_loaded(saved: Path) -> None:
    model, optimizer = trained()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    extra: dict[str, Any] = {
        "epoch": 0,
        "name": "",
        "rates": [0.0, 0.0],
        "nothing": 1,
        "half": torch.zeros(3, dtype=torch.bfloat16),
    }
    assert Checkpoints(saved).load(model, optimizer, extra=extra) == 3
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trained()[0].parameters(), strict=True))
    assert (extra["epoch"], extra["name"], extra["rates"], extra["nothing"]) == (3, "a", [0.1, 0.2], None)
    assert extra["half"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("verify", [True, False])
def test_metadata_that_would_run_a_command_is_refused(saved: Path, tmp_path: Path, verify: bool) -> None:
    file, mark = saved / "step-00000003" / ".metadata", tmp_path / "mark"
    metadata = pickle.loads(file.read_bytes())
    metadata.planner_data = Runs(mark)
    for hostile in (metadata, Runs(mark), [Runs(mark)], {"a": Runs(mark)}):
        plant(file, pickle.dumps(hostile))
        with pytest.raises(
            UntrustedCheckpointError,
            match=r"\.metadata: it asks for (posix|nt)\.system.*nothing of this one was run",
        ):
            Checkpoints(saved).load(*trained(), verify=verify)
    assert not mark.exists()
    pickle.loads(file.read_bytes())
    assert mark.exists(), "pickle would have run it"


@pytest.mark.parametrize("content", ["metadata of nothing", 3, None])
def test_other_pickles_are_refused(saved: Path, content: Any) -> None:
    plant(saved / "step-00000003" / ".metadata", pickle.dumps(content))
    with pytest.raises(ValueError, match="expected checkpoint metadata, got"):
        Checkpoints(saved).load(*trained())


def test_a_pickle_cannot_change_a_class(tmp_path: Path) -> None:
    """BUILD with a pair of states sets attributes of whatever is on the stack."""
    hostile = b"ctorch.distributed.checkpoint.metadata\nMetadata\n(N}(Vplanner_data\nK\x07utb."
    (tmp_path / ".metadata").write_bytes(hostile)
    with pytest.raises(UntrustedCheckpointError, match="it sets attributes of"):
        read_metadata(tmp_path / ".metadata")
    assert Metadata.planner_data is None


@pytest.mark.parametrize("name", ["../other.distcp", "/etc/passwd", "", ".."])
def test_files_outside_the_folder_are_refused(saved: Path, name: str) -> None:
    file = saved / "step-00000003" / ".metadata"
    metadata = pickle.loads(file.read_bytes())
    next(iter(metadata.storage_data.values())).relative_path = name
    plant(file, pickle.dumps(metadata))
    with pytest.raises(UntrustedCheckpointError, match="outside its folder"):
        Checkpoints(saved).load(*trained())


def test_damaged_metadata_is_named(saved: Path) -> None:
    file = saved / "step-00000003" / ".metadata"
    whole = file.read_bytes()
    for content in (b"", b"\x80", whole[: len(whole) // 2], b"\xff" * 100):
        plant(file, content)
        with pytest.raises(ValueError, match=r"\.metadata: damaged"):
            Checkpoints(saved).load(*trained())


@pytest.mark.parametrize("verify", [True, False])
def test_data_that_would_run_a_command_is_refused(saved: Path, tmp_path: Path, verify: bool) -> None:
    """Entries that are no tensors: torch reads them with weights_only=False."""
    folder, mark = saved / "step-00000003", tmp_path / "mark"
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for index, info in metadata.storage_data.items():
        if index.fqn == "extra.epoch":
            buffer = io.BytesIO()
            torch.save(Runs(mark), buffer)
            (folder / "hostile.distcp").write_bytes(buffer.getvalue())
            info.relative_path = "hostile.distcp"
            info.offset, info.length = 0, len(buffer.getvalue())
    plant(folder / ".metadata", pickle.dumps(metadata))
    with pytest.raises(
        UntrustedCheckpointError,
        match=r"step-00000003: extra\.epoch holds more than tensors and plain values",
    ):
        Checkpoints(saved).load(*trained(), extra={"epoch": 0}, verify=verify)
    assert not mark.exists()
    torch.load(folder / "hostile.distcp", weights_only=False)
    assert mark.exists(), "torch would have run it"
