"""Damaged and hostile arrays, sounds and pickles: they are refused, and nothing in them is executed."""

import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparring.lab.datasets import Where, get_task, list_tasks, survey
from tests.hostile.data_files import (
    RECORDINGS,
    WAVS,
    images,
    npz,
    open_path,
    pickles,
    published,
    refused,
    sounds,
    wav,
    write,
)


def array_case(images: Any = None, **arrays: Any) -> dict[str, Any]:
    return {
        "images": np.zeros((40, 4, 4), np.uint8) if images is None else images,
        "labels": np.arange(40) % 2,
        **arrays,
    }


def with_value(value: float, dtype: str = "float32") -> Any:
    numbers = np.arange(40 * 16, dtype=dtype).reshape(40, 4, 4)
    numbers[7, 2, 3] = value
    return numbers


ARRAYS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nan": (array_case(with_value(np.nan)), ["train.npz", "train sample 7", "not finite"]),
    "inf": (array_case(with_value(np.inf)), ["train sample 7", "not finite"]),
    "too large": (array_case(with_value(1e300, "float64")), ["train sample 7", "not finite as float32"]),
    "bool": (array_case(np.zeros((40, 4, 4), bool)), ["must be bytes (uint8) or real numbers, got bool"]),
    "complex": (array_case(np.zeros((40, 4, 4), complex)), ["real numbers, got complex128"]),
    "words": (array_case(np.full((40, 4, 4), "x")), ["real numbers, got <U1"]),
    "two dimensions": (array_case(np.zeros((40, 4))), ["(N, height, width)", "got (40, 4)"]),
    "no dimension": (array_case(np.zeros(())), ["(N, height, width)", "got ()"]),
    "no pixels": (array_case(np.zeros((40, 0, 4))), ["got (40, 0, 4)"]),
    "labels of numbers": (
        array_case(labels=np.arange(40) / 2),
        ["labels must be one row of whole numbers or words, got float64"],
    ),
    "labels in two rows": (array_case(labels=np.zeros((40, 2), int)), ["labels must be one row", "(40, 2)"]),
    "no offsets": (
        {"audio": np.zeros(9, np.int16), "labels": np.arange(3)},
        ["audio must be (N, samples) without offsets", "got int16 (9,)"],
    ),
    "offsets of floats": (
        {**sounds(), "offsets": np.arange(41) * 100.0},
        ["offsets must be one row of whole numbers"],
    ),
    "offsets beyond": (
        {**sounds(), "offsets": np.arange(41) * 200},
        ["train sample 20", "got offsets 4000 to 4200"],
    ),
    "offsets falling": (
        {**sounds(), "offsets": np.arange(4000, -1, -100)},
        ["train sample 0", "got offsets 4000 to 3900"],
    ),
    "offset alone": ({**sounds(), "offsets": np.array(3)}, ["offsets must be one row"]),
    "silent nan": (
        {**sounds(), "audio": np.where(np.arange(4000) == 550, np.nan, 0.1)},
        ["train sample 5", "not finite"],
    ),
    "audio of another scale": (
        {**sounds(), "audio": sounds()["audio"].astype(float)},
        ["train sample 0", "between -1 and 1"],
    ),
    "no images": (
        array_case(np.zeros((0, 4, 4), np.float32), labels=np.arange(0)),
        ["at least 2 classes are needed"],
    ),
    "unsigned audio": (
        {**sounds(), "audio": np.zeros(4000, np.uint16)},
        ["numbers between -1 and 1, got uint16"],
    ),
    "names": ({**sounds(), "names": np.array(["a"])}, ["40 samples, but 1 names"]),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_are_checked(case: str, tmp_path: Path) -> None:
    arrays, words = ARRAYS[case]
    refused(lambda: open_path(write(tmp_path, {"train.npz": npz(**arrays)})), *words)


NO_NPZ = {
    "empty": b"",
    "text": b"no zip",
    "half": npz(**images())[:700],
    "cut": npz(**images())[:-3],
    "pickle": pickle.dumps([1]),
}


@pytest.mark.parametrize("case", NO_NPZ)
def test_what_is_no_npz(case: str, tmp_path: Path) -> None:
    refused(
        lambda: open_path(write(tmp_path, {"train.npz": NO_NPZ[case]})),
        "train.npz: not to be read as arrays",
        "numpy.savez",
    )


