"""Damaged, truncated and foreign checkpoints are noticed, and the one before is used instead."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sparring.files import CheckpointWarning, changed_file
from sparring.heads.parallel import Checkpoints
from sparring.training import checkpoint
from sparring.training.resume import ResumeError
from tests.hostile.size import FACTOR
from tests.training.toy import gap, run

STATE = {"weight": torch.arange(6.0), "n": 3, "names": ["a", "b"]}


def flip(path: Path, bit: int) -> None:
    """In place."""
    with path.open("r+b", buffering=0) as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(path: Path) -> bool:
    try:
        checkpoint.read(path)
    except ValueError:
        return True
    return False


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Every 13th, so that every position in a byte is covered; and all bits of the checksum's line."""
    checkpoint.save(tmp_path, STATE)
    path = tmp_path / checkpoint.NAME
    n_bits = 8 * path.stat().st_size
    unnoticed = []
    for bit in {
        *range(0, n_bits, max(1, 13 // FACTOR)),
        *range(n_bits - 8 * checkpoint.TRAILER_SIZE, n_bits),
    }:
        flip(path, bit)
        if not refused(path):
            unnoticed.append(bit)
        flip(path, bit)
    assert unnoticed == []
    assert torch.equal(checkpoint.read(path)["weight"], STATE["weight"])


def test_every_length_is_noticed(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, STATE)
    path = tmp_path / checkpoint.NAME
    whole = path.read_bytes()
    for content in (whole + b"\n", whole + whole[-checkpoint.TRAILER_SIZE :], b""):
        path.write_bytes(content)
        assert refused(path)
    path.write_bytes(whole)
    for length in range(len(whole) - 1, 0, -max(1, 11 // FACTOR)):
        os.truncate(path, length)
        assert refused(path)


def test_a_flipped_bit_falls_back_to_the_one_before_and_ends_the_same(tmp_path: Path) -> None:
    whole, _ = run(folder=tmp_path)
    path = tmp_path / checkpoint.NAME
    content, draw = path.read_bytes(), random.Random(0)
    previous = (tmp_path / checkpoint.PREVIOUS).read_bytes()
    for _ in range(2 * FACTOR):
        path.write_bytes(flipped(content, draw.randrange(8 * len(content))))
        (tmp_path / checkpoint.PREVIOUS).write_bytes(previous)
        with pytest.warns(CheckpointWarning, match=r"goes on from checkpoint-previous.pt, the one before"):
            again, record = run(folder=tmp_path)
        assert gap(whole, again) == 0
        assert len(record.epochs) == 4
        assert (tmp_path / checkpoint.DAMAGED).exists()
        assert path.read_bytes() != (tmp_path / checkpoint.DAMAGED).read_bytes()


def test_a_kill_after_the_fallback_does_not_lose_the_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The damaged file must not take the place of the good one before the next is written."""
    for n in (1, 2):
        checkpoint.save(tmp_path, {"n": n})
    path = tmp_path / checkpoint.NAME
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning):
        assert checkpoint.load(tmp_path) == (checkpoint.PREVIOUS, {"n": 1})
    real = checkpoint.os.replace

    def dies(source: Path, target: Path) -> None:
        if Path(target).name == checkpoint.NAME:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(checkpoint.os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, {"n": 2})
    monkeypatch.setattr(checkpoint.os, "replace", real)
    assert checkpoint.load(tmp_path) == (checkpoint.PREVIOUS, {"n": 1})


FOREIGN: list[Any] = [
    [1, 2],
    torch.zeros(3),
    {},
    {"weight": torch.zeros(2)},
    nn.Linear(2, 2).state_dict(),
    {"identity": [], "processes": [], "n_done": 0, "won_share": 0.0, "best": None, "model": {}},
    None,
    7,
]


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("state", FOREIGN, ids=lambda state: type(state).__name__)
def test_a_foreign_checkpoint_is_a_clear_error(state: Any, sealed: bool, tmp_path: Path) -> None:
    """With a checksum of ours or as torch.save writes it."""
    if sealed:
        checkpoint.save(tmp_path, state)
    else:
        torch.save(state, tmp_path / checkpoint.NAME)
    with pytest.raises(ResumeError, match=r"checkpoint.pt.*resume=False to start anew"):
        run(folder=tmp_path)
    run(folder=tmp_path, resume=False, epochs=1)


def test_a_checkpoint_with_broken_parts_is_a_clear_error(tmp_path: Path) -> None:
    """The right keys, and anything in them."""
    run(folder=tmp_path, epochs=1)
    state, draw = checkpoint.read(tmp_path / checkpoint.NAME), random.Random(0)
    junk = [None, [], {}, "x", torch.zeros(2), [{}], {"identity": 1}]
    for name in state:
        if name == "best":  # None, or weights that are looked at in the end
            continue
        broken = {
            **state,
            name: draw.choice([value for value in junk if type(value) is not type(state[name])]),
        }
        checkpoint.save(tmp_path, broken)
        with pytest.raises(ResumeError, match="resume=False to start anew"):
            run(folder=tmp_path, epochs=1)


def test_code_in_a_checkpoint_does_not_run(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    checkpoint.save(tmp_path, {"model": Attack()})
    with pytest.raises(ResumeError, match="no checkpoint can be read"):
        run(folder=tmp_path)
    assert not (tmp_path / "ran").exists()


# ------------------------------------------------------------ folders of torch.distributed.checkpoint


def saved(folder: Path) -> tuple[Checkpoints, nn.Module]:
    model, checkpoints = nn.Linear(3, 2), Checkpoints(folder)
    for step in (1, 2):
        with torch.no_grad():
            model.weight.fill_(step)
        checkpoints.save(step, model)
    return checkpoints, model


def test_flipped_bits_in_any_file_of_a_folder_fall_back_to_the_step_before(tmp_path: Path) -> None:
    checkpoints, model = saved(tmp_path)
    draw = random.Random(0)
    files = sorted(path for path in checkpoints.path(2).iterdir() if path.is_file())
    assert len(files) >= 3  # tensors, metadata, manifest
    for path in files:
        whole = path.read_bytes()
        for _ in range(12 * FACTOR):
            path.write_bytes(flipped(whole, draw.randrange(8 * len(whole))))
            with pytest.warns(CheckpointWarning, match=r"step-00000002: .*goes on from step 1"):
                assert checkpoints.load(model) == 1
            assert bool((model.weight == 1).all())
        path.write_bytes(whole)
    assert checkpoints.load(model) == 2
    assert bool((model.weight == 2).all())


def test_missing_further_and_unreadable_files_of_a_folder(tmp_path: Path) -> None:
    checkpoints, model = saved(tmp_path)
    folder = checkpoints.path(2)
    (folder / "more").write_text("who wrote this?")
    with pytest.warns(CheckpointWarning, match="more is not in its manifest"):
        assert checkpoints.load(model) == 1
    (folder / "more").unlink()
    manifest = folder / "manifest.json"
    whole = manifest.read_text()
    for content in (
        "",
        "[]",
        "{}",
        '{"sha256": 3}',
        '{"sha256": {"a": 1}}',
        "[" * 100_000,
        whole[:-20],
        "\udcff",
    ):
        manifest.write_text(content, errors="surrogateescape")
        with pytest.warns(CheckpointWarning, match=r"step-00000002"):
            assert checkpoints.load(model) == 1
    with pytest.raises(ValueError, match=r"step-00000002: .*verify=False"):
        checkpoints.load(model, step=2)
    assert checkpoints.load(model, step=2, verify=False) == 2
    manifest.unlink()
    (checkpoints.path(1) / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"no checkpoint can be read: .*step-00000002.*step-00000001"):
        checkpoints.load(model)


def test_the_payload_is_what_torch_save_writes(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, STATE)
    content = (tmp_path / checkpoint.NAME).read_bytes()[: -checkpoint.TRAILER_SIZE]
    assert torch.load(io.BytesIO(content), weights_only=True)["names"] == ["a", "b"]


@pytest.mark.parametrize("name", ["/dev/zero", "../outside", "a/../../outside", "a\0b", "pipe", "folder"])
def test_names_in_a_manifest_stay_inside_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret")
    os.mkfifo(folder / "pipe")  # reading it would wait for ever
    assert changed_file(folder, {name: "0" * 64}) is not None
