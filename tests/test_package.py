"""The package as a user meets it: its names, its import, its README."""

from __future__ import annotations

import re
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


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.S | re.M)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/integrations.md",
        "docs/labels.md",
        "docs/linear.md",
        "docs/losses.md",
        "docs/migrate.md",
        "docs/scale.md",
        "docs/training.md",
    ],
)
def test_python_blocks_run(page: str) -> None:
    code = blocks((ROOT / page).read_text())
    assert code
    namespace: dict[str, object] = {}
    for block in code:
        exec(compile(block, page, "exec"), namespace)


def test_version_is_in_the_changelog_and_the_citation() -> None:
    assert f"## [{sparring.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {sparring.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_page_of_losses_names_every_loss() -> None:
    page = (ROOT / "docs" / "losses.md").read_text()
    assert [name for name in sparring.list_losses() if f"`{name}`" not in page] == []


def test_the_demo_of_the_makefile_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The very command, at a small size."""
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "/sparring compare" in line)
    words = line.replace("$(JOBS)", "1").split()[1:]
    small = ["--n-train", "200", "--n-dev", "50", "--n-test", "50", "--epochs", "1", "--out", str(tmp_path)]
    assert main([*words, *small]) == 0
    out = capsys.readouterr().out
    for name in ("softmax", "as-softmax delta=0.3"):
        assert re.search(
            rf"^ +{name} +\d+\.\d\d ± \d+\.\d\d +(–|[-+]\d+\.\d\d) +\d+\.\d +\d\.\d\dx +\d+ ",
            out,
            re.M,
        ), out
    folders = re.findall(r"^runs: (.*)$", out, re.M)
    assert len(folders) == 2
    assert all(
        (Path(folder) / seed / "summary.json").exists() for folder in folders for seed in ("seed-0", "seed-1")
    )


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
