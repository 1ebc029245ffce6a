"""Damaged run folders and the commands that read them: a clear error or a result, no other exception."""

import copy
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparring.cli.app import main
from sparring.files import CheckpointWarning
from sparring.lab.errors import UserError
from sparring.lab.paper.page.results_page import write_page
from sparring.lab.paper.study_records import Results, read_results, record, write_results
from sparring.lab.report import gather
from sparring.lab.report.build import collect
from sparring.lab.runs.config import Config
from sparring.lab.runs.jobs import remove
from sparring.lab.runs.plan import open_task, plan
from sparring.lab.runs.predict import Predictor, find_run
from sparring.lab.runs.records import Journal, RunFolder
from sparring.lab.runs.runner import Run, run
from tests.hostile.size import FACTOR
from tests.lab.conftest import small, train

FLAGS = [
    "digits",
    "--n-train",
    "60",
    "--n-dev",
    "30",
    "--n-test",
    "30",
    "--epochs",
    "1",
    "--threads",
    "1",
    "--device",
    "cpu",
]
NAMES = (
    "summary.json",
    "data.json",
    "machine.json",
    "steps.jsonl",
    "epochs.jsonl",
    "evaluations.jsonl",
    "predictions.jsonl",
)
JUNK: list[Any] = [
    *(None, True, "", "x", "3.5", "\ud800", 0, -1, 10**400, 1e308, -1e308, float("nan"), float("inf"), 0.5),
    *([], {}, [None], [[]], {"a": []}, ["x"] * 50, {"accuracy": "1"}),
]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax and AS-Softmax, by the command."""
    out = tmp_path_factory.mktemp("digits")
    assert main(["compare", *FLAGS, "--losses", "softmax,as-softmax", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kinds")
    for kind in ("token", "multi-label"):
        many = "multilabel-" if kind == "multi-label" else ""
        train(out, *small(kind), [f"{many}softmax", f"{many}as-softmax"], epochs=1)
    return out


# ------------------------------------------------------------ breaking files


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a value with a key of it."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def break_value(value: Any, draw: random.Random) -> Any:
    """Another value somewhere in it, or a key less."""
    value = copy.deepcopy(value)
    container, key = draw.choice([(None, None), *places(value)])
    if container is None:
        return draw.choice(JUNK)
    if isinstance(container, dict) and draw.random() < 0.3:
        del container[key]
    else:
        container[key] = draw.choice(JUNK)
    return value


def break_text(text: str, draw: random.Random) -> bytes:
    """A flipped bit, a cut, a piece twice, a piece of something else."""
    content = bytearray(text.encode())
    at = draw.randrange(len(content) + 1)
    way = draw.randrange(5)
    if way == 0 and at < len(content):
        content[at] ^= 1 << draw.randrange(8)
    elif way == 1:
        del content[at:]
    elif way == 2:
        content[at:at] = content[at // 2 : at]
    elif way == 3:
        content[at:at] = draw.choice(
            [b"\n", b"\0" * 9, b"\xff\xfe", b"[" * 5000, b"NaN", b"1e999", b"9" * 5000, b'{"a": 1}\n']
        )
    else:
        content.clear()
    return bytes(content)


def break_file(path: Path, draw: random.Random) -> None:
    text = path.read_text(encoding="utf-8")
    if draw.random() < 0.3 or not text:
        path.write_bytes(break_text(text, draw))
    elif path.suffix == ".json":
        path.write_text(json.dumps(break_value(json.loads(text), draw)))
    else:
        lines = text.splitlines()
        i = draw.randrange(len(lines))
        lines[i] = json.dumps(break_value(json.loads(lines[i]), draw))
        path.write_text("\n".join(lines) + "\n" * draw.randrange(2))


def survives(read: Callable[[], Any]) -> bool:
    """Whether it gave a result; a UserError is right, too, if it names a file."""
    try:
        read()
    except UserError as error:
        message = str(error)
    else:
        return True
    assert "/" in message
    return False


def fuzz(source: Path, copied: Path, seed: int, n: int, read: Callable[[Path], Any]) -> int:
    """Break a file of a run, n times; how often there was a result all the same."""
    draw, n_read = random.Random(seed), 0
    shutil.copytree(source, copied)
    files = sorted(path for name in NAMES for path in copied.rglob(name))
    for _ in range(n):
        path = draw.choice(files)
        whole = path.read_bytes()
        break_file(path, draw)
        n_read += survives(lambda: read(copied))
        path.write_bytes(whole)
    assert survives(lambda: read(copied))
    return n_read


# ------------------------------------------------------------ the commands


def collected(path: Path) -> None:
    for section in gather.sections(gather.find([path])):
        collect(section)


def studied(path: Path) -> None:
    """What `sparring paper` reads of its runs."""
    for folder in gather.find([path]):
        record(folder, "figure3", "Softmax")


@pytest.mark.parametrize(("read", "n"), [(collected, 60), (find_run, 40), (studied, 40)])
def test_broken_runs(digits: Path, tmp_path: Path, read: Callable[[Path], Any], n: int) -> None:
    assert 0 < fuzz(digits, tmp_path / "runs", 0, n * FACTOR, read) < n * FACTOR


def test_broken_runs_of_other_kinds(kinds: Path, tmp_path: Path) -> None:
    assert 0 < fuzz(kinds, tmp_path / "runs", 1, 40 * FACTOR, collected) < 40 * FACTOR


def test_broken_runs_by_command(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """run, compare, tune and report: exit code 0 or 1, one line on standard error."""
    draw, copied = random.Random(2), tmp_path / "runs"
    shutil.copytree(digits, copied)
    commands = [
        ["run", *FLAGS, "--out", str(copied)],
        ["compare", *FLAGS, "--losses", "softmax,as-softmax", "--json", "--out", str(copied)],
        ["tune", *FLAGS, "--loss", "as-softmax", "--values", "delta=0.3", "--no-test", "--out", str(copied)],
        ["report", str(copied), "-o", str(tmp_path / "report.html")],
    ]
    assert [main(command) for command in commands] == [0] * 4
    files = sorted(path for name in NAMES for path in copied.rglob(name))
    for i in range(4 * FACTOR):
        path = draw.choice([path for path in files if path.name == "summary.json"] if i % 2 else files)
        whole = path.read_bytes()
        break_file(path, draw)
        capsys.readouterr()
        code = main(commands[i % 4])
        assert code in (0, 1)
        if code:
            (line,) = capsys.readouterr().err.splitlines()
            assert path.name in line
        path.write_bytes(whole)


def test_broken_records_of_a_study(digits: Path, tmp_path: Path) -> None:
    """What `sparring paper --records` reads: the page, tables and figures made of it."""
    folders = gather.find([digits])
    names = ["Softmax", "AS-Softmax"]
    for study in ("table2", "table3", "table4", "figure3", "figure4"):
        path, draw = tmp_path / f"{study}.jsonl", random.Random(study)
        rows = [record(folder, study, name) for folder, name in zip(folders, names, strict=True)]
        write_results(path, Results(study, rows, {"digits": "small"}))
        whole = path.read_bytes()
        for _ in range(12 * FACTOR):
            break_file(path, draw)
            survives(lambda: write_page(tmp_path, tmp_path / "page" / "README.md"))
            path.write_bytes(whole)
        assert read_results(path).tasks == ["digits"]
        path.unlink()


@pytest.mark.parametrize("name", ["model/model.safetensors", "model/config.json", "data.json"])
def test_a_flipped_bit_in_the_files_of_a_model_is_noticed(name: str, digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "runs")
    draw, run = random.Random(name), find_run(tmp_path / "runs")
    Predictor(run)
    path = run.path / name
    whole = path.read_bytes()
    for _ in range(25 * FACTOR):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"cannot be read .*fresh=True runs it again"):
            Predictor(run)
    path.write_bytes(whole)
    (run.model / "more.json").write_text("{}")
    with pytest.raises(UserError, match=r"model/more.json is not the run's"):
        Predictor(run)


def test_a_run_of_an_earlier_version_is_used_with_a_warning(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "runs")
    run = find_run(tmp_path / "runs")
    summary = json.loads((run.path / "summary.json").read_text())
    del summary["checksums"]
    (run.path / "summary.json").write_text(json.dumps(summary))
    with pytest.warns(CheckpointWarning, match=r"no checksums, so the model cannot be verified"):
        Predictor(run)


# ------------------------------------------------------------ journals


def test_a_broken_line_is_named_and_a_torn_last_one_dropped(tmp_path: Path) -> None:
    path, row = tmp_path / "steps.jsonl", {"step": 1, "epoch": 0, "loss": 0.5, "won_share": 0.5}
    good = json.dumps(row) + "\n"
    path.write_text(good * 2 + good[:20])
    assert RunFolder(tmp_path).lines("steps") == [row, row]
    for line, problem in (
        ("{", "Expecting property name"),
        ("[1]", "the content must be a valid object"),
        (json.dumps({**row, "step": "1"}), "step must be a valid integer, got '1'"),
        (json.dumps({"step": 1}), 'the content must be an object with "epoch"'),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "Exceeds the limit"),
    ):
        path.write_text(good + line + "\n" + good)
        with pytest.raises(UserError, match=r"steps.jsonl:2: .*remove this line, or fresh=True") as error:
            RunFolder(tmp_path).lines("steps")
        assert problem in str(error.value)
        with pytest.raises(UserError, match=r"steps.jsonl:2: .*; fresh=True starts it again"):
            Journal(path).add({**row, "step": 2})


class Stop:
    """Watches a run, and does something at a step of it."""

    def __init__(self, at: int, does: Callable[[], Any]) -> None:
        self.at, self.does = at, does

    def note(self, text: str) -> None:
        pass

    def begin(self, total: int) -> None:
        pass

    def step(self, entry: dict[str, Any]) -> bool:
        return bool(entry["step"] == self.at and self.does())

    def evaluation(self, entry: dict[str, Any]) -> None:
        pass


def planned(out: Path, **settings: Any) -> Any:
    config = Config("digits", out=str(out), n_train=60, n_dev=30, n_test=30, epochs=2, threads=1, **settings)
    return plan(config, *open_task(config))


@pytest.mark.parametrize(
    ("deleted", "at"), [(".", 1), (".", 4), ("data.json", 3), ("steps.jsonl", 1), ("steps.jsonl", 4)]
)
def test_what_is_deleted_in_mid_run_is_an_error(deleted: str, at: int, tmp_path: Path) -> None:
    """The folder or a file of it, in the first epoch, in the second or at the last step of all."""
    made = planned(tmp_path)
    target = made.folder.path / deleted

    def delete() -> None:
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    with pytest.raises((UserError, OSError), match=r"removed while its run was under way"):
        run(made, Stop(at, delete))
    assert not made.folder.done
    assert not list(tmp_path.rglob("*.part"))
    if deleted == "steps.jsonl" and at > 2:  # a checkpoint would go on, but the lines before it are lost
        with pytest.raises(UserError, match=r"steps.jsonl: .*fresh=True starts it again"):
            run(made)
        remove([made.folder], cpu=True)
    assert run(made)["epochs"] == 2
    assert [line["step"] for line in made.folder.lines("steps")] == [1, 2, 3, 4]


def test_an_unfinished_run_with_broken_files(tmp_path: Path) -> None:
    """It continues, or the error names the problem; it never ends with another result."""
    whole = run(planned(tmp_path / "whole", save_every=1))
    cut = planned(tmp_path / "cut", save_every=1)
    with pytest.raises(KeyboardInterrupt):
        Run(cut, Stop(3, lambda: True)).summary()
    saved = tmp_path / "saved"
    shutil.copytree(cut.folder.path, saved)
    draw = random.Random(0)
    for name in ("steps.jsonl", "epochs.jsonl", "evaluations.jsonl", "checkpoint.pt") * FACTOR:
        path = cut.folder.path / name
        if name.endswith(".pt"):
            path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])
        else:
            break_file(path, draw)
        if survives(lambda: _again(cut)):
            assert cut.folder.summary()["checksums"] == whole["checksums"]
            assert cut.folder.summary()["test"] == whole["test"]
            assert [line["step"] for line in cut.folder.lines("steps")] == [1, 2, 3, 4]
        shutil.rmtree(cut.folder.path)
        shutil.copytree(saved, cut.folder.path)


def _again(made: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        run(made)
