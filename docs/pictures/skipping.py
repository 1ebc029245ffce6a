"""The picture of exact skipping: a batch goes forward whole, and only its active samples go back.

    python docs/pictures/skipping.py

Writes ``skipping.svg`` beside this file. Which samples are won comes from the library's own rule.
"""

from __future__ import annotations

from pathlib import Path

import torch

from sparring import ASSoftmaxLoss

LAYERS = ("layer 1", "layer 2", "layer 3", "logits")
ACTIVE, WON, BACK = "#2a6fdb", "#c9ced6", "#e07b39"
CELL, GAP, STEP, TOP = 18, 4, 120, 62


def won_samples() -> list[bool]:
    """Eight samples with three classes; the first class is the target."""
    leads = torch.tensor([4.0, 0.5, 3.0, 2.5, 0.2, 5.0, -1.0, 3.5])
    logits = torch.stack([leads, torch.zeros(8), torch.zeros(8)], dim=1)
    return ASSoftmaxLoss(0.3).rows(logits, torch.zeros(8, dtype=torch.long)).won.tolist()


def column(x: int, colours: list[str]) -> list[str]:
    """A tensor: a bar for each of its samples."""
    box = '<rect x="{}" y="{}" width="64" height="{}" rx="3" fill="{}"/>'
    return [box.format(x, TOP + i * (CELL + GAP), CELL, colour) for i, colour in enumerate(colours)]


def arrow(x1: int, x2: int, y: int, colour: str) -> str:
    tip = 7 if x2 > x1 else -7
    head = f"{x2},{y} {x2 - tip},{y - 5} {x2 - tip},{y + 5}"
    return (
        f'<line x1="{x1}" y1="{y}" x2="{x2 - tip}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
        f'<polygon points="{head}" fill="{colour}"/>'
    )


def text(x: int, y: int, words: str, anchor: str = "middle", size: int = 15) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="#222">{words}</text>'


def main() -> None:
    won = won_samples()
    n_active = len(won) - sum(won)
    bottom = TOP + len(won) * (CELL + GAP)
    parts = []
    for number, name in enumerate(LAYERS):
        x = 24 + number * STEP
        parts += [text(x + 32, 24, name), *column(x, [WON if is_won else ACTIVE for is_won in won])]
        if number:
            parts += [arrow(x - STEP + 68, x - 4, TOP + 40, "#222")]
            parts += [arrow(x - 4, x - STEP + 68, TOP + 120, BACK)]
    parts += [
        text(24, 46, "forward: all samples, as always", "start", 13),
        text(
            24, bottom + 20, f"backward: the {n_active} of {len(won)} samples that are not won", "start", 13
        ),
    ]
    width, height = 24 + 3 * STEP + 64 + 24, bottom + 36
    size = f'width="{width}" height="{height}"'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}'
        f' font-family="Arial, Helvetica, sans-serif"><rect {size} fill="white"/>{"".join(parts)}</svg>\n'
    )
    Path(__file__).with_name("skipping.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
