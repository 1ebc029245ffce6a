"""The Free Spoken Digit Dataset (Jackson et al.): digits in English by six voices, 8 kHz."""

import re
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.models.wav import read_wav
from sparring.lab.readers.arrays import UnreadableFiles
from sparring.lab.readers.npz import read_npz
from sparring.lab.readers.published import NotedSplits
from sparring.lab.task import SPLITS, Splits

NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>\w+)_(?P<index>\d+)\.wav")


def original(folder: Path) -> NotedSplits | None:
    """Arrays in .npz; or the publisher's ``recordings``, such as 7_jackson_32.wav.

    Recordings 0 to 4 of each digit and speaker are the published test set, 5 to 9 are our dev set.
    """
    if (folder / "train.npz").is_file():
        return read_npz(folder, "audio")
    root = folder / "recordings"
    if not root.is_dir():
        return None
    splits: Splits = {split: [] for split in SPLITS}
    unreadable = UnreadableFiles()
    for path in sorted(root.glob("*.wav")):
        with unreadable.skipping(path.name):
            match = NAME.fullmatch(path.name)
            if match is None:
                raise ValueError("its name is not digit_speaker_number.wav")
            index = int(match["index"])
            sample = {**read_wav(path), "label": match["digit"], "name": path.name}
            splits["test" if index < 5 else "dev" if index < 10 else "train"].append(sample)
    return NotedSplits(splits, unreadable.notes())


register_published(
    "fsdd",
    kind="audio",
    about="which digit is spoken: recordings of 8 kHz by six voices (Jackson et al.)",
    metric="accuracy",
    home="https://github.com/Jakobovski/free-spoken-digit-dataset",
    sizes=(2400, 300, 300),
    original=original,
)
