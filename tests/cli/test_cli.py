"""The command line as a user meets it."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.cli.app import build_parser, main
from sparring.losses import list_losses

SMALL = ["--epochs", "2", "--batch-size", "8", "--threads", "1"]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """A file of one's own: 60 rows, two classes by one word."""
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["review", "sentiment"])
        table.writerows(
            [f"it was {'good' if i % 2 else 'awful'}, number {i}", "up" if i % 2 else "down"]
            for i in range(60)
        )
    return path


def test_losses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses"]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^{name} ", shown, re.M) for name in list_losses())
    assert main(["losses", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["as-softmax"]["settings"] == {"delta": 0.3, "warmup": 0.0}


def test_tasks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "sst5").mkdir()
    (tmp_path / "sst5" / "train.jsonl").write_text(
        "".join(json.dumps({"text": f"t{i}", "label": str(i % 5)}) + "\n" for i in range(40))
    )
    assert main(["tasks", "--data-dir", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["languages"]["classes"] == 89
    assert (rows["sst5"]["here"], rows["sst5"]["classes"], sum(rows["sst5"]["sizes"])) == (True, 5, 40)
    assert (rows["mnli"]["here"], rows["mnli"]["where"]) == (False, "not here")
    assert rows["mnli"]["sizes"][0] == 392702
    assert main(["tasks", "--data-dir", str(tmp_path)]) == 0
    assert "not here" in capsys.readouterr().out


def test_a_csv_trains_in_one_command_and_predicts(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(reviews.parent / "runs")
    assert main(["run", str(reviews), *SMALL, "--epochs", "8", "--out", out]) == 0
    shown = capsys.readouterr()
    assert "reviews (multi-class, 48/6/6, 2 classes), model tiny" in shown.out
    assert 'text from column "review"' in shown.out
    assert re.search(r"as-softmax delta=0.3 +100\.00 +100\.00", shown.out)
    assert shown.err == ""  # no terminal, no chatter
    assert main(["run", str(reviews), *SMALL, "--epochs", "8", "--out", out]) == 0
    assert "1 of 1 runs were already done" in capsys.readouterr().out
    assert main(["predict", out, "it was good", "it was awful"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["up", "down"]
    assert main(["predict", out, "it was good", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["predicted"] == "up"


def test_an_edited_file_is_another_run(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["run", str(reviews), *SMALL, "--out", str(reviews.parent / "runs"), "--json"]
    assert main(flags) == 0
    reviews.write_text(reviews.read_text().replace("number 7", "number seven"))
    assert main(flags) == 0
    folders = [
        Path(json.loads(part)["rows"][0]["folders"][0])
        for part in re.split(r"(?<=\n})\n", capsys.readouterr().out)
        if part.strip()
    ]
    assert len(set(folders)) == 2


def test_compare(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [str(reviews), *SMALL, "--out", str(reviews.parent / "runs"), "--seeds", "2"]
    assert main(["compare", *flags, "--losses", "softmax,as-softmax:delta=0.2,as-speed"]) == 0
    shown = capsys.readouterr().out
    for name in ("softmax", "as-softmax delta=0.2", "as-softmax delta=0.3 accumulation=adaptive"):
        assert re.search(
            rf"^ +{name} +\d+\.\d\d ± \d+\.\d\d +\d+\.\d\d ± \d+\.\d\d +\d+\.\d +\d+\.\d\dx +100 +\d+ +\d+ +\d+ ",
            shown,
            re.M,
        ), shown
    assert main(["compare", *flags, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["contestant"] for row in rows] == ["softmax", "as-softmax delta=0.3"]
    assert [row["seeds"] for row in rows] == [[0, 1], [0, 1]]
    assert rows[0]["backwards"] == 1.0


def test_side_by_side_ends_as_one_after_another(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["compare", str(reviews), *SMALL, "--losses", "softmax,as-softmax", "--json"]
    found = []
    for jobs in ("1", "2"):
        assert main([*flags, "--jobs", jobs, "--out", str(reviews.parent / jobs)]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        found.append(
            [
                [row[name] for name in ("contestant", "test", "dev", "backwards", "correlation")]
                for row in rows
            ]
        )
    assert found[0] == found[1]


def test_tune_looks_at_dev_alone(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = reviews.parent / "runs"
    flags = [
        "tune",
        str(reviews),
        *SMALL,
        "--loss",
        "as-softmax",
        "--values",
        "delta=0.1,0.9",
        "--out",
        str(out),
    ]
    assert main(flags) == 0
    shown = capsys.readouterr().out
    assert "test was not used" in shown
    best = re.search(r"^best: (.*)$", shown, re.M)
    assert best is not None
    summaries = [json.loads(path.read_text()) for path in out.rglob("summary.json")]
    assert [summary["test"] for summary in summaries] == [None, None]
    assert not list(out.rglob("predictions.jsonl"))
    assert main([*flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    dev = {row["contestant"]: row["dev"]["mean"] for row in found["rows"]}
    assert dev[f"as-softmax delta={found['best']['delta']}"] == max(dev.values())
    assert best[1] == found["command"]
    words = shlex.split(found["command"])
    assert (words[:2], words[2]) == (["sparring", "run"], str(reviews))
    assert main([*words[1:], "--json"]) == 0  # the very run that won, this time with test
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["contestant"] == f"as-softmax delta={found['best']['delta']}"
    assert row["dev"]["mean"] == max(dev.values())


def test_tuning_as_speed_tunes_as_speed(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--loss",
        "as-speed",
        "--values",
        "lam=0.5,2",
        "--values",
        "delta=0.2",
        "--out",
        str(reviews.parent / "runs"),
        "--json",
    ]
    assert main(["tune", str(reviews), *SMALL, *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["contestant"] for row in found["rows"]] == [
        "as-softmax delta=0.2 accumulation=adaptive",
        "as-softmax delta=0.2 accumulation=adaptive lam=2.0",
    ]
    assert "--loss as-speed" in found["command"]


def test_a_config_file_with_flags_on_top(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = reviews.parent / "mine.toml"
    config.write_text(
        f'task = "{reviews}"\nloss = "softmax"\nepochs = 1\nout = "{reviews.parent / "runs"}"\nthreads = 1\n'
    )
    assert main(["run", "--config", str(config), "--loss", "t-softmax", "--tau", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["contestant"] == "t-softmax tau=0.5"


def test_a_look_at_dev_is_had_at_the_end_at_least(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "run",
                str(reviews),
                *SMALL,
                "--eval-every",
                "1000",
                "--out",
                str(reviews.parent / "runs"),
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["rows"][0]["dev"]["values"]


def test_a_folder_that_cannot_be_written_is_named(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(reviews), *SMALL, "--out", str(reviews)]) == 1  # a file
    error = capsys.readouterr().err
    assert error.startswith("sparring: ")
    assert str(reviews) in error
    assert error.count("\n") == 1


def test_fresh_begins_anew(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = reviews.parent / "runs"
    flags = ["run", str(reviews), *SMALL, "--out", str(out)]
    assert main(flags) == 0
    summary = next(out.rglob("summary.json"))
    before = summary.stat().st_mtime_ns
    assert main([*flags, "--fresh"]) == 0
    assert summary.stat().st_mtime_ns > before
    assert "already done" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run"], "no task: name one"),
        (["run", "sst6"], 'no task named "sst6"; did you mean "sst5"?'),
        (["run", "digits", "--loss", "as_softmax"], 'no loss named "as_softmax"; did you mean "as-softmax"?'),
        (
            ["run", "digits", "--loss", "multilabel-softmax"],
            "does not fit digits, whose kind is image; use one of am-softmax, as-logit",
        ),
        (["run", "digits", "--delta", "2"], "delta must lie in [0, 1]"),
        (["run", "digits", "--loss", "softmax", "--delta", "0.3"], '"softmax" takes no delta'),
        (["run", "digits", "--lr", "fast"], "lr must be a number"),
        (["run", "nowhere.csv"], "nowhere.csv"),
        (["run", "digits", "--jobs", "0"], "jobs must be at least 1"),
        (["run", "digits", "--seeds", "0"], "seeds must be at least 1"),
        (["compare", "digits", "--losses", "softmax,softmax"], "two of the runs are the same: softmax"),
        (["compare", "digits", "--loss", "softmax"], "compare takes --losses"),
        (["compare", "digits", "--losses", ","], "no losses"),
        (["run", "digits", "--text-column", "a"], "text_column is for files of your own"),
        (["run", "digits", "--max-length", "0"], "max_length must be at least 4, got 0"),
        (["run", "digits", "--threads", "0"], "threads must be at least 1, got 0"),
        (["run", "digits", "--warmup", "2"], "warmup must be at most 1, got 2"),
        (["run", "digits", "--lr", "-1"], "lr must be at least 0"),
        (["run", "digits", "--config", "."], "."),
        (["run", "digits", "--model", "Tiny"], 'no model named "Tiny"; did you mean "tiny"?'),
        (["tune", "digits", "--loss", "softmax"], '"softmax" has no setting to tune'),
        (["predict", "nowhere", "text"], "nowhere: no such folder"),
        (["run", "mnli"], "mnli: no data found"),
    ],
)
def test_a_mistake_is_one_line(
    command: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("SPARRING_DATA", raising=False)
    assert main(command) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("sparring: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_named_with_its_line(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = reviews.read_text().splitlines()
    reviews.write_text("\n".join([*lines[:30], "one,two,three", *lines[30:]]))
    assert main(["run", str(reviews)]) == 1
    assert capsys.readouterr().err.startswith(f"sparring: {reviews}:31: ")


def test_usage_mistakes_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["fight"], ["run", "digits", "--colour", "red"]):
        with pytest.raises(SystemExit) as stop:
            main(command)
        assert stop.value.code == 2
    capsys.readouterr()
    for name in ("losses", "tasks", "run", "compare", "tune", "predict"):
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert stop.value.code == 0
        assert "examples:" in capsys.readouterr().out
    assert "sparring predict" in build_parser().format_help()


def test_it_runs_as_a_program_and_bears_a_closed_pipe() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "sparring.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"sparring \d+\.\d+\.\d+\n", found.stdout)
    command = f"{sys.executable} -m sparring.cli losses | head -n 1"
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert found.stderr == ""


def test_a_terminal_sees_progress(tmp_path: Path) -> None:
    """Through a real pseudo-terminal."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "sparring.cli",
        "run",
        "digits",
        "--epochs",
        "1",
        "--threads",
        "1",
        "--out",
        str(tmp_path),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=slave, env={**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the program has closed its end
            break
        if not part:
            break
        seen += part
    assert process.wait() == 0
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    assert re.search(r"as-softmax delta=0.3 seed 0.*34/34", text)
    assert re.search(r"loss \d\.\d+ · won \d+% · accumulation 1", text)
    if process.stdout is not None:
        assert b"digits" in process.stdout.read()
        process.stdout.close()
