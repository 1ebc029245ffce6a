"""A run that diverges ends with one line and exit code 1; other runs continue, and tables name it."""

import json
from pathlib import Path

import pytest

from sparring.cli.app import main

QUICK = ["--epochs", "2", "--n-train", "200", "--n-dev", "50", "--n-test", "50", "--threads", "1"]


def sparring(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments, *QUICK, "--out", str(folder)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_run_that_diverges_is_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = sparring(capsys, tmp_path, "run", "digits", "--lr", "1e30")
    assert (code, out) == (1, "")
    assert err.startswith("sparring: as-softmax delta=0.8 seed 0: training diverged at step ")
    assert err.count("training diverged") == 1
    for part in ("last good loss", "learning rate", "lower learning rate", "--on-divergence"):
        assert part in err
    assert not list(tmp_path.rglob("summary.json")), "an unfinished run"


def test_on_divergence_ignore_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run", "digits", "--lr", "1e30", "--json", "--on-divergence", "ignore")
    with pytest.warns(UserWarning, match="no checkpoint is written"):
        code, out, _ = sparring(capsys, tmp_path, *arguments)
    assert code == 0
    assert len(json.loads(out)["rows"]) == 1
    (config,) = tmp_path.rglob("config.toml")
    assert 'on_divergence = "ignore"' in config.read_text()


def test_compare_continues_with_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("compare", "digits", "--losses", "softmax:lr=1e30,as-softmax,t-softmax")
    code, out, err = sparring(capsys, tmp_path, *arguments)
    assert code == 1
    assert ["softmax", "seed", "0", "diverged", *["–"] * 4] in [line.split() for line in out.splitlines()]
    assert len(list(tmp_path.rglob("summary.json"))) == 2
    assert err.count("training diverged") == 1
    assert "sparring: softmax seed 0: training diverged" in err


def test_tune_chooses_among_the_points_that_did_not_diverge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("tune", "digits", "--loss", "softmax", "--values", "lr=1e30,0.003", "--seeds", "2")
    code, out, err = sparring(capsys, tmp_path, *arguments)
    assert code == 1
    assert ["lr=1e+30", "diverged", "–"] in [line.split() for line in out.splitlines()]
    assert "best: sparring run digits" in out
    assert "--lr 0.003" in out
    assert err.count("training diverged") == 2
    code, out, err = sparring(capsys, tmp_path, *arguments[:-4], "--values", "lr=1e30,1e31")
    assert (code, out) == (1, "")
    assert "2 of 2 runs diverged" in err
