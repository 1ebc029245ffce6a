"""Damaged and hostile data files: every reader returns samples or raises a `UserError`.

The fuzzers are deterministic. ``SPARRING_HOSTILE=10`` makes ten times as many mutations.
"""

import contextlib
import gzip
import json
import os
import random
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sparring.lab.errors import UserError
from sparring.lab.readers.files import read_table
from sparring.lab.untrusted import MAX_TEXT, parse_json, read_bytes
from tests.hostile.data_files import (
    CIFAR,
    CLINC,
    ESSAY,
    EURLEX,
    META,
    PNGS,
    RECORDINGS,
    WAVS,
    Reader,
    images,
    lines,
    npz,
    open_path,
    published,
    refused,
    rows,
    sounds,
    table,
    table_of,
    write,
)

FACTOR = int(os.environ.get("SPARRING_HOSTILE", "1"))
ODD = [
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"\\u0000",
        b"\r",
        b"\n",
        b'"',
        b"'",
        b",",
    ),
    *(b"\t", b"{", b"[", b"[" * 5000, b"9" * 5000, b"1e999", b"-1", b"NaN", b"Infinity", b"null", b"true"),
    *(b"\x80\x05.", b"\xff" * 8, b"\x7f" * 4),
]


# name: the files, the one of them that is damaged (the first), how they are read
FORMATS: dict[str, tuple[dict[str, bytes], Reader]] = {
    "csv": ({"a.csv": table(",")}, table_of("a.csv")),
    "tsv": ({"a.tsv": table("\t")}, table_of("a.tsv")),
    "json": ({"a.json": json.dumps(rows()).encode()}, table_of("a.json")),
    "jsonl": ({"a.jsonl": lines()}, table_of("a.jsonl")),
    "gz": ({"a.csv.gz": gzip.compress(table(","), mtime=0)}, table_of("a.csv.gz")),
    "npz of images": ({"train.npz": npz(**images())}, open_path),
    "npz of numbers": ({"train.npz": npz(**images("float32"))}, open_path),
    "npz of sounds": ({"train.npz": npz(**sounds())}, open_path),
    "meta.json": ({"meta.json": META, "train.npz": npz(**sounds())}, open_path),
    "wav": (WAVS, open_path),
    "png": (PNGS, open_path),
    "cifar pickle": (CIFAR, published("cifar100")),
    "cifar names": (dict(reversed(CIFAR.items())), published("cifar100")),
    "recordings": (dict(reversed(RECORDINGS.items())), published("fsdd")),
    "clinc": ({"clinc_oos/data_full.json": json.dumps(CLINC).encode()}, published("clinc_oos")),
    "eurlex": ({"eurlex/eurlex.jsonl": "\n".join(map(json.dumps, EURLEX)).encode()}, published("eurlex")),
    "sighan": ({"sighan2015/a.sgml": ESSAY.encode() * 9}, published("sighan2015")),
}
N_MUTATIONS = 80 * FACTOR


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """One to three times: flip a bit, cut out or repeat a part, cut off the end, insert something odd."""
    content = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(content) + 1)
        end = min(len(content), at + chance.choice((1, 2, 4, 16, 200)))
        how = chance.randrange(5)
        if how == 0 and at < len(content):
            content[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            del content[at:end]
        elif how == 2:
            content[at:at] = content[at:end] * chance.choice((1, 3))
        elif how == 3:
            del content[at:]
        else:
            odd = chance.choice(ODD)
            content[at : at + chance.choice((0, len(odd)))] = odd
    return bytes(content)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Users see warnings of pillow and numpy, which are no faults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_file_gives_samples_or_a_user_error(form: str, tmp_path: Path) -> None:
    files, read = FORMATS[form]
    write(tmp_path, files)
    read(tmp_path)  # whole as it is
    target, raw = next(iter(files.items()))
    errors = []
    for seed in range(N_MUTATIONS):
        content = mutated(raw, random.Random(f"{form} {seed}"))
        (tmp_path / target).write_bytes(content)
        try:
            with quiet():
                data = read(tmp_path)
        except UserError as error:
            errors.append(str(error))
            continue
        except Exception as error:
            raise AssertionError(
                f"{form}, seed {seed}: {type(error).__name__}: {error}; {content[:80]!r}"
            ) from error
        json.dumps(
            [data.labels, data.notes, data.source], ensure_ascii=False
        ).encode()  # a run writes them down
        assert data.fingerprint
    assert errors or form in ("wav", "png", "recordings")  # a folder leaves such files out instead
    assert max(map(len, errors), default=0) < 1000


# ------------------------------------------------------------ texts


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r'{"text": "a \ud800 b", "label": "up"}', ["half of a surrogate pair", "column 13"]),
        (r'{"text": "a \udfff\ud800", "label": "up"}', [r"\udfff is half"]),
        (r'{"text": "a", "label": "up", "\udfff": 1}', ["half of a surrogate pair"]),
        ('{"text": ' + "[" * 100_000, ["nested too deeply"]),
        ('{"text": ' + "[" * 500 + "]" * 500 + ', "label": "up"}', ["nested too deeply"]),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", ["an integer with too many digits", "column 24"]),
        ('{"text": "' + "x" * (MAX_TEXT + 1) + '", "label": "up"}', [": text", "10,000,001 characters"]),
    ],
    ids=["low half", "high half", "half in a name", "open lists", "deep lists", "digits", "length"],
)
def test_json_that_python_cannot_hold(line: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines() + b"\n" + line.encode())
    refused(lambda: open_path(path), "a.jsonl:41", *words)


