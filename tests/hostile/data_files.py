"""Small valid data files of every format that the lab reads, for the tests that damage them."""

import io
import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from sparring.lab.datasets import Data, Where, get_task
from sparring.lab.errors import UserError
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import open_task


def rows(n: int = 40) -> list[dict[str, str]]:
    return [
        {"text": f"it is {('bad', 'good')[i % 2]}, number {i}", "label": ("down", "up")[i % 2]}
        for i in range(n)
    ]


def table(separator: str) -> bytes:
    lines = ["text" + separator + "label", *(f'"{row["text"]}"{separator}{row["label"]}' for row in rows())]
    return "\n".join(lines).encode()


def lines() -> bytes:
    return "\n".join(map(json.dumps, rows())).encode()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def images(dtype: str = "uint8") -> dict[str, Any]:
    return {"images": np.arange(40 * 16).reshape(40, 4, 4).astype(dtype), "labels": np.arange(40) % 2}


def sounds() -> dict[str, Any]:
    wave = (np.sin(np.arange(4000) / 9) * 9000).astype(np.int16)
    return {"audio": wave, "offsets": np.arange(0, 4001, 100), "labels": np.arange(40) % 2}


def wav(rate: int = 8000, n: int = 200, pitch: int = 9) -> bytes:
    file = io.BytesIO()
    wavfile.write(file, rate, (np.sin(np.arange(n) / pitch) * 9000).astype(np.int16))
    return file.getvalue()


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (6, 6), (value, value, 9)).save(file, "PNG")
    return file.getvalue()


def pickles(**parts: Any) -> dict[str, bytes]:
    """The three files of CIFAR-100, or others in their place."""
    samples = {b"data": np.zeros((12, 3072), np.uint8), b"fine_labels": [0, 1] * 6}
    content = {"train": samples, "test": samples, "meta": {b"fine_label_names": [b"apple", b"bear"]}, **parts}
    return {
        name: value if isinstance(value, bytes) else pickle.dumps(value, protocol=2)
        for name, value in content.items()
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def open_path(path: Path) -> Data:
    """A user's data, as ``sparring run PATH`` opens it."""
    return open_task(Config(str(path), image_size=8 if path.is_dir() else None))[1]


def published(name: str) -> Callable[[Path], Data]:
    return lambda folder: get_task(name).load(Where(folder, hub=False))


CLINC = {part: [["hi", "greet"], ["bye", "leave"]] for part in ("train", "val", "test")}
EURLEX = [{"text": "a law", "labels": ["x"], "data_type": part} for part in ("train", "dev", "test")]
ESSAY = """<ESSAY><TEXT><PASSAGE id="1">建慷</PASSAGE></TEXT>
<MISTAKE id="1" location="1"><WRONG>建慷</WRONG><CORRECTION>健康</CORRECTION></MISTAKE></ESSAY>
"""
META = b'{"sample_rate": 8000, "label_names": ["no", "yes"]}'
CIFAR = {f"cifar100/{name}": raw for name, raw in pickles().items()}
WAVS = {f"{k}/{i}.wav": wav(n=200 + i, pitch=5 + k) for k in range(2) for i in range(4)}
PNGS = {f"{k}/{i}.png": png(9 * i + k) for k in range(2) for i in range(4)}
RECORDINGS = {f"fsdd/recordings/{k}_a_{i}.wav": wav() for k in range(2) for i in (0, 5, 11)}

Reader = Callable[[Path], Data]


def table_of(name: str) -> Reader:
    return lambda folder: open_path(folder / name)


def refused(read: Callable[[], Any], *words: str) -> None:
    begin = time.process_time()
    with pytest.raises(UserError) as error:
        read()
    assert all(word in str(error.value) for word in words), str(error.value)
    assert len(str(error.value)) < 1000
    assert time.process_time() - begin < 10
