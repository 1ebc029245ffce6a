"""The scripts of docs/integrations.md as they stand, with small files and models of the names they use."""

from __future__ import annotations

import csv
import importlib
import itertools
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import ConvNextConfig, ConvNextForImageClassification

from tests.integrations.tiny import examples_module

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
SCRIPTS = {
    f"{section.splitlines()[0]} {i}": script
    for section in PAGE.split("\n## ")[1:]
    for i, script in enumerate(re.findall(r"^```python\n(.*?)^```", section, flags=re.S | re.M), 1)
}


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's files, and models in folders of the names that the scripts ask the hub for."""
    folder = tmp_path_factory.mktemp("user")
    small = examples_module("small_models")
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (96,), generator=generator)
    x = torch.randn(96, 5, generator=generator) + 3 * torch.nn.functional.one_hot(y, 5)
    numbers = [[*map(float, row), int(label)] for row, label in zip(x, y, strict=True)]
    write_csv(folder / "numbers.csv", [*"abcde", "class"], numbers)
    pairs = small.sentence_pairs()
    names = [("yes", "no", "perhaps")[label] for label in pairs["label"]]
    premises, hypotheses = pairs["premise"], pairs["hypothesis"]
    rows = [list(row) for row in zip(premises, hypotheses, names, strict=True)][::2]
    write_csv(folder / "pairs.csv", ["premise", "hypothesis", "label"], rows)
    write_csv(folder / "texts.csv", ["text", "label"], [[row[1], row[2]] for row in rows])
    answers = [[f"{row[0]} ; {row[1]} ?", f" {row[2]}"] for row in rows]
    write_csv(folder / "answers.csv", ["prompt", "completion"], answers)
    images = torch.rand(64, 3, 16, 16, generator=generator).numpy()
    np.savez(folder / "images.npz", images=images, labels=np.arange(64) % 3)
    texts = [*premises, *hypotheses]
    for name in ("bert-base-uncased", "distilroberta-base", "all-MiniLM-L6-v2"):
        small.small_bert(folder / name, texts)
    small.small_llama(folder / "Qwen/Qwen3-0.6B", list(itertools.chain.from_iterable(answers)))
    stages = {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1]}
    ConvNextForImageClassification(ConvNextConfig(**stages)).save_pretrained(
        folder / "facebook/convnext-tiny-224"
    )
    return folder


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs where its packages are installed, and a complete one says how many backward passes it took."""
    script = SCRIPTS[name]
    for package in set(re.findall(r"^(?:from|import) (\w+)", script, flags=re.M)):
        try:
            importlib.import_module(package)
        except ImportError as error:
            pytest.skip(f"{package} cannot be imported here: {error}")
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(script, f"integrations.md: {name}", "exec"), {"__name__": "__main__"})
    if len(script.splitlines()) > 10:
        assert len(script.splitlines()) <= 45
        assert max(map(len, script.splitlines())) <= 120
        assert re.search(r"backward for \d+", capsys.readouterr().out)
