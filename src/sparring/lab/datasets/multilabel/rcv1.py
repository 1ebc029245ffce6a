"""RCV1-v2 (Lewis et al. 2004): which topics a Reuters story has. The published texts are stemmed tokens."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import match_lines, read_lines
from sparring.lab.readers.published import find_file
from sparring.lab.task import DataError, Sample, Splits

TOPICS = "rcv1-v2.topics.qrels"
TEST = [f"lyrl2004_tokens_test_pt{i}.dat" for i in range(4)]


def original(folder: Path) -> Splits | None:
    """lyrl2004_tokens_train.dat, the topics, and as many of the four test files as there are."""
    train = find_file(folder, "lyrl2004_tokens_train.dat")
    if train is None:
        return None
    topics_path = find_file(folder, TOPICS)
    if topics_path is None:
        raise DataError(f"{folder}: expected {TOPICS} (or .gz) beside {train.name}")
    topics = _read_topics(topics_path)
    splits = {"train": [*_stories(train, topics)]}
    paths = [path for name in TEST if (path := find_file(folder, name)) is not None]
    if paths:
        splits["test"] = [story for path in paths for story in _stories(path, topics)]
    return splits


def _read_topics(path: Path) -> dict[str, list[str]]:
    """Topics by story, from lines "TOPIC story 1"."""
    topics: dict[str, list[str]] = defaultdict(list)
    for _, match in match_lines(path, r"(\S+)\s+(\S+)\s+\S+", '"TOPIC story 1"'):
        topics[match[2]].append(match[1])
    return dict(topics)


def _stories(path: Path, topics: dict[str, list[str]]) -> Iterator[Sample]:
    """A line ".I story", a line ".W", then lines of tokens."""
    story = first_line = ""
    tokens: list[str] = []
    for place, line in [*read_lines(path, blank=False), ("", ".I")]:
        if line.startswith(".I"):
            if story and story not in topics:
                raise DataError(f"{first_line}: story {story} has no topic in {TOPICS}")
            if story:
                yield {"text": " ".join(tokens), "labels": sorted(topics[story])}
            story, first_line = line[2:].strip(), place
            tokens = []
        elif line.strip() != ".W":
            if not story:
                raise DataError(f'{place}: expected ".I" and the number of a story first, got {line!r:.80}')
            tokens += line.split()


register_published(
    "rcv1",
    kind="multi-label",
    about="which topics a Reuters story has (Lewis et al. 2004)",
    metric="micro_f1",
    home="https://jmlr.org/papers/volume5/lewis04a/lyrl2004_rcv1v2_README.htm",
    sizes=(775220, 21510, 1191),
    max_length=512,
    original=original,
)
