"""The package as a user meets it: its names, its import, its README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparring
from sparring import losses

ROOT = Path(__file__).parents[1]


def test_every_public_name_exists() -> None:
    assert len(set(sparring.__all__)) == len(sparring.__all__)
    for name in sparring.__all__:
        assert getattr(sparring, name) is not None
    for name in sparring.functional.__all__:
        assert getattr(sparring.functional, name).__doc__


def test_one_stem_in_every_place() -> None:
    for name in sparring.list_losses():
        stem = name.replace("-", "_")
        assert getattr(losses, f"{stem}_rows") is type(sparring.make_loss(name)).row_function
        assert f"{stem}_loss" in sparring.functional.__all__


def test_import_brings_torch_and_entmax_only() -> None:
    code = "import sys, torch, entmax; old = set(sys.modules); import sparring; print(*{m.split('.')[0] for m in set(sys.modules) - old})"
    new = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in new if name not in sys.stdlib_module_names] == ["sparring"]


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.S | re.M)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/integrations.md",
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


def test_readme_names_every_loss() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in sparring.list_losses() if f"`{name}`" not in readme] == []


def test_the_demo_of_the_makefile_runs(tmp_path: Path) -> None:
    """The very command, at a small size."""
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "/sparring compare" in line)
    words = line.replace("$(JOBS)", "1").split()[1:]
    small = ["--n-train", "200", "--n-dev", "50", "--n-test", "50", "--epochs", "1", "--out", str(tmp_path)]
    out = subprocess.run(
        [sys.executable, "-m", "sparring.cli", *words, *small], capture_output=True, text=True, check=True
    ).stdout
    for name in ("softmax", "as-softmax delta=0.3"):
        assert re.search(
            rf"^ +{name} +\d+\.\d\d ± \d+\.\d\d +\d+\.\d\d ± \d+\.\d\d +\d+\.\d +\d\.\d\dx +100 +\d+ ",
            out,
            re.M,
        ), out
    folders = re.findall(r"^runs: (.*)$", out, re.M)
    assert len(folders) == 2
    assert all(
        (Path(folder) / seed / "summary.json").exists() for folder in folders for seed in ("seed-0", "seed-1")
    )


def test_demo_runs() -> None:
    command = [sys.executable, str(ROOT / "examples" / "digits.py"), "--epochs", "2", "--seeds", "1"]
    wide = {**os.environ, "COLUMNS": "200"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout
    for column in ("test accuracy %", "seconds a run", "won, last epoch"):
        assert column in out
    for name in ("softmax", "as-softmax"):
        assert re.search(rf"│ {name} +│ +\d+\.\d+ ± 0\.00 │ +\d+\.\d+ │( +\d+ % │){{3}}", out), out


def test_speed_demo_runs() -> None:
    command = [
        sys.executable,
        str(ROOT / "examples" / "speed.py"),
        "--epochs",
        "2",
        "--seeds",
        "1",
        "--samples",
        "150",
    ]
    out = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"}
    ).stdout
    for name in (
        "softmax",
        "AS-Softmax",
        r"\+ AS-Speed",
        r"\+ skipping",
        r"\+ skipping, rest",
        r"\+ auto, rest",
    ):
        assert re.search(rf"│ {name} +│ +\d+\.\d+ ± 0\.00 │ +\d+\.\d+x │( +\d+ % │){{2}} +\d+ │", out), out
