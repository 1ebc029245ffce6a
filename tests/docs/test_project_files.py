"""Project files: links lead somewhere, workflows run commands that exist, the citation is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = sorted((ROOT / ".github").rglob("*.yml"))
TEXTS = ("README.md", "llms.txt", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_to_files(name: str) -> None:
    """The build of the site checks those of docs; these are read beside the repository."""
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!\w+:)([^)#\s]+)", text) + re.findall(
        r"^\[\w+\]: (?!\w+:)([^#\s]+)", text, re.M
    )
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.stem)
def test_workflows_and_templates_are_valid(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    for job in content.get("jobs", {}).values():
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            used = re.findall(r"\bmake ([a-z]+)", step.get("run", ""))
            assert set(used) <= set(targets)
            paths = re.findall(r"(?:tests|\.ci)/[\w/.]+", step.get("run", ""))
            assert [name for name in paths if not (ROOT / name).exists()] == []


def test_citation() -> None:
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text())["preferred-citation"]
    assert paper["doi"] == "10.1109/TASLPRO.2025.3587436"
    assert (paper["volume"], paper["start"], paper["end"], paper["year"]) == (33, 3148, 3159, 2025)
