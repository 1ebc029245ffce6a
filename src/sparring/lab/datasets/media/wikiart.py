"""WikiArt: paintings with their style, as the Hugging Face hub has them (huggan/wikiart)."""

from functools import partial
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.kinds.image import SIDE, to_square
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.npz import read_npz
from sparring.lab.readers.published import NotedSplits


def original(folder: Path) -> NotedSplits | None:
    """Arrays in .npz. There is no file of a publisher: the hub's set is the published form."""
    return read_npz(folder, "image") if (folder / "train.npz").is_file() else None


register_published(
    "wikiart",
    kind="image",
    about="in which of 27 styles a picture is painted; the papers' numbers are not at hand",
    metric="accuracy",
    home="https://huggingface.co/datasets/huggan/wikiart",
    sizes=(81444, 0, 0),
    settings={"augment": "flip", "batch_size": 64},
    original=original,
    hub=HubSource(
        "huggan/wikiart",
        {"image": "image", "label": "style"},
        classes="style",
        convert={"image": partial(to_square, side=SIDE)},
    ),
)
