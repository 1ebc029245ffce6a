"""RCV1-v2 (Lewis et al. 2004): which topics a Reuters story has. The published texts are stemmed tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from sparring.lab.readers.files import read_lines
from sparring.lab.readers.published import find_file, load_published
from sparring.lab.task import Data, DataError, Sample, Splits, Where, register

TOPICS = "rcv1-v2.topics.qrels"


def original(folder: Path) -> Splits | None:
    """lyrl2004_tokens_train.dat to train on, as many of lyrl2004_tokens_test_pt0.dat to _pt3.dat as are there to test on."""
    train = find_file(folder, "lyrl2004_tokens_train.dat")
    if train is None:
        return None
    topics_path = find_file(folder, TOPICS)
    if topics_path is None:
        raise DataError(f"{folder}: expected {TOPICS} (or .gz) beside {train.name}")
    topics = read_topics(topics_path)
    splits = {"train": [*stories(train, topics)]}
    parts = [
        path for i in range(4) if (path := find_file(folder, f"lyrl2004_tokens_test_pt{i}.dat")) is not None
    ]
    if parts:
        splits["test"] = [story for path in parts for story in stories(path, topics)]
    return splits


def read_topics(path: Path) -> dict[str, list[str]]:
    """Lines "TOPIC story 1"."""
    topics: dict[str, list[str]] = defaultdict(list)
    for number, line in read_lines(path):
        if line.strip():
            cells = line.split()
            if len(cells) != 3:
                raise DataError(f'{path}:{number}: expected "TOPIC story 1", got {line!r:.80}')
            topics[cells[1]].append(cells[0])
    return dict(topics)


def stories(path: Path, topics: dict[str, list[str]]) -> Iterator[Sample]:
    """A line ".I story", a line ".W", then lines of tokens."""
    story, begin = "", 0
    tokens: list[str] = []
    for number, line in [*read_lines(path), (0, ".I")]:
        if line.startswith(".I"):
            if story:
                if story not in topics:
                    raise DataError(f"{path}:{begin}: story {story} has no topic in {TOPICS}")
                yield {"text": " ".join(tokens), "labels": sorted(topics[story])}
            story, tokens, begin = line[2:].strip(), [], number
        elif line.strip() not in ("", ".W"):
            if not story:
                raise DataError(
                    f'{path}:{number}: expected ".I" and the number of a story first, got {line!r:.80}'
                )
            tokens += line.split()


@register(
    "rcv1",
    kind="multi-label",
    about="which topics a Reuters story has (Lewis et al. 2004)",
    metric="micro_f1",
    home="https://jmlr.org/papers/volume5/lewis04a/lyrl2004_rcv1v2_README.htm",
    sizes=(775220, 21510, 1191),
    max_length=512,
)
def load(where: Where) -> Data:
    return load_published(where, "multi-label", ["rcv1"], original)
