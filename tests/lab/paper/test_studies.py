"""Every table and figure, made at a tiny size by its command; the arithmetic on records made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparring import cli
from sparring.lab.datasets import UserError
from sparring.lab.paper import figures, tables
from sparring.lab.paper import published as paper
from sparring.lab.paper.estimate import estimate
from sparring.lab.paper.listings import LISTINGS
from sparring.lab.paper.results import Results, histogram, read_results
from sparring.lab.paper.studies import STUDIES, base_config, entries_of, find_study
from sparring.lab.runs.plan import open_task, plan
from sparring.lab.runs.records import find_runs

TINY = [
    "--tasks",
    "languages",
    "--seeds",
    "1",
    "--n-train",
    "120",
    "--n-dev",
    "40",
    "--n-test",
    "40",
    "--epochs",
    "1",
    "--batch-size",
    "8",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder: studies share runs."""
    return tmp_path_factory.mktemp("runs")


def command(*words: str) -> int:
    return cli.main(["paper", *words])


# ------------------------------------------------------------ the commands


@pytest.mark.parametrize("name", STUDIES)
def test_made_by_its_command(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*name.split(), *TINY, "--out", str(runs), "--save", str(tmp_path), "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["study"] == name
    for sheet in made["sheets"]:
        assert all(cell["ours"] is not None for cell in sheet["cells"])
        assert sheet["notes"][0].startswith("languages, small scale: ")
        assert "tiny, 120 of 20,949 samples" in sheet["notes"][0]
    stem = tmp_path / name.replace(" ", "_")
    assert name in stem.with_suffix(".md").read_text()
    saved = json.loads(stem.with_suffix(".json").read_text())
    assert saved["sheets"] == made["sheets"]
    assert saved["seeds"] == [0]
    assert saved["machine"]["versions"]["torch"]
    charts = list(tmp_path.glob(f"{stem.name}_*.svg"))
    assert bool(charts) == ("figure" in name)
    assert all("<svg" in path.read_text()[:200] and "<path" in path.read_text() for path in charts)

    # and again from the records alone
    assert command(*name.split(), "--records", str(stem.with_suffix(".jsonl")), "--json") == 0
    assert json.loads(capsys.readouterr().out) == made


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [*STUDIES, *LISTINGS]


def test_dry_run_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("table2", *TINY, "--out", str(tmp_path), "--dry-run") == 0
    out = capsys.readouterr().out
    assert "as-softmax delta=0.3" in out
    assert "10 runs to do: less than a minute with --jobs 1" in out
    assert not list(tmp_path.iterdir())


def test_a_second_call_trains_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["figure4", *TINY, "--out", str(runs)]
    assert command(*words) == 0
    before = {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in find_runs(runs)}
    capsys.readouterr()
    assert command(*words) == 0
    assert {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in find_runs(runs)} == before
    assert "runs to do" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table9"], "no table or figure"),
        (["table2", "--tasks", "langages"], 'did you mean "languages"?'),
        (["table2", "--tasks", "languages", "--seeds", "0"], "seeds must be at least 1"),
        (["table2", "--tasks", "languages", "--epochs", "none"], "epochs must be"),
        (["table2", "--records", "none.jsonl"], "no records of a study"),
        (["table2", "--tasks", "languages", "--jobs", "0"], "jobs must be at least 1"),
        (["table2", "--tasks", "languages", "--no-test"], "of the test set"),
        (["figure5", "--tasks", "languages-multilabel"], "figure5 is about losses with one target"),
    ],
)
def test_mistakes(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*words, "--out", str(tmp_path)) == 1
    assert said in capsys.readouterr().err


def test_data_that_is_not_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert command("figure1", "--data-dir", str(tmp_path), "--dry-run") == 1
    err = capsys.readouterr().err
    assert "none of its tasks is here" in err


def test_all_goes_on_past_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--n-train", "40", "--epochs", "1", "--n-dev", "20", "--n-test", "20", "--seeds", "1"]
    assert (
        command(
            "all",
            "--tasks",
            "languages-multilabel, languages-multilabel",
            *small,
            "--out",
            str(tmp_path),
            "--dry-run",
        )
        == 0
    )
    said = capsys.readouterr()
    assert "figure5: left out" in said.err
    assert "sparse figure2: Sparse-Softmax: micro F1 against k" in said.out
    once = said.out.partition("table4:")[0]
    assert once.count("multilabel-as-softmax delta=0.3 speed=all") == 2  # tables 2 and 3, the task once


def test_another_model_is_taken_whole(tmp_path: Path) -> None:
    config, _, _ = base_config("languages", "small", {"model": "tiny", "out": str(tmp_path)})
    assert (config.layers, config.lr, config.n_train) == (None, None, 4000)


