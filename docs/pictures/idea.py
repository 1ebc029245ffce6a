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
    "Two opponents": (0.40, 0.26, 0.15, 0.09, 0.06, 0.04),
    "One is left": (0.52, 0.28, 0.08, 0.06, 0.04, 0.02),
    "Won": (0.70, 0.13, 0.07, 0.05, 0.03, 0.02),
}
LARGE, SMALL = 17, 15  # sizes of letters: the picture is read on phones, too
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
    is_first = title == next(iter(SAMPLES))
    roles = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    legend = alt.Legend(
        orient="bottom", labelFontSize=SMALL, labelLimit=200, symbolSize=180, columnPadding=32
    )
    bars = (
        alt.Chart(alt.Data(values=rows_of(p)))
        .mark_bar()
        .encode(
            x=alt.X(
                "p:Q", title=None, scale=alt.Scale(domain=[0, 0.8]), axis=alt.Axis(format="%", tickCount=3)
            ),
            y=alt.Y(
                "class:N", sort=list(CLASSES), title=None, axis=alt.Axis(labels=is_first, ticks=is_first)
            ),
            color=alt.Color("role:N", title=None, scale=roles, legend=legend),
        )
    )
    edge = alt.Chart(alt.Data(values=[{"p": p[0] - DELTA}]))
    line = edge.mark_rule(strokeDash=[5, 4], strokeWidth=1.5, color="#333").encode(x="p:Q")
    words = edge.mark_text(align="left", dx=5, dy=68, fontSize=SMALL, text="target − δ").encode(x="p:Q")
    heading = alt.TitleParams(
        title, subtitle=f"loss {abs(loss):.2f}", fontSize=LARGE, subtitleFontSize=SMALL, anchor="start"
    )
    return alt.layer(bars, line, words).properties(width=150, height=170, title=heading)


def main() -> None:
    picture = alt.hconcat(*(panel(title, p) for title, p in SAMPLES.items()), spacing=26)
    picture = picture.properties(padding={"left": 30, "top": 8, "right": 24, "bottom": 8})
    picture = picture.configure(background="white", font="Arial, Helvetica, sans-serif").configure_view(
        stroke=None
    )
    picture = picture.configure_axis(grid=False, labelFontSize=SMALL, labelLimit=140)
    picture.save(str(Path(__file__).with_name("idea.svg")))


if __name__ == "__main__":
    main()
