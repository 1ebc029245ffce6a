"""The picture of the README: the probabilities of one sample, δ, and the opponents that stay in the loss.

    python docs/pictures/idea.py

Writes ``idea.svg`` beside this file. Colours and positions come from the library's own rule.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
import torch

from sparring import ASSoftmaxLoss, as_softmax

DELTA = 0.3
TARGET = "book flight"
CLASSES = (TARGET, "change flight", "cancel flight", "book hotel", "flight status", "rent car")
SAMPLES = {
    "early: two strong opponents": (0.40, 0.26, 0.15, 0.09, 0.06, 0.04),
    "later: one is left": (0.52, 0.28, 0.08, 0.06, 0.04, 0.02),
    "won: none is left": (0.70, 0.13, 0.07, 0.05, 0.03, 0.02),
}
COLOURS = {"target": "#2a6fdb", "strong opponent": "#e07b39", "left out": "#c9ced6"}


def rows_of(p: tuple[float, ...]) -> list[dict[str, object]]:
    """A row for each class: its probability, and what becomes of it in training."""
    logits = torch.tensor([p]).log()
    kept = as_softmax(logits, torch.tensor([0]), DELTA)[0] > 0
    roles = ["target", *("strong opponent" if stays else "left out" for stays in kept[1:].tolist())]
    return [
        {"class": name, "p": value, "role": role} for name, value, role in zip(CLASSES, p, roles, strict=True)
    ]


def panel(title: str, p: tuple[float, ...]) -> alt.LayerChart:
    """The bars of one sample, and the line below which classes are left out."""
    loss = ASSoftmaxLoss(DELTA)(torch.tensor([p]).log(), torch.tensor([0])).item()
    bars = (
        alt.Chart(alt.Data(values=rows_of(p)))
        .mark_bar()
        .encode(
            x=alt.X("p:Q", title="probability", scale=alt.Scale(domain=[0, 0.8]), axis=alt.Axis(format="%")),
            y=alt.Y("class:N", sort=list(CLASSES), title=None),
            color=alt.Color(
                "role:N",
                title=None,
                scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
                legend=alt.Legend(orient="bottom"),
            ),
        )
    )
    edge = alt.Chart(alt.Data(values=[{"p": p[0] - DELTA}]))
    line = edge.mark_rule(strokeDash=[5, 4], strokeWidth=1.5, color="#333").encode(x="p:Q")
    words = edge.mark_text(align="left", dx=5, dy=64, fontSize=12, text=f"target − δ  (δ = {DELTA})").encode(
        x="p:Q"
    )
    heading = alt.TitleParams(title, subtitle=f"loss {abs(loss):.2f}", fontSize=13, subtitleFontSize=12)
    return alt.layer(bars, line, words).properties(width=230, height=150, title=heading)


def main() -> None:
    picture = alt.hconcat(*(panel(title, p) for title, p in SAMPLES.items()))
    picture = picture.configure(background="white").configure_view(stroke=None).configure_axis(grid=False)
    picture.save(str(Path(__file__).with_name("idea.svg")))


if __name__ == "__main__":
    main()
