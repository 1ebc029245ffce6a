"""Small data for the tests of the lab, one set for each kind, and where the real data is."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sparring.lab.datasets import Data, Task
from sparring.lab.kinds import get_kind, list_kinds
from sparring.lab.kinds.encoder import Encoder
from sparring.lab.models.settings import Model, ModelOptions

REAL = Path(
    os.environ.get("SPARRING_DATA") or "SPARRING_DATA is not set"
)  # no folder of that name: tests of real data are skipped
KINDS = tuple(kind.name for kind in list_kinds())
WORDS = {"red": ["ruby", "rose", "rust"], "green": ["grass", "mint", "moss"], "blue": ["sky", "sea", "ink"]}


def samples(kind: str, n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Colours by their words: learnable, so that a run has something to win."""
    draw = random.Random(f"{kind} {seed}")
    made = []
    for _ in range(n):
        colour, other = draw.sample(sorted(WORDS), 2)
        word, second = draw.choice(WORDS[colour]), draw.choice(WORDS[other])
        made.append(
            {
                "multi-class": {"text": f"a {word} thing", "label": colour},
                "pair": {"text": word, "text_b": draw.choice([word, second]), "label": ""},
                "token": {
                    "tokens": ["a", word, "thing", second],
                    "tags": ["O", f"B-{colour}", "O", f"B-{other}"],
                },
                "spelling": {"source": f"a {word[0]}x{word[2:]}", "target": f"a {word}"},
                "multi-label": {"text": f"{word} {second}", "labels": sorted([colour, other])},
                "audio": {
                    "audio": tone(400 * (1 + sorted(WORDS).index(colour)), 0.1 + 0.02 * len(word)),
                    "rate": 8000,
                    "label": colour,
                },
                "generation": {"source": f"a {word} thing", "target": f"this {word} thing is {colour}"},
                "image": {"image": torch.full((1, 8, 8), sorted(WORDS).index(colour) / 2), "label": colour},
            }[kind]
        )
        if kind == "pair":
            made[-1]["label"] = "same" if made[-1]["text"] == made[-1]["text_b"] else "other"
    return made


def tone(frequency: float, seconds: float, rate: int = 8000) -> torch.Tensor:
    """16-bit samples of one."""
    return (20000 * torch.sin(2 * torch.pi * frequency / rate * torch.arange(int(seconds * rate)))).to(
        torch.int16
    )


def data(kind: str, n: int = 48) -> Data:
    return Data(
        get_kind(kind), samples(kind, n, 0), samples(kind, 24, 1), samples(kind, 24, 2), source="made"
    )


def task(kind: str, made: Data | None = None) -> Task:
    found = made or data(kind)
    metric = found.kind.default_metric(found.labels)
    settings = {"max_target_length": 12} if kind == "generation" else {}
    return Task(
        "colours", found.kind, "colours", lambda _: found, metric, "made", max_length=32, settings=settings
    )


def build(name: str, made: Data, **options: Any) -> Model:
    return made.build_model(name, ModelOptions(**options))


def load(folder: Path, kind: str) -> Model:
    return get_kind(kind).load_model(folder)


def encoder_for(
    kind: str, labels: Sequence[str], processor: Any, max_length: int, **settings: Any
) -> Encoder:
    return get_kind(kind).encoder(labels, processor, max_length, **settings)


def saved_and_loaded(
    kind: str, made: Data, name: str, folder: Path, shape: tuple[int, int], **options: Any
) -> tuple[Any, Any, Any]:
    """A network gives the same logits after saving and loading. Returns it, its encoder and dev logits."""
    model = build(name, made, **options)
    net, encoder = model.net.eval(), made.encoder(model.processor, 0)
    batch = encoder.collate(encoder.encode(made.dev))
    logits = net(**batch).logits
    assert logits.shape == shape
    net.save_pretrained(folder)
    model.processor.save_pretrained(folder)
    again, processor = load(folder, kind)
    assert processor == model.processor
    torch.testing.assert_close(again.eval()(**batch).logits, logits)
    return net, encoder, logits


class Interrupt:
    """Asks a run to stop after some steps."""

    def __init__(self, after: int) -> None:
        self.after = after

    def begin(self, total: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def step(self, entry: dict[str, Any]) -> bool:
        return bool(entry["step"] >= self.after)

    def evaluation(self, entry: dict[str, Any]) -> None:
        pass
