"""Reuters-21578 (Lewis 1997): which topics a Reuters story has, in the ModApte split."""

from __future__ import annotations

import re
from pathlib import Path

from sparring.lab.readers.markup import blocks, element
from sparring.lab.readers.published import load_published
from sparring.lab.task import Data, DataError, Sample, Splits, Where, register

MOD_APTE = {"TRAIN": "train", "TEST": "test"}  # LEWISSPLIT, of the stories with TOPICS="YES"


def original(folder: Path) -> Splits | None:
    """reut2-000.sgm to reut2-021.sgm. The classes are the 90 topics that have both training and test stories."""
    paths = sorted(folder.glob("reut2-*.sgm"))
    if not paths:
        return None
    splits: Splits = {"train": [], "test": []}
    for path in paths:
        for line, block in blocks(path, "REUTERS", encoding="latin-1"):
            split = re.search(r'LEWISSPLIT="([^"]*)"', block)
            topics = re.search(r'TOPICS="([^"]*)"', block)
            if split is None or topics is None:
                raise DataError(
                    f"{path}:{line}: expected <REUTERS> with the attributes TOPICS and LEWISSPLIT, got {block!r:.80}"
                )
            if topics[1] == "YES" and split[1] in MOD_APTE:
                splits[MOD_APTE[split[1]]].append(story(block))
    shared = set.intersection(
        *({topic for sample in part for topic in sample["labels"]} for part in splits.values())
    )
    return {
        name: [
            {"text": sample["text"], "labels": kept}
            for sample in part
            if (kept := [topic for topic in sample["labels"] if topic in shared])
        ]
        for name, part in splits.items()
    }


def story(block: str) -> Sample:
    """Title and body; stories with neither are a single text."""
    parts = [element(block, "TITLE"), element(block, "BODY")]
    if not any(parts):
        parts = [element(block, "TEXT")]
    text = " ".join(" ".join(part for part in parts if part).split())
    topics = re.findall(r"<D>(.*?)</D>", _inside(block, "TOPICS"))
    return {"text": re.sub(r"\s*\breuter$", "", text, flags=re.IGNORECASE), "labels": sorted(topics)}


def _inside(block: str, tag: str) -> str:
    match = re.search(rf"<{tag}\b[^>]*>(.*?)</{tag}>", block, re.DOTALL)
    return "" if match is None else match[1]


@register(
    "reuters21578",
    kind="multi-label",
    about="which of 90 topics a Reuters story has (Lewis 1997)",
    metric="micro_f1",
    home="https://archive.ics.uci.edu/dataset/137/reuters+21578+text+categorization+collection",
    max_length=256,
)
def load(where: Where) -> Data:
    return load_published(where, "multi-label", ["reuters21578"], original)
