"""Folders of images and sounds, and arrays."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import wavfile

from sparring.lab.datasets import DataError
from sparring.lab.kinds import get_kind
from sparring.lab.models.wav import sixteen_bits
from sparring.lab.readers.arrays import kind_of
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import open_task
from tests.lab.data import tone


def image(path: Path, colour: str, size: tuple[int, int] = (20, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def folder_of_images(root: Path, n: int = 12) -> Path:
    for colour in ("red", "blue"):
        for i in range(n):
            image(
                root / colour / f"{i}.png",
                f"#{'ff' if colour == 'red' else '00'}{i:02x}{'ff' if colour == 'blue' else '00'}",
            )
    return root


def opened(target: Path, **settings: Any) -> Any:
    return open_task(Config(str(target), **settings))


def test_a_folder_of_images_is_split_by_class(tmp_path: Path) -> None:
    task, data = opened(folder_of_images(tmp_path / "mine"))
    assert (task.name, task.kind.name, task.settings["augment"]) == ("mine", "image", "crop")
    assert (len(data.train), len(data.dev), len(data.test)) == (20, 2, 2)
    assert sorted(sample["label"] for sample in data.test) == ["blue", "red"]
    assert data.train[0]["image"].shape == (3, 64, 64)
    assert any("24 files in 2 folders" in note for note in data.notes)
    assert opened(tmp_path / "mine", image_size=16)[1].train[0]["image"].shape == (3, 16, 16)


def test_parts_as_given(tmp_path: Path) -> None:
    for part, n in (("train", 6), ("val", 3), ("test", 2)):
        folder_of_images(tmp_path / part, n)
    _, data = opened(tmp_path)
    assert (len(data.train), len(data.dev), len(data.test)) == (12, 6, 4)


def test_what_cannot_be_read_is_named_and_counted(tmp_path: Path) -> None:
    root = folder_of_images(tmp_path)
    (root / "red" / "torn.png").write_bytes((root / "red" / "0.png").read_bytes()[:40])
    (root / "blue" / "text.jpg").write_text("no image")
    (root / "red" / "notes.txt").write_text("left alone")
    (root / ".hidden").mkdir()
    _, data = opened(root)
    (note,) = [note for note in data.notes if "could not be read" in note]
    assert note.startswith("2 file(s)")
    assert "blue/text.jpg (" in note
    assert "red/torn.png (" in note
    assert len(data.train) + len(data.dev) + len(data.test) == 24


def test_images_are_cut_to_squares_whatever_their_form(tmp_path: Path) -> None:
    wide = Image.new("RGB", (40, 20), "red")
    wide.paste((0, 0, 255), (10, 0, 30, 20))  # the middle is blue
    for name, made in {
        "a.png": wide,
        "b.bmp": wide,
        "c.png": wide.convert("P"),
        "d.png": wide.convert("RGBA"),
        "e.tif": wide,
    }.items():
        made.save(tmp_path / name)
        tensor = get_kind("image").read_file(tmp_path / name, 8)["image"]
        assert tensor.dtype == torch.uint8
        assert tensor[:, 4, 4].tolist() == [0, 0, 255], name
        assert tensor[0].max() < 40, name


def test_one_class_or_none(tmp_path: Path) -> None:
    image(tmp_path / "one" / "only" / "1.png", "red")
    with pytest.raises(DataError, match="at least 2 classes are needed, got only"):
        opened(tmp_path / "one")
    image(tmp_path / "flat" / "1.png", "red")
    with pytest.raises(DataError, match="expected a folder for each class"):
        opened(tmp_path / "flat")


def folder_of_sounds(root: Path) -> Path:
    for pitch in (300, 900):
        (root / str(pitch)).mkdir(parents=True)
        for i in range(8):
            wavfile.write(root / str(pitch) / f"{i}.wav", 8000, tone(pitch, 0.1 + i / 100).numpy())
    return root


def test_a_folder_of_sounds(tmp_path: Path) -> None:
    root = folder_of_sounds(tmp_path)
    (root / "300" / "torn.wav").write_bytes(b"RIFF")
    wavfile.write(root / "300" / "empty.wav", 8000, np.zeros(0, dtype=np.int16))
    task, data = opened(root)
    assert (task.kind.name, data.labels, data.train[0]["rate"]) == ("audio", ["300", "900"], 8000)
    assert any(note.startswith("2 file(s) could not be read") for note in data.notes)
    assert data.train[0]["audio"].dtype == torch.int16


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "stereo"])
def test_every_form_of_wav_is_the_same_sound(dtype: str, tmp_path: Path) -> None:
    wave = np.sin(np.arange(400) / 9) * 0.5
    values = {
        "uint8": (wave * 128 + 128).astype(np.uint8),
        "int16": (wave * 32767).astype(np.int16),
        "int32": (wave * (2**31 - 1)).astype(np.int32),
        "float32": wave.astype(np.float32),
        "stereo": np.stack([wave * 2, np.zeros(400)], 1).astype(np.float32),
    }[dtype]
    wavfile.write(tmp_path / "a.wav", 8000, values)
    samples = sixteen_bits(wavfile.read(tmp_path / "a.wav")[1])
    assert np.abs(samples.numpy() / 32767 - wave).max() < (0.01 if dtype == "uint8" else 1e-4)


def test_sounds_of_one_length_are_rows(tmp_path: Path) -> None:
    clips = np.stack([tone(300 + 600 * (i % 2) + i, 0.1).numpy() for i in range(20)])
    labels = np.arange(20) % 2
    forms = {
        "rows": {"audio": clips},
        "one row": {"audio": clips.reshape(-1), "offsets": np.arange(21) * clips.shape[1]},
    }
    fingerprints = set()
    for name, arrays in forms.items():
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "train.npz", labels=labels, **arrays)
        fingerprints.add(opened(tmp_path / name)[1].fingerprint)
    assert len(fingerprints) == 1


def test_arrays(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "train.npz",
        images=np.arange(360, dtype=np.uint8).reshape(10, 6, 6),
        labels=np.arange(10) % 2,
    )
    np.savez(tmp_path / "test.npz", images=np.ones((4, 6, 6), np.uint8), labels=np.arange(4) % 2)
    (tmp_path / "meta.json").write_text(json.dumps({"label_names": ["no", "yes"]}))
    assert str(kind_of(tmp_path)) == "image"
    _, data = opened(tmp_path)
    assert data.labels == ["no", "yes"]
    assert data.train[0]["image"].shape == (1, 6, 6)
    np.savez(tmp_path / "test.npz", images=np.ones((4, 6, 6), np.uint8), labels=np.full(4, 7))
    with pytest.raises(
        DataError, match=r"test\.npz: label 7 of sample 0 has no name in meta\.json, which has 2"
    ):
        opened(tmp_path)
    np.savez(tmp_path / "test.npz", images=np.ones((4, 6, 6), np.uint8), labels=np.zeros(3, int))
    with pytest.raises(DataError, match="4 samples, but 3 labels"):
        opened(tmp_path)
    (tmp_path / "test.npz").write_bytes(b"no arrays")
    with pytest.raises(DataError, match=r"test\.npz: not to be read as arrays"):
        opened(tmp_path)
