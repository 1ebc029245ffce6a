"""WOS-46985 (Kowsari et al. 2017): which domain of science an abstract belongs to, and which area in it."""

from __future__ import annotations

from pathlib import Path

from sparring.lab.readers.files import read_lines
from sparring.lab.readers.published import find_file, load_published, split_off
from sparring.lab.task import Data, DataError, Splits, Where, register


def original(folder: Path) -> Splits | None:
    """X.txt, one abstract a line, with its domain in YL1.txt and its area in Y.txt (or YL2.txt, where areas count anew in each domain).

    There is no published split: a fifth is the test set, a fifth of the rest the dev set, as in the AS-Softmax paper.
    """
    paths = [find_file(folder, *names) for names in (("X.txt",), ("YL1.txt",), ("Y.txt", "YL2.txt"))]
    if paths[0] is None:
        return None
    texts, domains, areas = (_lines(path, folder) for path in paths)
    if not len(texts) == len(domains) == len(areas):
        raise DataError(
            f"{folder}: expected equally many lines, got {len(texts)} abstracts, {len(domains)} domains, {len(areas)} areas"
        )
    for path, numbers in zip(paths[1:], (domains, areas), strict=True):
        for number, line in enumerate(numbers, 1):
            if not line.strip().isdigit():
                raise DataError(f"{path}:{number}: expected the number of a class, got {line!r:.80}")
    samples = [
        {"text": text.strip(), "labels": [domain.strip(), f"{domain.strip()}/{area.strip()}"]}
        for text, domain, area in zip(texts, domains, areas, strict=True)
    ]
    rest, test = split_off(samples, 0.2, most=None)
    train, dev = split_off(rest, 0.2, most=None)
    return {"train": train, "dev": dev, "test": test}


def _lines(path: Path | None, folder: Path) -> list[str]:
    if path is None:
        raise DataError(f"{folder}: expected YL1.txt and Y.txt (or YL2.txt) beside X.txt")
    lines = [line for _, line in read_lines(path)]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


@register(
    "wos",
    kind="multi-label",
    about="which domain of science an abstract belongs to, and which area in it (Kowsari et al. 2017)",
    aliases=("wos46985", "wos_1k"),
    metric="micro_f1",
    home="https://data.mendeley.com/datasets/9rw3vkcfy4/6",
    sizes=(30070, 7518, 9397),
    top_k=2,
    max_length=360,
)
def load(where: Where) -> Data:
    stand_ins = {"wos_1k": "1,000 of the 46,985 abstracts"}
    return load_published(where, "multi-label", ["wos", "wos46985", "wos_1k"], original, stand_ins=stand_ins)
