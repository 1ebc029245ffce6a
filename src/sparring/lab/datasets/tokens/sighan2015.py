"""SIGHAN 2015 (Tseng et al. 2015): wrong characters in Chinese sentences.

Wang271K (Wang et al. 2018) is a further training set. SIGHAN's files are in traditional Chinese, the papers'
results on simplified text. To compare, convert the files first, for example with OpenCC.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import match_lines
from sparring.lab.readers.markup import blocks, element
from sparring.lab.readers.published import NotedSplits, left_out, split_off
from sparring.lab.task import Data, DataError, Sample

TRAINING = ("*.sgml", "*.xml", "*SampleSet*.txt")  # SIGHAN 2014, 2015 and Wang271K; SIGHAN 2013 has the third
SENTENCE = re.compile(
    r"<(PASSAGE|TEXT|P)\b[^>]*>(?:(?!<(?:PASSAGE|MISTAKE)\b).)*?</\1>", re.DOTALL | re.IGNORECASE
)
MISTAKE = re.compile(r"<MISTAKE\b.*?</MISTAKE>", re.DOTALL | re.IGNORECASE)
LOCATION = re.compile(r"(?:location|wrong_position)\W+(\d{1,9})(?!\d)", re.IGNORECASE)  # attribute or element
ID = re.compile(r"""\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
N_WANG271K = 200_000  # training sets with Wang271K are larger, those without it have a few thousand sentences


class Mistake(NamedTuple):
    """A wrong character, with the word around it before and after the correction."""

    sentence: str | None  # id of the sentence; None if the element has a single one
    location: int  # from 1 on; 0 for no mistake
    wrong: str
    right: str


def original(folder: Path) -> NotedSplits | None:
    """All training files in the folder and below it; the test files *TestInput.txt and *TestTruth.txt."""
    paths = sorted({path for pattern in TRAINING for path in folder.rglob(pattern)})
    paths = [path for path in paths if "test" not in path.name.lower()]
    if not paths:
        return None
    pairs = [pair for path in paths for pair in _training_pairs(path)]
    train: list[Sample] = [{"source": source, "target": target} for source, target in pairs if target]
    splits = {"train": train}
    inputs = sorted(folder.rglob("*TestInput.txt"), key=lambda path: ("15" in path.name, path.name))
    if inputs:
        truth = inputs[-1].with_name(inputs[-1].name.replace("Input", "Truth"))
        splits["test"] = _read_test(inputs[-1], truth)
    reason = "a correction changes their length or does not fit the text"
    return NotedSplits(splits, left_out(len(pairs) - len(train), "training sentences", reason))


def _training_pairs(path: Path) -> list[tuple[str, str | None]]:
    """Sentences and their corrections. An element holds the sentences of an essay, or a single one."""
    pairs = []
    for place, block in blocks(path, "ESSAY", "SENTENCE", "DOC"):
        sentences = [(_id(match[0]), element(match[0], match[1])) for match in SENTENCE.finditer(block)]
        mistakes = [_mistake(text, place) for text in MISTAKE.findall(block)]
        if not any(source for _, source in sentences):
            raise DataError(f"{place}: expected a <PASSAGE>, <TEXT> or <P> with a sentence")
        for name, source in sentences:
            if source:
                pairs.append((source, correct(source, [m for m in mistakes if m.sentence in (None, name)])))
    return pairs


def _id(text: str) -> str | None:
    match = ID.search(text[: text.index(">")])
    return None if match is None else match[1]


def _mistake(text: str, place: str) -> Mistake:
    location = LOCATION.search(text)
    wrong = element(text, "WRONG")
    right = element(text, "CORRECTION") or element(text, "CORRECT")
    if location is not None and int(location[1]) == 0:  # SIGHAN 2013: a sentence without a mistake
        return Mistake(_id(text), 0, "", "")
    if location is None or not wrong or not right:
        form = "a <MISTAKE> with a location, <WRONG> and <CORRECTION>"
        raise DataError(f"{place}: expected {form}, got {text!r:.120}")
    return Mistake(_id(text), int(location[1]), wrong, right)


def correct(source: str, mistakes: list[Mistake]) -> str | None:
    """The corrected sentence, None if a correction does not fit.

    The location is that of the wrong character; its word may begin before it. Some locations are wrong
    themselves: then the nearest occurrence of the word is corrected.

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
        distances = [min((abs(begin + i + 1 - location) for i in changed), default=0) for begin in begins]
        begin = begins[distances.index(min(distances))]
        for offset in changed:
            target[begin + offset] = right[offset]
    return "".join(target)


def _read_test(inputs: Path, truths: Path) -> list[Sample]:
    """Sentences "(pid=ID) text" with corrections "ID, place, character, place, character" or "ID, 0"."""
    pattern = r"([^,]*),\s*(0|\d{1,9}\s*,[^,]*(?:,\s*\d{1,9}\s*,[^,]*)*)"
    lines = match_lines(truths, pattern, '"ID, 0" or "ID, place, character, …"')
    corrections = {match[1].strip(): [cell.strip() for cell in match[2].split(",")] for _, match in lines}
    samples = []
    for place, match in match_lines(inputs, r"\((?:pid|NID)=([^)]+)\)\s*(.+)", '"(pid=ID) text"'):
        name, source = match[1], match[2]
        if name not in corrections:
            raise DataError(f"{place}: expected an ID of {truths.name}, got {name!r:.80}")
        target = list(source)
        cells = corrections[name]
        for position, character in zip(map(int, cells[::2]), cells[1::2], strict=False):
            if not 1 <= position <= len(target) or len(character) != 1:
                correction = f"character {character!r} at place {position}"
                raise DataError(f"{truths}: {name} has {correction}, its text has {len(target)}")
            target[position - 1] = character
        samples.append({"source": source, "target": "".join(target)})
    return samples


def finish(data: Data) -> Data:
    """Without Wang271K, split a dev set off train: a given one has Wang271K's synthetic mistakes."""
    if len(data.train) >= N_WANG271K:
        return data
    notes = [*data.notes, f"train without Wang271K: {len(data.train)} sentences"]
    if any(note.startswith("no dev set") for note in data.notes):
        return replace(data, notes=tuple(notes))
    train, dev = split_off(data.train, 0.1)
    notes.append(
        f"dev: {len(dev)} sentences split off train, since the given ones are of Wang271K, "
        "whose mistakes are synthetic"
    )
    return replace(data, train=train, dev=dev, notes=tuple(notes))


register_published(
    "sighan2015",
    kind="spelling",
    about="wrong characters in Chinese sentences, put right (Tseng et al. 2015)",
    metric="correction_f1",
    home="http://ir.itc.ntnu.edu.tw/lre/sighan8csc.html",
    sizes=(277786, 1100, 1100),
    max_length=130,
    original=original,
    finish=finish,
)