def test_json_that_is_good() -> None:
    pair = r'["\ud83d\ude00", "\\ud800", "\\\ud83d\ude00", "\"\u00e9"]'
    assert parse_json(pair) == ["😀", "\\ud800", "\\😀", '"é']
    assert parse_json("[" * 100 + "]" * 100)
    assert parse_json(json.dumps([[i] for i in range(1000)])) == [[i] for i in range(1000)]
    assert parse_json(str(2**64)) == 2**64


def test_integers_that_do_not_fit_64_bits_are_labels_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"t {i}", "label": 2**64 + i % 2}) for i in range(30)))
    assert open_path(path).labels == [str(2**64), str(2**64 + 1)]


def test_a_python_list_with_half_a_character(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,labels\n" + "".join(f"t {i},\"['x\\ud800', 'y']\"\n" for i in range(20)))
    refused(lambda: open_path(path), "a.csv:2: labels", "0xd800")


def test_a_hundred_thousand_columns(tmp_path: Path) -> None:
    n, path = 100_000, tmp_path / "a.csv"
    header = ",".join(f"c{i}" for i in range(n))
    path.write_text(f"{header}\n" + (",".join("0" * n) + "\n") * 3)
    refused(lambda: open_path(path), "cannot tell which column holds the text", "and 99,980 more")
    path.write_text(f"{header}\n1,2\n")
    refused(lambda: open_path(path), "a.csv:2: expected 100000 columns", "and 99,980 more), got 2")
    path.write_text(",".join("c" * n) + "\n1,2\n")
    refused(lambda: open_path(path), "two columns have the same name", "and 99,980 more")
    n = 40_000
    header = ",".join(f"c{i}" for i in range(n))
    path.write_text(
        f"text,{header}\n"
        + "".join(f"t {j}," + ",".join(("01" * n)[j % 2 : n + j % 2]) + "\n" for j in range(4))
    )
    begin = time.process_time()
    assert len(open_path(path).labels) == n
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("content", ["text,label\n{},up\n", "{},label\na,up\n"], ids=["cell", "header"])
def test_a_line_of_eleven_megabytes(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content.format("word " * 2_200_000))
    refused(lambda: open_path(path), "a.csv:", "a cell has more than 10,000,000 characters")


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(70):
            file.write(b"a" * 2**20)
    refused(lambda: read_bytes(path), "unpack to", "unpack the file first")
    (tmp_path / "arrays").mkdir()
    np.savez_compressed(
        tmp_path / "arrays" / "train.npz",
        images=np.zeros((100, 900, 900), np.uint8),
        labels=np.arange(100) % 2,
    )
    refused(lambda: open_path(tmp_path / "arrays"), "unpack to")


def test_a_path_with_a_null_character() -> None:
    refused(lambda: read_table(Path("a\0.csv")), "null")
