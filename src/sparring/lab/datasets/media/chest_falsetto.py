"""Chest voice and falsetto (CCMusic): mel spectrograms of singers, as the Hugging Face hub has them."""

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
    "chest_falsetto",
    kind="image",
    about="chest voice or falsetto, of women and men, as spectrograms; the papers' numbers are not at hand",
    metric="accuracy",
    home="https://huggingface.co/datasets/ccmusic-database/chest_falsetto",
    settings={"augment": "off"},  # the axes of a spectrogram are time and pitch
    original=original,
    hub=HubSource(
        "ccmusic-database/chest_falsetto",
        {"image": "mel", "label": "label"},
        config="eval",
        classes="label",
        convert={"image": partial(to_square, side=SIDE)},
    ),
)