def test_a_network_that_is_not_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert (
        command(
            "figure1",
            "--tasks",
            "languages",
            "--model",
            str(tmp_path / "none"),
            "--out",
            str(tmp_path),
            "--dry-run",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "as-softmax delta=0.3" in out
    assert "nobody knows how long they take" in out


def test_names() -> None:
    assert find_study(["Table-2"]).name == "table2"
    assert find_study(["sparse", "figure", "1"]).name == "sparse figure1"


# ------------------------------------------------------------ what is planned


def test_every_task_is_trained_alike() -> None:
    config, task, data = base_config("languages", "small", {})
    plans = [entry.plan for entry in entries_of(STUDIES["table2"], config, task, data, 2)]
    alike = {
        (
            each.config.model,
            each.config.lr,
            each.config.epochs,
            each.config.batch_size,
            each.config.eval_every,
        )
        for each in plans
    }
    assert len(alike) == 1
    assert len({each.folder.path for each in plans}) == len(plans) == 20


@pytest.mark.parametrize(
    ("name", "words"),
    [("sst5", {"epochs": 7, "batch_size": 16, "lr": 2e-5}), ("wos", {"epochs": 10, "batch_size": 12})],
)
def test_full_scale_is_the_papers(name: str, words: dict[str, Any]) -> None:
    from sparring.lab.datasets import get_task
    from sparring.lab.paper import scales

    made = scales.config_of(get_task(name), "full")
    assert made["model"] == "bert-base-cased"
    assert words.items() <= made.items()


def test_full_scale_of_the_other_paper() -> None:
    from sparring.lab.datasets import get_task
    from sparring.lab.paper import scales

    made = scales.config_of(get_task("wos"), "full", sparse=True)
    assert {"epochs": 20, "batch_size": 16, "max_length": 360}.items() <= made.items()


def test_a_k_beyond_the_classes_is_left_out() -> None:
    config, task, data = base_config("languages", "small", {})
    names = [entry.method for entry in entries_of(STUDIES["sparse table1"], config, task, data, 1)]
    assert names == ["Softmax", "k=1", "k=10", "k=20", "k=50"]  # of 89


def test_estimate_grows_with_the_work(tmp_path: Path) -> None:
    config, task, data = base_config("languages", "small", {"n_train": 64, "out": str(tmp_path)})
    once = plan(config.replace(loss="softmax", epochs=1), task, data)
    more = plan(config.replace(loss="softmax", epochs=8), task, data)
    guess = estimate([once, more])
    assert guess.measured
    assert guess.seconds > estimate([once]).seconds > 0


def test_estimate_from_runs_that_are_there(runs: Path) -> None:
    found = find_runs(runs)
    if not found:  # alone, this test makes one
        assert command("figure1", *TINY, "--out", str(runs)) == 0
        found = find_runs(runs)
    summary = found[0].summary()
    from sparring.lab.runs.config import Config

    config = Config(**summary["config"])
    made = plan(config.replace(seed=99), *open_task(config), strict=False)
    assert not estimate([made]).measured


# ------------------------------------------------------------ tables that need no runs


def test_settings_beside_the_papers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command("table6", "--json") == 0
    rows = {row[""]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["AS-Softmax delta/warmup"]["clinc_oos"] == "0.3/0.15"
    assert len(rows) == 7
    assert command("table", "5", "--scale", "full", "--save", str(tmp_path)) == 0
    text = (tmp_path / "table5.md").read_text()
    assert "| epochs | 7 | 7 | 10 | 10 | 20 | 20 | 15 | 15 | 20 | 20 | 10 | 10 |" in text
    assert "| model | bert-base-cased | – |" in text
    assert command("sparse", "table4", "--scale", "full") == 0
    assert "360" in capsys.readouterr().out


def test_data_sets_beside_the_papers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in (["table1"], ["sparse", "table2"]):
        assert command(*name, "--data-dir", str(tmp_path)) == 0  # nothing is here: the papers' numbers are
        assert "15,250" in (out := capsys.readouterr().out) or "15,100" in out


# ------------------------------------------------------------ records made by hand


def one(method: str, seed: int, **values: Any) -> dict[str, Any]:
    plain = {
        "task": "sst5",
        "metric": "accuracy",
        "test": {"accuracy": 0.5, "macro_f1": 0.4, "matthews": 0.3},
        "dev": {"accuracy": 0.5},
        "seconds": 10.0,
        "cpu_seconds": 10.0,
        "correlation": -0.5,
        "n_samples": 100,
        "machine": {"gpu": None},
        "evaluations": [
            {"step": 1, "loss": 2.0, "value": 0.3},
            {"step": 2, "loss": 1.0, "value": 0.4},
            {"step": 3, "loss": 1.5, "value": 0.5},
        ],
        "steps": [{"step": i, "loss": 1.0 / i, "won_share": i / 10} for i in range(1, 11)],
        "margins": [0] * 39 + [10],
    }
    return {"study": "table2", "method": method, "seed": seed, **plain, **values}


def results(*records: dict[str, Any]) -> Results:
    return Results("table2", records, {"sst5": "small scale"})


def cell(sheet: tables.Sheet, row: str) -> tables.Cell:
    (found,) = [cell for cell in sheet.cells if cell.row == row]
    return found


def test_quality_has_the_published_number_beside() -> None:
    made = results(
        one("Softmax", 0),
        one("Softmax", 1, test={"accuracy": 0.54}),
        one("AS-Softmax", 0, test={"accuracy": 0.55}),
    )
    sheet, roberta = tables.table2(made)
    assert cell(sheet, "Softmax").words() == ("52.00 ± 2.83", "51.90")
    assert cell(sheet, "AS-Softmax").words() == ("55.00", "53.12")
    assert cell(roberta, "AS-Softmax").words() == ("55.00", "57.29")
    assert sheet.rows() == [["Softmax", "52.00 ± 2.83", "51.90"], ["AS-Softmax", "55.00", "53.12"]]
    assert "| AS-Softmax | 55.00 | 53.12 |" in sheet.markdown()


def test_a_figure_the_task_does_not_have_is_left_open() -> None:
    made = results(one("Softmax", 0, test={"f1": 0.5, "accuracy": 0.9}))
    assert made.figure("sst5", "Softmax", "micro_f1") is None  # of spans, accuracy is something else
    assert results(one("Softmax", 0)).figure("sst5", "Softmax", "micro_f1") == {
        "mean": 50.0,
        "std": None,
        "values": [50.0],
    }
    assert tables.published(paper.QUALITY, "Softmax", "sst5", "macro_f1") is None
    assert tables.published(paper.QUALITY, "Softmax", "eurlex", "macro_f1") == 46.87


def test_time_is_against_softmax_with_the_same_seed() -> None:
    made = results(
        one("Softmax", 0),
        one("Softmax", 1, cpu_seconds=20.0),
        one("AS-Speed", 0, cpu_seconds=8.0),
        one("AS-Speed", 1, cpu_seconds=16.0),
    )
    (sheet,) = tables.table3(made)
    assert cell(sheet, "Softmax (seconds)").words() == ("15 ± 7", "288")
    assert cell(sheet, "AS-Speed").words() == ("-20%", "-22%")


def test_correlation() -> None:
    (sheet,) = tables.table4(results(one("Softmax", 0), one("Softmax", 1, correlation=None)))
    assert cell(sheet, "Softmax").words() == ("-0.500", "0.038")


def test_glue_has_a_mean() -> None:
    (sheet,) = tables.table8(
        Results(
            "table8",
            [one("Softmax", 0, task="rte"), one("Softmax", 0, task="mrpc", test={"accuracy": 0.7})],
            {"rte": "", "mrpc": ""},
        )
    )
    mean = sheet.cells[-2]
    assert (mean.row, mean.column, mean.published) == ("Softmax", "mean of 2", None)
    assert mean.ours is not None
    assert mean.ours["mean"] == pytest.approx(60)


def test_losses_are_normalised_run_by_run() -> None:
    assert [point["loss"] for point in figures.normalised(one("Softmax", 0)["evaluations"])] == [
        1.0,
        0.0,
        0.5,
    ]
    _, right = figures.dev(results(one("Softmax", 0)))
    assert "Softmax 0.50 of its range" in right.notes[-1]


def test_won_share_by_tenths() -> None:
    (sheet,) = figures.won(results(one("AS-Softmax", 0), one("AS-Softmax", 1)))
    assert [cell.ours["mean"] for cell in sheet.cells if cell.ours] == pytest.approx(
        [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    )


def test_margins_as_shares() -> None:
    (sheet,) = figures.margins(results(one("Softmax", 0)))
    assert [cell.words()[0] for cell in sheet.cells] == ["0.0"] * 7 + ["100.0"]
    assert histogram([-1.0, 1.0, 0.0, 0.01]) == [1] + [0] * 19 + [2] + [0] * 18 + [1]


def test_highest_delta() -> None:
    made = results(one("Softmax", 0), one("delta=0.1", 0), one("delta=0.2", 0, test={"accuracy": 0.6}))
    (sheet,) = figures.delta(made)
    assert "sst5: highest at delta=0.2" in sheet.notes[-1]
    assert cell(sheet, "Softmax").published == paper.QUALITY["Softmax"]["sst5"]


def test_records_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="no records of a study"):
        read_results(tmp_path / "x.jsonl")
