"""SIGHAN 2015 (Tseng et al. 2015): wrong characters in Chinese sentences, with Wang271K's made-up mistakes (Wang et al. 2018) to train on.

SIGHAN's own files are in traditional Chinese; the papers' numbers are on simplified text, so convert the files first
(with OpenCC, say) to compare.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sparring.lab.readers.files import read_lines
from sparring.lab.readers.markup import blocks, element
from sparring.lab.readers.published import Noted, load_published, split_off
from sparring.lab.task import Data, DataError, Sample, Where, register

TRAINING = ("*.sgml", "*.xml", "*SampleSet*.txt")  # SIGHAN 2014, 2015 and Wang271K; SIGHAN 2013 has the third
SENTENCE = re.compile(
    r"<(PASSAGE|TEXT|P)\b[^>]*>(?:(?!<(?:PASSAGE|MISTAKE)\b).)*?</\1>", re.DOTALL | re.IGNORECASE
)
MISTAKE = re.compile(r"<MISTAKE\b.*?</MISTAKE>", re.DOTALL | re.IGNORECASE)
LOCATION = re.compile(
    r"(?:location|wrong_position)\W+(\d{1,9})(?!\d)", re.IGNORECASE
)  # an attribute, or Wang271K's element
ID = re.compile(r"""\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
PLACE = re.compile(r"\d{1,9}")
WANG271K = 200_000  # with it there are more training sentences than this, without it a few thousand


class Mistake(NamedTuple):
    """One wrong character, with the word around it wrong and right."""

    sentence: str | None  # None: that of the element, the only one
    location: int  # from 1 on, 0 for none
    wrong: str
    right: str


def original(folder: Path) -> Noted | None:
    """All training files in the folder and below it, joined; the test pair *TestInput.txt and *TestTruth.txt."""
    paths = sorted(
        {path for pattern in TRAINING for path in folder.rglob(pattern) if "test" not in path.name.lower()}
    )
    if not paths:
        return None
    train, n_dropped = [], 0
    for path in paths:
        samples, n_misfits = training_file(path)
        train += samples
        n_dropped += n_misfits
    splits = {"train": train}
    pairs = sorted(folder.rglob("*TestInput.txt"), key=lambda path: ("15" in path.name, path.name))
    if pairs:
        splits["test"] = read_pair(pairs[-1], pairs[-1].with_name(pairs[-1].name.replace("Input", "Truth")))
    note = (
        f"{n_dropped} training sentences left out: a correction changes their length or does not fit the text"
    )
    return Noted(splits, (note,) if n_dropped else ())


def training_file(path: Path) -> tuple[list[Sample], int]:
    """The sentences, and how many were left out. One element holds the sentences of an essay, or a single one, and their mistakes."""
    samples, n_misfits = [], 0
    for line, block in blocks(path, "ESSAY", "SENTENCE", "DOC"):
        place = f"{path}:{line}"
        sentences = [(_id(match[0]), element(match[0], match[1])) for match in SENTENCE.finditer(block)]
        mistakes = [mistake(text, place) for text in MISTAKE.findall(block)]
        if not any(source for _, source in sentences):
            raise DataError(f"{place}: expected a <PASSAGE>, <TEXT> or <P> with a sentence")
        for name, source in sentences:
            if source:
                target = correct(source, [found for found in mistakes if found.sentence in (None, name)])
                if target is None:
                    n_misfits += 1
                else:
                    samples.append({"source": source, "target": target})
    return samples, n_misfits


def _id(text: str) -> str | None:
    match = ID.search(text[: text.index(">")])
    return None if match is None else match[1]


def mistake(text: str, place: str) -> Mistake:
    location, wrong = LOCATION.search(text), element(text, "WRONG")
    right = element(text, "CORRECTION") or element(text, "CORRECT")
    if location is not None and int(location[1]) == 0:  # how SIGHAN 2013 says that there is none
        return Mistake(_id(text), 0, "", "")
    if location is None or not wrong or not right:
        raise DataError(
            f"{place}: expected a <MISTAKE> with a location, <WRONG> and <CORRECTION>, got {text!r:.120}"
        )
    return Mistake(_id(text), int(location[1]), wrong, right)


def correct(source: str, mistakes: list[Mistake]) -> str | None:
    """The sentence put right, None where a correction does not fit.

    The location is that of the wrong character, the word around it begins anywhere before; where the location is itself
    mistaken, as some are, the nearest such word is meant.

    >>> correct("敬祝身體建慷。", [Mistake(None, 5, "建慷", "健康"), Mistake(None, 6, "建慷", "健康")])
    '敬祝身體健康。'
    """
    target = list(source)
    for _, location, wrong, right in mistakes:
        if location == 0:
            continue
        begins = [begin for begin in range(len(source)) if source.startswith(wrong, begin)]
        if not begins or len(wrong) != len(right):
            return None
        changed = [offset for offset in range(len(wrong)) if wrong[offset] != right[offset]]
        distances = [
            min((abs(begin + offset + 1 - location) for offset in changed), default=0) for begin in begins
        ]
        begin = begins[distances.index(min(distances))]
        for offset in changed:
            target[begin + offset] = right[offset]
    return "".join(target)


def read_pair(inputs: Path, truths: Path) -> list[Sample]:
    """Lines "(pid=ID) text" and lines "ID, place, character, place, character" or "ID, 0"."""
    answers: dict[str, list[tuple[int, str]]] = {}
    for number, line in read_lines(truths):
        if line.strip():
            name, *cells = [cell.strip() for cell in line.split(",")]
            if cells != ["0"] and (
                not cells or len(cells) % 2 or not all(PLACE.fullmatch(cell) for cell in cells[::2])
            ):
                raise DataError(
                    f'{truths}:{number}: expected "ID, 0" or "ID, place, character, …", got {line!r:.80}'
                )
            answers[name] = [
                (int(place), character) for place, character in zip(cells[::2], cells[1::2], strict=False)
            ]
    samples = []
    for number, line in read_lines(inputs):
        if line.strip():
            match = re.match(r"\((?:pid|NID)=([^)]+)\)\s*(.*\S)", line)
            if match is None or match[1] not in answers:
                raise DataError(
                    f'{inputs}:{number}: expected "(pid=ID) text" with an ID of {truths.name}, got {line!r:.80}'
                )
            target = list(match[2])
            for place, character in answers[match[1]]:
                if not 1 <= place <= len(target) or len(character) != 1:
                    raise DataError(
                        f"{truths}: {match[1]} has character {character!r} at place {place}, its text has {len(target)}"
                    )
                target[place - 1] = character
            samples.append({"source": match[2], "target": "".join(target)})
    return samples


@register(
    "sighan2015",
    kind="spelling",
    about="wrong characters in Chinese sentences, put right (Tseng et al. 2015)",
    metric="correction_f1",
    home="http://ir.itc.ntnu.edu.tw/lre/sighan8csc.html",
    sizes=(277786, 1100, 1100),
    max_length=130,
)
def load(where: Where) -> Data:
    data = load_published(where, "spelling", ["sighan2015"], original)
    if len(data.train) >= WANG271K:
        return data
    train, dev, notes = (
        data.train,
        data.dev,
        [*data.notes, f"train without Wang271K: {len(data.train)} sentences"],
    )
    if not any(
        note.startswith("no dev set") for note in data.notes
    ):  # a model of people's mistakes has none of the synthetic ones right
        train, dev = split_off(train, 0.1)
        notes.append(
            f"dev: {len(dev)} sentences split off train, since the given ones are of Wang271K, whose mistakes are synthetic"
        )
    return replace(data, train=train, dev=dev, notes=tuple(notes))
