"""The report as data, as text and as a command. How it looks is test_report_browser's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.cli.app import main
from sparring.lab.errors import UserError
from sparring.lab.report.blocks import blocks
from sparring.lab.report.build import build_report, collect
from tests.lab.conftest import ATTACK, KINDS, section

MOST_BYTES = 8_000_000
PLOTTING = ("blocks", "build", "chart_parts", "charts", "curves", "training_blocks")


# ------------------------------------------------------------ the page


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_blocks(kind: str, kinds: Path) -> None:
    found = collect(section(kinds / f"colours-{kind}"))
    assert found["kind"] == kind
    made = blocks(found)
    titles = [block.title for block in made]
    assert [block.title for block in made if not block.verdict or not (block.charts or block.tables)] == []
    assert ("Calibration" in titles) == (kind in ("pair", "token"))
    assert {"Comparison", "Learning curves", "Won share", "Margins", "Loss and metric"} <= set(titles)
    assert ("Hardest samples" in titles) == (found["mistakes"]["ever"] > 0)
    assert {row["value"] for row in found["curves"]["delta"]} > {0.2}  # the warm-up
    assert found["curves"]["accumulation"]
    assert all(row["sample"] and row["gold"] for row in found["hardest"])
    assert found["significance"][0]["n_samples"] == 24


def test_the_page_is_whole_small_and_asks_nobody(digits: Path, kinds: Path, tmp_path: Path) -> None:
    made = build_report([digits, kinds], tmp_path / "page" / "report.html", "Mine & yours")
    text = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert made["bytes"] < MOST_BYTES
    specs = json.loads(re.findall(r'id="specs">(.*?)</script>', text, re.S)[0])
    assert all("words" in table for spec in specs.values() for table in spec["datasets"].values())  # packed
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["report.html"]
    assert "<title>Mine &amp; yours</title>" in text
    outside = re.sub(
        r"<script>.*?</script>", "", text, flags=re.S
    )  # the bundle has addresses in its messages
    assert not re.search(
        r"<link|<iframe|\bsrc=(?!\"data:image/png;base64,)|href=\"http|url\(|@import", outside
    )
    assert "default-src 'none'" in text
    assert "colours-token" in outside
    assert "Overview" in outside


def test_texts_are_text(hostile: Path, tmp_path: Path) -> None:
    build_report([hostile], tmp_path / "report.html", "</title><script>1</script>")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert "&lt;img src=x" in text  # among the hardest
    assert ATTACK not in text
    assert "<title>&lt;/title&gt;" in text


def test_what_a_section_says(digits: Path) -> None:
    made = {block.title: block for block in blocks(collect(section(digits)))}
    assert "with 3 seeds" in made["Comparison"].verdict or "(95 %: " in made["Comparison"].verdict
    assert re.search(r"softmax \d+\.\d points, \d+\.\d after temperature", made["Calibration"].verdict)
    assert re.search(r"\d+ of 160 test samples are wrong in at least", made["Hardest samples"].verdict)
    epochs = made["Learning curves"].charts["Dev accuracy by epoch"].to_dict()["layer"][0]["encoding"]["x"]
    assert epochs["axis"]["values"] == [0, 1, 2, 3]
    right = made["Hardest samples"].tables[0].rows
    assert all(row[3].value < 9 for row in right)  # none that all nine runs have right


def test_one_contestant_alone_has_a_page(hostile: Path) -> None:
    found = collect(section(hostile))
    assert (found["significance"], found["classes"], found["sensitivity"]) == ([], [], {})
    titles = [block.title for block in blocks(found)]
    assert "Classes" not in titles
    assert "Comparison" in titles


def test_runs_that_were_not_tested_are_compared_on_dev(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "runs")
    for path in (tmp_path / "runs").rglob("summary.json"):
        summary = {**json.loads(path.read_text()), "test": None}
        del summary["calibration"]  # as in runs of earlier versions
        path.write_text(json.dumps(summary))
        (path.parent / "predictions.jsonl").unlink()
    found = build_report([tmp_path / "runs"], tmp_path / "report.html")["tasks"][0]
    assert (found["part"], found["hardest"], found["classes"]) == ("dev", [], [])
    assert {block.title for block in blocks(found)}.isdisjoint({"Calibration", "Classes", "Confusions"})
    assert found["significance"][0]["difference"] is not None
    assert found["significance"][0]["p_samples"] is None


# ------------------------------------------------------------ the command


def test_the_command_writes_the_page_and_says_so(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.html"
    assert main(["report", str(digits), "-o", str(path)]) == 0
    assert re.fullmatch(rf"{path}: 9 runs, 1\.\d MB\n", capsys.readouterr().out)
    assert main(["report", str(digits), "-o", str(path), "--json", "--title", "T"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["report"], printed["title"], printed["bytes"]) == (str(path), "T", path.stat().st_size)
    assert [row["contestant"] for row in printed["tasks"][0]["rows"]] == [
        "softmax",
        "as-softmax delta=0.1",
        "as-softmax delta=0.3",
    ]


def test_a_run_under_way_is_left_out_and_said(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(digits, tmp_path / "runs")
    for path in (tmp_path / "runs").rglob("seed-2/summary.json"):
        path.unlink()
    assert build_report([tmp_path / "runs"], tmp_path / "report.html")["n_unfinished"] == 3
    assert "6 runs of 1 task; 3 not finished and left out" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )
    for path in (tmp_path / "runs").rglob("summary.json"):
        path.unlink()
    assert main(["report", str(tmp_path / "runs")]) == 1
    assert "no finished run in there (9 under way" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "output", "message"),
    [
        (False, "r.html", "runs: no such folder; sparring run"),
        (True, "r.html", "no finished run in there"),
        (True, "runs", "a folder; the report is one file"),
    ],
)
def test_mistakes_are_named(there: bool, output: str, message: str, tmp_path: Path) -> None:
    if there:
        (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match=message):
        build_report([tmp_path / "runs"], tmp_path / output)
    assert not (tmp_path / "r.html").exists()


def test_without_altair_the_extra_is_named(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [
        name for name in sys.modules if name.startswith("sparring.lab.") and name.split(".")[-1] in PLOTTING
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "altair", None)
    assert main(["report", str(digits)]) == 1
    assert capsys.readouterr().err == "sparring: charts need altair: pip install 'sparring[report]'\n"


def test_a_report_imports_no_training(hostile: Path, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from sparring.lab.report.build import build_report
build_report([Path(sys.argv[1])], Path(sys.argv[2]))
heavy = {"transformers", "accelerate", "sklearn", "sparring.training.loop", "sparring.lab.runs.config"}
print(heavy & {*sys.modules})
"""
    command = [sys.executable, "-c", code, str(hostile), str(tmp_path / "r.html")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "set()"
