"""README, docs and notebooks are true: code runs, commands exist, numbers are those of the results."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from pathlib import Path

import pytest

import sparring
from sparring.cli.app import build_parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


def run(code: list[str], name: str) -> dict[str, object]:
    """Run blocks of code one after another, as one program."""
    namespace: dict[str, object] = {"__name__": name}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other packages are not what these pages are about
        for block in code:
            exec(compile(block, name, "exec"), namespace)
    return namespace


# tests/integrations/test_page.py runs the scripts of docs/integrations.md, with the files that they read
@pytest.mark.parametrize(
    "page", [page for page, text in PAGES.items() if BLOCK.search(text) and page != "docs/integrations.md"]
)
def test_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(BLOCK.findall(PAGES[page]), page)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = path.read_text(encoding="utf-8")
    assert script.startswith("# %% [markdown]\n# # ")  # a title, for the site
    namespace = run([script], path.stem)
    if path.stem == "first_steps":
        assert namespace["accuracy"] > 0.7  # type: ignore[operator]


@pytest.mark.parametrize(
    "page", [page for page, text in PAGES.items() if re.search("^ {4}sparring ", text, re.M)]
)
def test_commands_exist(page: str) -> None:
    """Each line that calls ``sparring`` is parsed, not run."""
    for line in re.findall(r"^ {4}(sparring .*)$", PAGES[page], re.M):
        words = shlex.split(line.split(" > ")[0], comments=True)[1:]
        if len(words) > 1:
            build_parser(words).parse_args(words)  # exits where a command or flag does not exist


def test_readme_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 120] == []


def test_readme_has_the_numbers_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import headlines

    assert all(path.read_text(encoding="utf-8") == text for path, text in headlines.pages().items())

    def changed(name: str) -> object:
        result = headlines.read(name)
        if name == "speed/clinc_oos_first.json":
            headlines.contestant(result, "skip: rows")["cpu_time"] += 0.01
        return result

    assert headlines.with_table(README, headlines.table(changed)) != README


FRONTIER = {
    "run_softmax_8_0": {"test": {"metric": 0.80}, "cpu_seconds": 100.0},
    "run_softmax_8_1": {"test": {"metric": 0.81}, "cpu_seconds": 100.0},
    "run_fast, as long_8_0": {"test": {"metric": 0.79}, "cpu_seconds": 40.0},
    "run_fast, as long_8_1": {"test": {"metric": 0.81}, "cpu_seconds": 50.0},
    "run_softmax_4_0": {"test": {"metric": 0.70}, "cpu_seconds": 50.0},
    "run_fast_4_0": {"test": {"metric": 0.69}, "cpu_seconds": 50.0},
}


def test_the_row_of_the_preset_follows_the_frontier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import headlines

    def load(name: str) -> object:
        return ["sst5"] if name == "frontier" else {"runs": FRONTIER}

    assert headlines.preset(load) == ("yes", "0.45 to 0.45 on 1 tasks, −0.50 to −0.50 points")
    assert headlines.equal_cost(load) == ("no", "−1.00 to −1.00 points in 1 comparisons")
    assert headlines.hard_task(load) == ("less", "0.45 on `sst5`, −0.50 points")


def test_readme_has_no_number_beside_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times, shares and points stand in the table, which is made of results."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import headlines

    text = re.sub(r"```.*?```", "", headlines.with_table(README, ""), flags=re.S)
    assert re.findall(r"\d[\d.]* ?(?:%|x\b|times|points)", text) == []


def test_the_page_of_losses_names_every_loss() -> None:
    page = PAGES["docs/losses.md"]
    assert [name for name in sparring.list_losses() if f"`{name}`" not in page] == []


def test_the_reference_has_every_public_name() -> None:
    reference = "\n".join(text for page, text in PAGES.items() if page.startswith("docs/reference/"))
    modules = {name for name in sparring.__all__ if f"sparring.{name}" in sys.modules} | {"__version__"}
    names = [name for name in sparring.__all__ if name not in modules]
    assert [name for name in names if f"::: sparring.{name}\n" not in reference] == []


def test_version_is_in_the_changelog_and_the_citation() -> None:
    assert f"## [{sparring.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {sparring.__version__}\n" in (ROOT / "CITATION.cff").read_text()