def test_an_npy_is_no_npz(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    refused(lambda: open_path(write(tmp_path, {"train.npz": file.getvalue()})), "not to be read as arrays")


def test_other_numbers_and_words_train(tmp_path: Path) -> None:
    """Double precision and words as bytes are good arrays."""
    arrays = {"images": images()["images"].astype(float), "labels": np.array([b"no", b"yes"] * 20)}
    data = open_path(write(tmp_path, {"train.npz": npz(**arrays)}))
    assert data.labels == ["no", "yes"]
    assert str(data.train[0]["image"].dtype) == "torch.float32"


META = [
    *("[]", "3", "null", "x", "[" * 100_000, '{"label_names": 3}', '{"label_names": {"a": 1}}'),
    *(
        '{"label_names": "ab"}',
        '{"labels": [[1], 2]}',
        '{"label_names": ["a", "a"]}',
        '{"label_names": ["a"]}',
    ),
    *(r'{"label_names": ["\ud800", "b"]}', '{"sample_rate": "x"}', '{"sample_rate": 1}'),
    *(
        '{"sample_rate": 20000000}',
        '{"sample_rate": 8000.5}',
        '{"sample_rate": true}',
        '{"sample_rate": null}',
    ),
    '{"sample_rate": ' + "9" * 5000 + "}",
]


@pytest.mark.parametrize("meta", META)
def test_meta_of_the_wrong_shape(meta: str, tmp_path: Path) -> None:
    refused(
        lambda: open_path(write(tmp_path, {"train.npz": npz(**sounds()), "meta.json": meta.encode()})),
        "meta.json",
    )


@pytest.mark.parametrize("rate", [1, 999, 384_001, 20_000_000])
def test_a_rate_that_no_sound_has_is_named_and_left_out(rate: int, tmp_path: Path) -> None:
    data = open_path(write(tmp_path, {**WAVS, "0/odd.wav": wav(rate)}))
    assert any("0/odd.wav (expected 1,000 to 384,000 samples" in note for note in data.notes)
    assert len(data.train) + len(data.dev) + len(data.test) == 8
    data = published("fsdd")(write(tmp_path, {**RECORDINGS, "fsdd/recordings/0_a_12.wav": wav(rate)}))
    assert any("0_a_12.wav" in note for note in data.notes)


# ------------------------------------------------------------ nothing is executed


class Attack:
    """A pickle that would leave a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_pickles_run_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    attack = pickle.dumps(Attack(marker), protocol=2)
    objects = io.BytesIO()
    np.savez(objects, images=np.array([Attack(marker)] * 40, dtype=object), labels=np.arange(40) % 2)
    assert b"mkdir" in objects.getvalue()
    refused(
        lambda: open_path(write(tmp_path / "objects", {"train.npz": objects.getvalue()})), "Object arrays"
    )
    refused(lambda: open_path(write(tmp_path / "plain", {"train.npz": attack})), "not to be read as arrays")
    for part in ("train", "test", "meta"):
        for protocol in (0, 2, 4):
            files = pickles(**{part: pickle.dumps(Attack(marker), protocol=protocol)})
            root = write(
                tmp_path / f"{part}-{protocol}", {f"cifar100/{name}": raw for name, raw in files.items()}
            )
            refused(lambda root=root: published("cifar100")(root), "wants to run")
    assert not marker.exists()
    pickle.loads(attack)  # the attack is a real one
    assert marker.exists()


def test_pickles_of_the_wrong_shape(tmp_path: Path) -> None:
    good = np.zeros((2, 3072), np.uint8)
    parts: list[dict[str, Any]] = [
        *({"train": [1]}, {"meta": [1]}, {"train": 3}, {"test": None}, {"train": b""}),
        {"train": b"\x80\x02}q\x00(U\x04"},
        {"meta": {b"fine_label_names": [1, 2]}},
        {"meta": {b"fine_label_names": [b"\xff", b"b"]}},
        {"train": {b"data": [1], b"fine_labels": [0]}},
        {"train": {b"data": good[:, :5], b"fine_labels": [0, 1]}},
        {"train": {b"data": good.astype(object), b"fine_labels": [0, 1]}},
        *(
            {"train": {b"data": good, b"fine_labels": labels}}
            for labels in (3, [0, -1], [0, 2], [0], [0, b"x"])
        ),
    ]
    for i, part in enumerate(parts):
        root = write(tmp_path / str(i), {f"cifar100/{name}": raw for name, raw in pickles(**part).items()})
        refused(lambda root=root: published("cifar100")(root), "not the publisher's pickles")
        (row,) = survey([get_task("cifar100")], Where(root, hub=False))
        assert row["where"].startswith("broken: ")
    (tmp_path / "0" / "cifar100" / "test").unlink()
    refused(lambda: published("cifar100")(tmp_path / "0"), "test: no such file")


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        link = tarfile.TarInfo("cifar-100-python/train")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    for content in (b"", b"x" * 600, packed.getvalue(), packed.getvalue()[:40], gzip.compress(b"x" * 600)):
        root = write(tmp_path, {"cifar100/cifar-100-python.tar.gz": content})
        refused(lambda root=root: published("cifar100")(root), "cifar-100-python.tar.gz")


def test_a_broken_folder_does_not_hide_the_other_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a loader raises, and whatever lies in the folders."""
    for task in list_tasks():
        names = [
            "train.jsonl",
            "train.npz",
            "meta.json",
            "data_full.json",
            "train.tsv",
            "train.txt",
            "train",
            "meta",
            "a.sgml",
        ]
        write(tmp_path / task.name, dict.fromkeys(names, b'[[1], {"a": [\xff\x00'))
    files = [task for task in list_tasks() if not task.embedded]
    rows = survey(files, Where(tmp_path, hub=False))
    assert [row["here"] for row in rows] == [False] * len(files)
    assert all("UnicodeDecodeError" not in row["where"] and "TypeError" not in row["where"] for row in rows)
