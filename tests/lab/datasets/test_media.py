"""The publishers' forms of CIFAR-100 and of the spoken digits."""

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.datasets.media.cifar100 import ArrayUnpickler, samples
from tests.lab.data import tone


def test_cifar_packed_and_unpacked(tmp_path: Path) -> None:
    pixels = np.arange(4 * 3072, dtype=np.int64).reshape(4, 3072).astype(np.uint8)
    part = {b"data": pixels, b"fine_labels": [0, 1, 1, 0], b"coarse_labels": [0] * 4}
    meta = {b"fine_label_names": [b"apple", b"bear"], b"coarse_label_names": [b"x"]}
    root = tmp_path / "cifar100"
    root.mkdir()
    with tarfile.open(root / "cifar-100-python.tar.gz", "w:gz") as archive:
        for name, value in {"train": part, "test": part, "meta": meta}.items():
            raw = pickle.dumps(value, protocol=2)
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    packed = get_task("cifar100").load(Where(tmp_path, hub=False))
    with tarfile.open(root / "cifar-100-python.tar.gz") as archive:
        archive.extractall(root, filter="data")
    (root / "cifar-100-python.tar.gz").unlink()
    unpacked = get_task("cifar100").load(Where(tmp_path, hub=False))
    for data in (packed, unpacked):
        assert (len(data.test), data.labels) == (4, ["apple", "bear"])
        assert torch.equal(data.test[1]["image"], torch.from_numpy(pixels[1].reshape(3, 32, 32)))
        assert [sample["label"] for sample in data.test] == ["apple", "bear", "bear", "apple"]


def test_a_pickle_as_python_2_wrote_it() -> None:
    """The publisher's own: byte strings everywhere, opcode by opcode."""
    pixels = bytes(i % 251 for i in range(3072))
    raw = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + pixels
        + b"tbU\x0bfine_labels]K\x01au."
    )
    (sample,) = samples(ArrayUnpickler(io.BytesIO(raw), encoding="bytes").load(), ["apple", "bear"])
    assert sample["label"] == "bear"
    assert bytes(sample["image"].flatten().tolist()) == pixels


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match="it wants to run"):
        ArrayUnpickler(io.BytesIO(pickle.dumps(Path("x")))).load()
    root = tmp_path / "cifar100"
    root.mkdir()
    for name in ("train", "test", "meta"):
        (root / name).write_bytes(pickle.dumps({b"fine_label_names": Path("x")}))
    with pytest.raises(DataError, match="not the publisher's pickles: it wants to run"):
        get_task("cifar100").load(Where(tmp_path, hub=False))


def test_spoken_digits(tmp_path: Path) -> None:
    root = tmp_path / "fsdd" / "recordings"
    root.mkdir(parents=True)
    for digit in range(2):
        for index in (0, 4, 5, 9, 10, 49):
            wavfile.write(root / f"{digit}_jackson_{index}.wav", 8000, tone(300, 0.1).numpy())
    (root / "1_nobody.wav").write_bytes(b"")
    data = get_task("fsdd").load(Where(tmp_path, hub=False))
    assert (len(data.train), len(data.dev), len(data.test)) == (4, 4, 4)
    assert any("1_nobody.wav" in note for note in data.notes)
