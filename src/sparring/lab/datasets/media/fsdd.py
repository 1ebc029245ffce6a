"""The Free Spoken Digit Dataset (Jackson et al.): digits in English by six voices, 8 kHz."""

from __future__ import annotations

import re
from pathlib import Path

from sparring.lab.kinds.wav import read_wav
from sparring.lab.readers.arrays import NAMED
from sparring.lab.readers.npz import read_npz
from sparring.lab.readers.published import Noted, load_published
from sparring.lab.task import Data, Sample, Splits, Where, register
from sparring.lab.untrusted import printable, reason

NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>\w+)_(?P<index>\d+)\.wav")


def original(folder: Path) -> Splits | Noted | None:
    """Arrays in .npz; or the publisher's ``recordings`` folder: 7_jackson_32.wav. Numbers 0 to 4 are its test set, 5 to 9 our dev set."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, "audio")
    root = folder / "recordings"
    if not root.is_dir():
        return None
    splits: Splits = {"train": [], "dev": [], "test": []}
    bad = []
    for path in sorted(root.glob("*.wav")):
        match = NAME.fullmatch(path.name)
        try:
            if match is None:
                raise ValueError("its name is not digit_speaker_number.wav")
            sample: Sample = {**read_wav(path), "label": match["digit"], "name": path.name}
        except Exception as error:  # whatever a damaged file makes a decoder raise
            bad.append(printable(f"{path.name} ({reason(error, 60)})"))
            continue
        index = int(match["index"])
        splits["test" if index < 5 else "dev" if index < 10 else "train"].append(sample)
    notes = (
        (f"{len(bad)} file(s) could not be read and are left out: {'; '.join(bad[:NAMED])}",) if bad else ()
    )
    return Noted(splits, notes)


@register(
    "fsdd",
    kind="audio",
    about="which digit is spoken: recordings of 8 kHz by six voices (Jackson et al.)",
    metric="accuracy",
    home="https://github.com/Jakobovski/free-spoken-digit-dataset",
    sizes=(2400, 300, 300),
)
def load(where: Where) -> Data:
    return load_published(where, "audio", ["fsdd"], original)
