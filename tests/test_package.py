"""The package as a user meets it: its names, its import, its README."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import sparring
from sparring.cli.app import main
from tests.scripts import run_script

ROOT = Path(__file__).parents[1]


def in_new_process(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_every_public_name_resolves() -> None:
    assert (
        {"ASSoftmaxLoss", "functional", "skip", "__version__"} <= set(sparring.__all__) <= set(dir(sparring))
    )
    for name in sparring.__all__:
        assert getattr(sparring, name) is not None
    for name in sparring.functional.__all__:
        assert getattr(sparring.functional, name).__doc__
    with pytest.raises(AttributeError, match="module 'sparring' has no attribute 'ASSoftmaxLos'"):
        sparring.ASSoftmaxLos  # noqa: B018


FIXED_PATHS = {
    "sparring.functional": "as_softmax_loss",
    "sparring.skip": "compact",
    "sparring.train": "__call__",
    "sparring.training.loop.train": "__call__",
    "sparring.parallel": "ClassParallelHead",
    "sparring.delta": "WarmupDelta",
    "sparring.losses": "ASSoftmaxLoss",
}


def test_fixed_import_paths() -> None:
    """Each path works as an attribute after `import sparring` alone, and in `from … import …`.

    `tests/integrations` import the two of `sparring.integrations`.
    """
    statements = ["import sparring"]
    for path, attribute in FIXED_PATHS.items():
        parent, _, name = path.rpartition(".")
        statements += [f"{path}.{attribute}", f"from {parent} import {name}", f"{name}.{attribute}"]
    in_new_process("\n".join(statements))


def test_one_stem_in_every_place() -> None:
    for name in sparring.list_losses():
        stem = name.replace("-", "_")
        assert type(sparring.make_loss(name)).row_function.__name__ == f"{stem}_rows"
        assert f"{stem}_loss" in sparring.functional.__all__


def test_what_an_import_and_a_loss_load() -> None:
    program = """
import sys, sparring
assert sparring.__version__ and "torch" not in sys.modules
import torch, entmax
before = set(sys.modules)
sparring.ASSoftmaxLoss()(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
print(*set(sys.modules) - before)
sparring.LinearASSoftmaxLoss(4, 6)(torch.randn(3, 4), torch.arange(3)).backward()
assert "sparring.losses.kernels.margin_softmax_triton" not in sys.modules
"""
    modules = in_new_process(program).split()
    packages = {module.split(".")[0] for module in modules} - sys.stdlib_module_names
    assert packages == {"sparring"}
    unneeded = ("sparring.heads", "sparring.backward", "sparring.training", "sparring.functional")
    assert [module for module in modules if module.startswith(unneeded)] == []


def test_the_demo_of_the_makefile_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The very commands, at a small size."""
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "(BIN)/sparring " in line]
    compare, report = (shlex.split(line.replace("$(JOBS)", "1"))[1:] for line in lines)
    compare[compare.index("--out") + 1] = str(tmp_path)
    compare[compare.index("--seeds") + 1] = "1"
    assert main([*compare, "--n-train", "200", "--n-dev", "50", "--n-test", "50", "--epochs", "1"]) == 0
    out = capsys.readouterr().out
    for name in ("softmax", "as-softmax delta=0.8", "as-softmax delta=0.6"):
        assert name in out
    assert len(list(tmp_path.glob("languages/*/seed-0/summary.json"))) == 3
    page = tmp_path / "report.html"
    report = report[: report.index(">")]
    report[report.index("-o") + 1] = str(page)
    assert (
        main([str(tmp_path / "languages") if word == "runs/demo/languages" else word for word in report]) == 0
    )
    assert page.stat().st_size > 100_000


def test_demo_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = run_script(ROOT / "examples" / "digits.py", "--epochs", 2, "--seeds", 1)
    for column in ("test accuracy %", "seconds a run", "won, last epoch"):
        assert column in out
    for name in ("softmax", "as-softmax"):
        assert re.search(rf"│ {name} +│ +\d+\.\d+ ± 0\.00 │ +\d+\.\d+ │( +\d+ % │){{3}}", out), out


def test_speed_demo_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = run_script(ROOT / "examples" / "speed.py", "--epochs", 2, "--seeds", 1, "--samples", 150)
    for name in (
        "softmax",
        "AS-Softmax",
        r"\+ AS-Speed",
        r"\+ skipping",
        r"\+ skipping, rest",
        r"\+ auto, rest",
    ):
        assert re.search(rf"│ {name} +│ +\d+\.\d+ ± 0\.00 │ +\d+\.\d+x │( +\d+ % │){{2}} +\d+ │", out), out
