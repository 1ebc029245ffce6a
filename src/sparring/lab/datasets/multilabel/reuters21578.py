"""Reuters-21578 (Lewis 1997): which topics a Reuters story has, in the ModApte split."""

import re
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.markup import blocks, element
from sparring.lab.task import DataError, Sample, Splits

MOD_APTE = {"TRAIN": "train", "TEST": "test"}  # LEWISSPLIT, of the stories with TOPICS="YES"


def original(folder: Path) -> Splits | None:
    """reut2-000.sgm to reut2-021.sgm. The classes are the 90 topics with both training and test stories."""
    paths = sorted(folder.glob("reut2-*.sgm"))
    if not paths:
        return None
    splits: Splits = {"train": [], "test": []}
    for path in paths:
        for place, block in blocks(path, "REUTERS", encoding="latin-1"):
            split = re.search(r'LEWISSPLIT="([^"]*)"', block)
            topics = re.search(r'TOPICS="([^"]*)"', block)
            if split is None or topics is None:
                attributes = "<REUTERS> with the attributes TOPICS and LEWISSPLIT"
                raise DataError(f"{place}: expected {attributes}, got {block!r:.80}")
            if topics[1] == "YES" and split[1] in MOD_APTE:
                splits[MOD_APTE[split[1]]].append(_story(block))
    shared = set.intersection(
        *({topic for s in samples for topic in s["labels"]} for samples in splits.values())
    )
    for samples in splits.values():
        for sample in samples:
            sample["labels"] = [topic for topic in sample["labels"] if topic in shared]
    return {split: [sample for sample in samples if sample["labels"]] for split, samples in splits.items()}


def _story(block: str) -> Sample:
    """Title and body; a story with neither is a single text."""
    parts = [element(block, "TITLE"), element(block, "BODY")]
    if not any(parts):
        parts = [element(block, "TEXT")]
    text = " ".join(" ".join(part for part in parts if part).split())
    topics = re.search(r"<TOPICS\b[^>]*>(.*?)</TOPICS>", block, re.DOTALL)
    labels = [] if topics is None else sorted(re.findall(r"<D>(.*?)</D>", topics[1]))
    return {"text": re.sub(r"\s*\breuter$", "", text, flags=re.IGNORECASE), "labels": labels}


register_published(
    "reuters21578",
    kind="multi-label",
    about="which of 90 topics a Reuters story has (Lewis 1997)",
    metric="micro_f1",
    home="https://archive.ics.uci.edu/dataset/137/reuters+21578+text+categorization+collection",
    max_length=256,
    original=original,
)
