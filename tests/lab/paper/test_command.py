"""``sparring paper``: every table and figure is made by its command, at a tiny size."""

import json
from pathlib import Path

import pytest

from sparring import cli
from sparring.lab.models import wheels
from sparring.lab.paper import command
from sparring.lab.paper.setup_tables import SETUP_TABLES
from sparring.lab.paper.studies import STUDIES
from sparring.lab.runs.records import find_runs
from tests.lab.paper.conftest import TINY, paper

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", STUDIES)
def test_made_by_its_command(name: str, runs: Path, tmp_path: Path, capsys: Output) -> None:
    assert paper(*name.split(), *TINY, "--out", str(runs), "--save", str(tmp_path), "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert output["study"] == name
    for table in output["tables"]:
        ours = [i for i, column in enumerate(table["columns"]) if column != "paper"]
        assert all(row[i] is not None for row in table["rows"] for i in ours)
        assert table["notes"][0].startswith("letters, small scale: ")
        assert "tiny, 48 of 48 samples" in table["notes"][0]
    stem = tmp_path / name.replace(" ", "_")
    assert name in stem.with_suffix(".md").read_text()
    saved = json.loads(stem.with_suffix(".json").read_text())
    assert saved["tables"] == output["tables"]
    assert saved["seeds"] == [0]
    assert saved["machine"]["versions"]["torch"]
    charts = [path.read_text() for path in tmp_path.glob(f"{stem.name}_*.svg")]
    assert bool(charts) == ("figure" in name)
    assert all("<svg" in chart[:200] and "<path" in chart for chart in charts)

    # and again from the records alone
    assert paper(*name.split(), "--records", str(stem.with_suffix(".jsonl")), "--json") == 0
    assert json.loads(capsys.readouterr().out) == output


def test_a_second_call_trains_nothing(runs: Path, capsys: Output) -> None:
    words = ["figure4", *TINY, "--out", str(runs)]
    assert paper(*words) == 0
    before = {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in find_runs(runs)}
    capsys.readouterr()
    assert paper(*words) == 0
    assert {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in find_runs(runs)} == before
    assert "runs to do" not in capsys.readouterr().err


def test_list(capsys: Output) -> None:
    assert paper() == 0
    names = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [*STUDIES, *SETUP_TABLES]


def test_dry_run_trains_nothing(runs: Path, tmp_path: Path, capsys: Output) -> None:
    assert paper("table2", *TINY, "--out", str(tmp_path), "--dry-run") == 0
    out = capsys.readouterr().out
    assert "as-softmax delta=0.3" in out
    assert "10 runs to do: less than a minute with --jobs 1" in out
    assert out.count("never run") == 10
    assert not list(tmp_path.iterdir())


def test_dry_run_names_committed_records(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """A run with a record in the repository was run, wherever that was."""
    monkeypatch.setattr(command, "COMMITTED", tmp_path / "records")
    words = ["table8", *TINY, "--out"]
    assert paper(*words, str(runs), "--save", str(tmp_path / "records")) == 0
    capsys.readouterr()
    assert paper(*words, str(tmp_path / "others"), "--dry-run", "--seeds", "2") == 0
    out = capsys.readouterr().out
    assert out.count("1 of 2 recorded") == 2
    assert "never run" not in out
    assert "does not repeat those 2" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table9"], "no table or figure"),
        (["table2", "--tasks", "leters"], 'did you mean "letters"?'),
        (["table2", "--tasks", "letters", "--seeds", "0"], "seeds must be at least 1"),
        (["table2", "--tasks", "letters", "--epochs", "none"], "epochs must be"),
        (["table2", "--records", "none.jsonl"], "no records of a study"),
        (["table2", "--tasks", "letters", "--jobs", "0"], "jobs must be at least 1"),
        (["table2", "--tasks", "letters", "--no-test"], "of the test set"),
        (["figure5", "--tasks", "colours-multilabel"], "figure5 is about losses with one target"),
    ],
)
def test_mistakes(words: list[str], message: str, runs: Path, tmp_path: Path, capsys: Output) -> None:
    assert paper(*words, "--out", str(tmp_path)) == 1
    assert message in capsys.readouterr().err


def test_missing_data(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert paper("figure1", "--data-dir", str(tmp_path), "--dry-run") == 1
    assert "none of its tasks is here" in capsys.readouterr().err


def test_all_continues_past_a_study_that_does_not_fit(runs: Path, tmp_path: Path, capsys: Output) -> None:
    tasks = "colours-multilabel, colours-multilabel"
    assert paper("all", *TINY, "--tasks", tasks, "--out", str(tmp_path), "--dry-run") == 0
    output = capsys.readouterr()
    assert "figure5: left out" in output.err
    assert "sparse figure2: Sparse-Softmax: micro F1 against k" in output.out
    tables_2_and_3 = output.out.partition("table4:")[0]
    assert tables_2_and_3.count("multilabel-as-softmax delta=0.6 speed=fast") == 2  # the task once in each


def test_a_network_that_is_missing(runs: Path, tmp_path: Path, capsys: Output) -> None:
    words = ["figure1", *TINY, "--model", str(tmp_path / "none"), "--out", str(tmp_path), "--dry-run"]
    assert paper(*words) == 0
    out = capsys.readouterr().out
    assert "as-softmax delta=0.3" in out
    assert "runs to do: unknown time" in out


def test_a_network_that_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path
) -> None:
    missing = wheels.Wheel("some-package==1", "no_such_module", "model")
    monkeypatch.setitem(wheels.WHEELS, "efficientnet-lite0", missing)
    monkeypatch.setattr("sparring.lab.paper.command.time_needed", lambda *_: "a moment")
    words = ["sparse", "table6", "--tasks", "digits", "--dry-run"]
    assert cli.main(["paper", *words, "--out", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert "digits, pre-trained: left out (the model efficientnet-lite0 comes in a package" in output.err
    assert "AS-Softmax, from scratch" in output.out
    assert "Softmax, pre-trained" not in output.out
    assert cli.main(["paper", *words, "--out", str(tmp_path), "--model", "convnext"]) == 0
    out = capsys.readouterr().out  # a network that the user names is the only one
    assert "Softmax, convnext" in out
    assert "Softmax, from scratch" not in out


def test_settings_beside_the_papers(capsys: Output, tmp_path: Path) -> None:
    assert paper("table6", "--json") == 0
    rows = {row[0]: row[1:] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["AS-Softmax delta/warmup"][2:4] == [[0.3, 0.15], [0.3, 0.15]]  # clinc_oos and the paper's
    assert len(rows) == 7
    assert paper("table", "5", "--scale", "full", "--save", str(tmp_path)) == 0
    text = (tmp_path / "table5.md").read_text()
    assert "| epochs | 7 | 7 | 10 | 10 | 20 | 20 | 15 | 15 | 20 | 20 | 10 | 10 |" in text
    assert "| model | bert-base-cased | – |" in text
    assert paper("sparse", "table4", "--scale", "full") == 0
    assert "360" in capsys.readouterr().out


def test_data_sets_beside_the_papers(capsys: Output, tmp_path: Path) -> None:
    for name, number in ((["table1"], "15,250"), (["sparse", "table2"], "15,100")):
        assert paper(*name, "--data-dir", str(tmp_path)) == 0  # without data, the papers' numbers alone
        assert number in capsys.readouterr().out
