"""The command line as a user meets it."""

import contextlib
import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparring.cli import tasks
from sparring.cli.app import COMMANDS, build_parser, main
from sparring.losses import list_losses

SMALL = ["--epochs", "2", "--batch-size", "8", "--threads", "1"]


class Output(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def sparring(*words: object) -> Output:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Output(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's own file: 60 rows, two classes that one word distinguishes."""
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["review", "sentiment"])
        for i in range(60):
            good = i % 2 == 1
            table.writerow([f"it was {'good' if good else 'awful'}, number {i}", "up" if good else "down"])
    return path


def test_losses() -> None:
    shown = sparring("losses").out
    assert all(re.search(rf"^{name} ", shown, re.M) for name in list_losses())
    rows = {row["name"]: row for row in sparring("losses", "--json").json}
    expected = {"delta": 0.3, "warmup": 0.0, "concede": None, "concede_warmup": None}
    assert rows["as-softmax"]["settings"] == expected


def test_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sst5").mkdir()
    lines = [json.dumps({"text": f"t{i}", "label": str(i % 5)}) for i in range(40)]
    (tmp_path / "sst5" / "train.jsonl").write_text("\n".join(lines) + "\n")
    listed = sparring("tasks", "--check", "--data-dir", tmp_path, "--json").json
    rows = {row["name"]: row for row in listed}
    assert rows["languages"]["classes"] == 89
    assert (rows["sst5"]["here"], rows["sst5"]["classes"], sum(rows["sst5"]["sizes"])) == (True, 5, 40)
    assert (rows["mnli"]["here"], rows["mnli"]["where"]) == (False, "not here")
    assert rows["mnli"]["sizes"][0] == 392702
    monkeypatch.setenv("SPARRING_DATA", str(tmp_path))
    monkeypatch.setattr(tasks, "check", None)  # what is listed without it is not read
    assert re.search(r"mnli +pair +392,702.*not here", sparring("tasks").out)
    quick = {row["name"]: row["here"] for row in sparring("tasks", "--json").json}
    assert quick == {name: row["here"] for name, row in rows.items()}


def test_a_csv_trains_in_one_command_and_predicts(reviews: Path, tmp_path: Path) -> None:
    command = ("run", reviews, *SMALL, "--epochs", 8, "--out", tmp_path)
    first = sparring(*command)
    assert first.code == 0
    assert "reviews (multi-class, 48/6/6, 2 classes), model tiny" in first.out
    assert 'text from column "review"' in first.out
    assert re.search(r"as-softmax delta=0.8 +100\.00 +100\.00", first.out)
    assert "1 of 1 runs were already done" in sparring(*command).out
    predicted = sparring("predict", tmp_path, "it was good", "it was awful")
    assert [line.split()[0] for line in predicted.out.splitlines()] == ["up", "down"]
    reason = "every sample of dev was right"
    assert predicted.err == f"probabilities are not calibrated: {reason}\n"
    row = sparring("predict", tmp_path, "it was good", "--json").json[0]
    assert (row["predicted"], row["temperature"]) == ("up", None)
    (summary,) = tmp_path.rglob("summary.json")
    facts = json.loads(summary.read_text())
    facts["calibration"]["temperature"] = 2.0  # as if dev had had mistakes
    summary.write_text(json.dumps(facts))
    scaled = sparring("predict", tmp_path, "it was good", "--json").json[0]
    odds = [p["probabilities"]["up"] / p["probabilities"]["down"] for p in (row, scaled)]
    assert scaled["temperature"] == 2.0
    assert odds[1] == pytest.approx(odds[0] ** 0.5, rel=0.05)
    assert "calibrated with temperature 2.00, fitted on dev" in sparring("predict", tmp_path, "good").err


def test_an_edited_file_is_another_run_and_fresh_starts_again(reviews: Path, tmp_path: Path) -> None:
    file = shutil.copy(reviews, tmp_path / "reviews.csv")
    command = ("run", file, *SMALL, "--eval-every", 1000, "--out", tmp_path / "runs", "--json")
    first = sparring(*command).json["rows"][0]
    assert first["dev"]["values"], "evaluated at the end at least"
    (summary,) = tmp_path.rglob("summary.json")
    written = summary.stat().st_mtime_ns
    assert "already done" not in sparring(*command[:-1], "--fresh").out
    assert summary.stat().st_mtime_ns > written
    file.write_text(file.read_text().replace("number 7", "number seven"))
    assert sparring(*command).json["rows"][0]["folders"] != first["folders"]


def test_compare(reviews: Path, tmp_path: Path) -> None:
    flags = (reviews, *SMALL, "--out", tmp_path, "--seeds", 2)
    shown = sparring("compare", *flags, "--losses", "softmax,as-softmax:delta=0.2,as-speed").out
    score = r"\d+\.\d\d ± \d+\.\d\d"
    for name in ("softmax", "as-softmax delta=0.2", "as-softmax delta=0.8 accumulation=adaptive"):
        numbers = rf"{score} +(–|[-+]\d+\.\d\d) +\d+\.\d +\d+\.\d\dx +\d+ "
        assert re.search(rf"^ +{name} +{numbers}", shown, re.M), shown
        assert re.search(rf"^ +{name} +\d+\.\d( → \d+\.\d)? +\d\.\d{{3}}", shown, re.M), shown
    found = sparring("compare", *flags, "--json").json
    rows = found["rows"]
    assert len(found["verdict"]) == 1
    assert re.match("as-softmax delta=0.8 (against|and) softmax", found["verdict"][0])
    assert [row["contestant"] for row in rows] == ["softmax", "as-softmax delta=0.8"]
    assert [row["seeds"] for row in rows] == [[0, 1], [0, 1]]
    assert rows[0]["backwards"] == 1.0


def test_eighty_columns(reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word and no number is broken, and every line fits."""
    flags = (reviews, *SMALL, "--epochs", 1, "--out", tmp_path, "--seeds", 2)
    command = ("compare", *flags, "--losses", "softmax,as-softmax:warmup=0.25:accumulation=adaptive")
    wide = sparring(*command).out
    monkeypatch.setenv("COLUMNS", "80")
    for words in (command, (*command, "--wide")):
        lines = [line for line in sparring(*words).out.splitlines() if not line.startswith("runs: ")]
        assert max(map(len, lines)) <= 80
        expected = {word for word in wide.partition("runs: ")[0].split() if set(word) != {"─"}}
        assert {*" ".join(lines).split()} >= expected


def test_tune_uses_dev_alone(reviews: Path, tmp_path: Path) -> None:
    command = (
        "tune",
        reviews,
        *SMALL,
        "--loss",
        "as-softmax",
        "--values",
        "delta=0.1,0.9",
        "--out",
        tmp_path,
    )
    shown = sparring(*command).out
    assert "test was not used" in shown
    assert "The best is within noise." in shown
    summaries = [json.loads(path.read_text()) for path in tmp_path.rglob("summary.json")]
    assert [summary["test"] for summary in summaries] == [None, None]
    assert not list(tmp_path.rglob("predictions.jsonl"))
    result = sparring(*command, "--json").json
    dev = {row["contestant"]: row["dev"]["mean"] for row in result["rows"]}
    best = f"as-softmax delta={result['best']['delta']}"
    assert dev[best] == max(dev.values())
    assert f"best: {result['command']}\n" in shown
    words = shlex.split(result["command"])
    assert words[:3] == ["sparring", "run", str(reviews)]
    row = sparring(*words[1:], "--json").json["rows"][0]  # the same run, this time with test
    assert row["contestant"] == best
    assert row["dev"]["mean"] == max(dev.values())


def test_tuning_as_speed_tunes_as_speed(reviews: Path, tmp_path: Path) -> None:
    values = ("--values", "lam=0.5,2", "--values", "delta=0.2")
    result = sparring(
        "tune", reviews, *SMALL, "--loss", "as-speed", *values, "--out", tmp_path, "--json"
    ).json
    assert [row["contestant"] for row in result["rows"]] == [
        "as-softmax delta=0.2 accumulation=adaptive",
        "as-softmax delta=0.2 accumulation=adaptive lam=2.0",
    ]
    assert "--loss as-speed" in result["command"]


def test_flags_override_a_config_file(reviews: Path, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(f'task = "{reviews}"\nloss = "softmax"\nepochs = 1\nout = "{tmp_path}"\nthreads = 1\n')
    result = sparring("run", "--config", config, "--loss", "t-softmax", "--tau", 0.5, "--json").json
    assert result["rows"][0]["contestant"] == "t-softmax tau=0.5"


def test_a_folder_that_cannot_be_written_is_named(reviews: Path) -> None:
    result = sparring("run", reviews, *SMALL, "--out", reviews)  # a file
    assert result.code == 1
    assert re.fullmatch(rf"sparring: .*{re.escape(str(reviews))}.*\n", result.err)


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
        (["run", "digits", "--loss", "gce", "--q", "2"], "q must lie in [0, 1], got 2"),
        (["run", "digits", "--loss", "focal", "--beta", "1"], '"focal" takes no beta; it takes gamma'),
        (["run", "digits", "--lr", "fast"], "lr must be a number"),
        (["run", "nowhere.csv"], "nowhere.csv"),
        (["run", "digits", "--jobs", "0"], "--jobs must be at least 1"),
        (["run", "digits", "--seeds", "0"], "seeds must be at least 1"),
        (["compare", "digits", "--losses", "softmax,softmax"], "two of the runs are the same: softmax"),
        (
            ["compare", "digits", "--loss", "softmax"],
            "compare takes --losses, several names, not --loss softmax",
        ),
        (["compare", "digits", "--losses", ","], "no losses"),
        (["run", "digits", "--text-column", "a"], "--text-column is for files of your own"),
        (["run", "digits", "--max-length", "0"], "--max-length must be at least 4, got 0"),
        (["run", "digits", "--device", "cuda"], "device cuda: torch finds no CUDA GPU here"),
        (["run", "digits", "--missing", "drop"], "--missing is for files of your own"),
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
    command: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("SPARRING_DATA", raising=False)
    result = sparring(*command)
    assert (result.code, result.out) == (1, "")
    assert re.fullmatch(rf"sparring: .*{re.escape(message)}.*\n", result.err)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_named_with_its_line(reviews: Path, tmp_path: Path) -> None:
    lines = reviews.read_text().splitlines()
    broken = tmp_path / "broken.csv"
    broken.write_text("\n".join([*lines[:30], "one,two,three", *lines[30:]]))
    result = sparring("run", broken)
    assert result.code == 1
    assert result.err.startswith(f"sparring: {broken}:31: ")


def test_usage_mistakes_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["fight"], ["run", "digits", "--colour", "red"]):
        with pytest.raises(SystemExit) as stop:
            main(command)
        assert stop.value.code == 2
    capsys.readouterr()
    for name in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert stop.value.code == 0
        assert "examples:" in capsys.readouterr().out
        assert f"\n    {name} " in build_parser().format_help()


PROGRAM = """
import contextlib, io, sys
import sparring
before = set(sys.modules)
from sparring.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["tasks", "--json"])
try:
    main(["--version"])
finally:
    print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""


def test_the_version_and_the_tasks_need_no_other_package() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"sparring \d+\.\d+\.\d+\n", result.stdout)
    imported = {name.partition(".")[0] for name in result.stderr.split()}
    assert not imported & {"torch", "numpy", "pydantic", "rich", "transformers", "accelerate"}
    assert "sparring.lab.datasets" not in result.stderr


def test_it_runs_as_a_program_and_survives_a_closed_pipe() -> None:
    command = f"{sys.executable} -m sparring.cli losses | head -n 1"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment
    )
    assert result.stdout.startswith(f"{list_losses()[0]} ")
    assert result.stderr == ""


def test_a_terminal_shows_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real pseudo-terminal as standard error."""
    pty = pytest.importorskip("pty")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    chunks: list[bytes] = []
    reader = threading.Thread(target=_read, args=(master, chunks))
    reader.start()
    with open(slave, "w", encoding="utf-8") as terminal, contextlib.redirect_stdout(io.StringIO()):
        monkeypatch.setattr(sys, "stderr", terminal)
        code = main(["run", "digits", "--epochs", "1", "--threads", "1", "--out", str(tmp_path)])
        monkeypatch.undo()
    reader.join()
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(chunks).decode())
    assert code == 0
    assert re.search(r"as-softmax delta=0.8 seed 0.*34/34", text)
    assert re.search(r"loss \d\.\d+ · won \d+% · accumulation 1", text)


def _read(master: int, chunks: list[bytes]) -> None:
    with contextlib.suppress(OSError):  # the other end was closed
        while chunk := os.read(master, 65536):
            chunks.append(chunk)
