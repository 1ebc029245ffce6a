"""Names, numbers and encodings on the command line: no run outside ``--out``, no traceback for a mistake."""

import contextlib
import dataclasses
import gzip
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.cli.app import main
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import open_task, plan
from sparring.lab.untrusted import file_name
from tests.hostile.data_files import WAVS, open_path, pickles, table, wav, write
from tests.hostile.test_untrusted import REFUSED, with_code

SMALL = ["--epochs", "1", "--n-train", "20", "--n-dev", "5", "--n-test", "5", "--threads", "1"]


@pytest.mark.parametrize("name", ["...csv", "..csv", "..csv.gz", "a\nb.csv", "a\\b.csv", ".. .csv"])
def test_a_run_stays_inside_its_folder(name: str, tmp_path: Path) -> None:
    content = table(",")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    out = tmp_path / "runs"
    config = Config(str(tmp_path / name), out=str(out))
    folder = plan(config, *open_task(config)).folder.path
    inside = Path(os.path.normpath(folder)).relative_to(out)
    assert len(inside.parts) == 3
    assert inside.parts[0].isprintable()


def test_file_names() -> None:
    for text in (
        "",
        ".",
        "..",
        "...",
        "../../x",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "\0",
        "caf\udce9",
        "a\x1b[31m",
        "C:\\x",
    ):
        name = file_name(text)
        assert name not in ("", ".", "..")
        assert not set(name) & set("/\\\0\x1b")
        assert Path("runs", name).parent == Path("runs")
        name.encode()


def test_a_model_or_task_by_any_name_stays_inside(tmp_path: Path) -> None:
    config = Config("digits", out=str(tmp_path / "runs"), model=str(tmp_path / ".."))
    task, data = open_task(config)
    for name in ("..", "../../up", "/absolute", ""):
        folder = plan(config, dataclasses.replace(task, name=name), data).folder.path
        assert len(Path(os.path.normpath(folder)).relative_to(tmp_path / "runs").parts) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(
        tmp_path / "sounds",
        {**WAVS, os.fsdecode(b"0/caf\xe9.wav"): wav(), os.fsdecode(b"caf\xe9/1.wav"): wav()},
    )
    data = open_path(root)
    assert any("caf\\udce9.wav (its name" in note for note in data.notes)
    assert data.labels == ["0", "1"]
    name = os.fsdecode(b"caf\xe9.csv")
    (tmp_path / name).write_bytes(table(","))
    for words in (
        ["run", str(tmp_path / name)],
        ["run", "digits", "--out", name],
        ["predict", "x", name],
        ["tasks", "--data-dir", name],
    ):
        assert main(words) == 1
        assert "expected arguments in UTF-8, got" in capsys.readouterr().err
    monkeypatch.setenv("SPARRING_DATA", name)
    assert main(["tasks"]) == 1
    assert "SPARRING_DATA" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", "4294967296", "99999999999999999999", "9" * 400])
def test_seeds_out_of_range(seed: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "digits", "--seed", seed, "--out", str(tmp_path)]) == 1
    assert "seed must be a" in capsys.readouterr().err
    assert main(["run", "digits", "--seed", "4294967295", "--seeds", "2", "--out", str(tmp_path)]) == 1
    assert "seed must be at most 4294967295, got 4294967296" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flag", ["--threads", "--batch-size", "--epochs", "--image-size", "--max-length", "--accumulation"]
)
def test_numbers_out_of_range(flag: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for value in ("1e12", "1e30"):
        assert main(["run", "digits", flag, value, "--out", str(tmp_path)]) == 1
        assert "must be at most" in capsys.readouterr().err


@pytest.mark.parametrize(
    "toml",
    [
        b"seed = " + b"9" * 400,
        b"seed = " + b"9" * 5000,
        b"seed = " + b"[" * 100_000,
        b"\xff",
        b'metric = "a\\u0000b"',
    ],
)
def test_settings_that_python_cannot_hold(
    toml: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.toml").write_bytes(toml)
    assert main(["run", "digits", "--config", str(tmp_path / "a.toml")]) == 1
    assert "a.toml" in capsys.readouterr().err


SCRIPT = """
import sys
from sparring.cli.app import main
for words in {}:
    try:
        code = main(words)
    except SystemExit as exit:
        code = exit.code
    print("exit", code, file=sys.stderr)
sys.exit(sys.stdin.read() != {!r})
"""


def test_the_real_command_line(tmp_path: Path) -> None:
    """Broken files and a model with code, in a process whose output is latin-1 and whose input says yes.

    No traceback, no question, no code run.
    """
    mark, yes = tmp_path / "mark", "y\n" * 9
    with_code(tmp_path / "model", mark)
    write(tmp_path / "cifar100", pickles(train=[1]))
    write(tmp_path, {"deep.json": b"[" * 100_000, "...csv": table(","), "array/train.npz": b"PK\3\4"})
    commands = [
        *(
            ["losses"],
            ["run", "cifar100"],
            ["run", "deep.json"],
            ["run", "array"],
            ["run", "--help"],
            ["run", "--no"],
        ),
        *(["run", "digits", "--seed", "4294967296"], ["run", "...csv", *SMALL, "--out", "inner/runs"]),
        ["run", "...csv", "--model", "model", "--out", "inner/runs"],
    ]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "SPARRING_DATA": str(tmp_path),
        "PYTHONIOENCODING": "latin-1",
    }
    environment["HF_MODULES_CACHE"] = str(tmp_path / "modules")
    process = [sys.executable, "-c", SCRIPT.format(commands, yes)]
    shown = subprocess.run(
        process, input=yes.encode(), capture_output=True, cwd=tmp_path, env=environment, timeout=300
    )
    errors = shown.stderr.decode("latin-1")
    assert "Traceback" not in errors
    *parts, rest = re.split(r"^exit (\d)\n", errors.replace("\r\n", "\n"), flags=re.MULTILINE)
    assert parts[1::2] == list("011102101"), errors
    assert len([line for line in errors.splitlines() if line.startswith("sparring: ")]) == 6
    assert REFUSED in parts[-2]
    assert parts[-2].count("\n") == 1, parts[-2]
    assert (shown.returncode, rest) == (0, ""), "nothing was asked, so nothing of standard input was read"
    assert not mark.exists()
    assert sorted(path.name for path in (tmp_path / "inner").iterdir()) == ["runs"]


def test_signs_that_an_encoding_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Help, tables and JSON, with words that latin-1 does not have."""
    for encoding in ("latin-1", "cp1252", "ascii", "utf-8"):
        for words in (["losses"], ["run", "--help"], ["paper"], ["losses", "--json"]):
            out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                contextlib.suppress(SystemExit),
            ):
                assert main(words) == 0
            out.flush()
            shown = out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
            assert len(shown) > 100
            if "--json" in words:
                out.detach()
                assert "δ" in json.dumps(json.loads(shown), ensure_ascii=False)
            elif encoding != "utf-8" and words == ["run", "--help"]:
                assert "delta of as-softmax" in shown


def test_standard_input_that_is_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\ncaf\xe9\n"), encoding="utf-8"))
    assert main(["predict", "runs"]) == 1
    assert "standard input: expected utf-8, got the byte 0xe9" in capsys.readouterr().err
