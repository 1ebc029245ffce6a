"""WOS-46985 (Kowsari et al. 2017): which domain of science an abstract belongs to, and which area in it."""

from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import read_lines
from sparring.lab.readers.published import find_file, split_off
from sparring.lab.task import DataError, Sample, Splits

FILES = {"abstracts": ("X.txt",), "domains": ("YL1.txt",), "areas": ("Y.txt", "YL2.txt")}


def original(folder: Path) -> Splits | None:
    """X.txt, one abstract a line, with its domain in YL1.txt and its area in Y.txt or YL2.txt.

    In YL2.txt, areas are numbered within their domain. There is no published split: as in the AS-Softmax
    paper, a fifth is the test set and a fifth of the rest the dev set.
    """
    paths = {name: find_file(folder, *names) for name, names in FILES.items()}
    if paths["abstracts"] is None:
        return None
    columns = {}
    for name, path in paths.items():
        if path is None:
            raise DataError(f"{folder}: expected YL1.txt and Y.txt (or YL2.txt) beside X.txt")
        columns[name] = _stripped_lines(path, numbers=name != "abstracts")
    if len({*map(len, columns.values())}) > 1:
        counts = ", ".join(f"{len(lines)} {name}" for name, lines in columns.items())
        raise DataError(f"{folder}: expected equally many lines, got {counts}")
    samples: list[Sample] = [
        {"text": text, "labels": [domain, f"{domain}/{area}"]}
        for text, domain, area in zip(*columns.values(), strict=True)
    ]
    rest, test = split_off(samples, 0.2, limit=None)
    train, dev = split_off(rest, 0.2, limit=None)
    return {"train": train, "dev": dev, "test": test}


def _stripped_lines(path: Path, numbers: bool) -> list[str]:
    """The lines up to the last that is not blank."""
    lines = list(read_lines(path))
    while lines and not lines[-1][1].strip():
        lines.pop()
    for place, line in lines:
        if numbers and not line.strip().isdigit():
            raise DataError(f"{place}: expected the number of a class, got {line!r:.80}")
    return [line.strip() for _, line in lines]


register_published(
    "wos",
    kind="multi-label",
    about="which domain of science an abstract belongs to, and which area in it (Kowsari et al. 2017)",
    metric="micro_f1",
    home="https://data.mendeley.com/datasets/9rw3vkcfy4/6",
    sizes=(30070, 7518, 9397),
    top_k=2,
    max_length=360,
    aliases={"wos46985": "", "wos_1k": "1,000 of the 46,985 abstracts"},
    original=original,
)
