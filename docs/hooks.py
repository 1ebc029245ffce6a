"""Hooks of the documentation site: files of the repository that pages link to, and notebooks, become pages.

A link such as ``../examples/plain_torch.py`` leads to a file where the repository is browsed. The site has no
such file, so it gets a page of it under ``repository/``, and the link leads there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = ROOT / "notebooks"
LINK = re.compile(r"((?<=\]\()|(?<=\]: ))(?!\w+:)([^)#\s]+)(?=[)#\s])")  # [words](path), and [name]: path
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", "": "make"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file of the repository that a page links to, and for each notebook."""
    pages = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    for path in linked_files(pages):
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".md":
            fence = f"```{LANGUAGES.get(path.suffix, '')}\n{text}```\n"
            text = f"# {path.relative_to(ROOT).as_posix()}\n\n{fence}"
        files.append(File.generated(config, page_of(path), content=text))
    for path in sorted(NOTEBOOKS.glob("*.py")):
        cells = cells_of(path.read_text(encoding="utf-8"))
        notebook = f"notebooks/{path.stem}.ipynb"
        files.append(File.generated(config, notebook, content=json.dumps(ipynb(cells), indent=1)))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=markdown(cells, path)))
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to their pages."""
    here = source_of(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        target = (here.parent / match[2]).resolve()
        outside = not target.is_relative_to(DOCS)
        if not target.is_file() or (here.is_relative_to(DOCS) and not outside):
            return match[2]
        uri = page_of(target) if outside else target.relative_to(DOCS).as_posix()
        return os.path.relpath(uri, os.path.dirname(page.file.src_uri) or ".")

    return LINK.sub(replace, text)


def linked_files(pages: Iterable[Path]) -> list[Path]:
    """Files of the repository outside of docs that pages link to, directly or through one another."""
    queue, found = list(pages), set()
    while queue:
        page = queue.pop()
        for match in LINK.finditer(page.read_text(encoding="utf-8")):
            path = (page.parent / match[2]).resolve()
            inside = path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)
            if inside and path.is_file() and path not in found and path.parent != NOTEBOOKS:
                found.add(path)
                queue += [path] if path.suffix == ".md" else []
    return sorted(found)


def page_of(path: Path) -> str:
    """The page of a file of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if path.parent == NOTEBOOKS:
        return f"notebooks/{path.stem}.md"
    return f"repository/{name}" if path.suffix == ".md" else f"repository/{name}.md"


def source_of(uri: str) -> Path:
    """The file that a page was made of."""
    if uri.startswith("repository/"):
        return ROOT / uri.removeprefix("repository/")
    return NOTEBOOKS / Path(uri).name if uri.startswith("notebooks/") else DOCS / uri


def cells_of(script: str) -> list[tuple[bool, str]]:
    """The cells of a script in the percent format: whether a cell is code, and its text."""
    cells = []
    for part in re.split(r"^# %%", script, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        is_code = "[markdown]" not in head
        text = body.strip("\n")
        cells.append((is_code, text if is_code else re.sub(r"^# ?", "", text, flags=re.M)))
    return cells


def markdown(cells: list[tuple[bool, str]], path: Path) -> str:
    """A page of the cells, with a link to the notebook below its title."""
    texts = [f"```python\n{text}\n```" if is_code else text for is_code, text in cells]
    link = f"[Download as a Jupyter notebook]({path.stem}.ipynb)"
    return "\n\n".join([texts[0], link, *texts[1:]]) + "\n"


def ipynb(cells: list[tuple[bool, str]]) -> dict[str, Any]:
    """The cells in the format of Jupyter, without outputs."""
    blocks = []
    for number, (is_code, text) in enumerate(cells):
        block: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": text}
        code = {"cell_type": "code", "outputs": [], "execution_count": None}
        blocks.append(block | (code if is_code else {"cell_type": "markdown"}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": blocks, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
