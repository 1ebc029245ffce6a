"""Languages: which of 89 languages a name is in. Comes with a package and trains in a minute."""

import random
from collections import defaultdict

from sparring.lab.datasets import register_embedded
from sparring.lab.readers.catalogues import HOME, SHARES, Spelling, part_of, spellings
from sparring.lab.task import SPLITS, Splits

MIN_NAMES = 200  # that a language must have to be a class
MAX_NAMES = 300  # used of each language


def unique_names(seed: int = 0) -> Splits:
    """Names written by exactly one language, up to `MAX_NAMES` of each language, in random order."""
    by_language: dict[str, list[Spelling]] = defaultdict(list)
    for spelling in spellings():
        if len(spelling.languages) == 1:
            by_language[spelling.languages[0]].append(spelling)
    rng = random.Random(seed)
    splits: Splits = {split: [] for split in SPLITS}
    for language in sorted(by_language):
        if len(by_language[language]) < MIN_NAMES:
            continue
        texts: dict[str | None, list[str]] = defaultdict(list)
        for spelling in by_language[language]:
            texts[part_of(spelling)].append(spelling.text)
        for split, share in zip(SPLITS, SHARES, strict=True):
            names = rng.sample(texts[split], min(len(texts[split]), round(share * MAX_NAMES)))
            splits[split] += [{"text": name, "label": language} for name in names]
    for samples in splits.values():
        rng.shuffle(samples)
    return splits


register_embedded(
    "languages",
    kind="multi-class",
    about="which of 89 languages the name of a language, country, region, script or currency is in",
    splits=unique_names,
    source="pycountry",
    notes=("split by the English name: none is in two parts",),
    metric="accuracy",
    home=HOME,
    max_length=64,
    settings={"batch_size": 64},
)
