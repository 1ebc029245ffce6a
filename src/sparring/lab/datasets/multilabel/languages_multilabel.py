"""Languages, multi-label: all languages that share a name. "Spanien" is Danish, German and Swedish."""

import random
from collections import Counter, defaultdict

from sparring.lab.datasets import register_embedded
from sparring.lab.readers.catalogues import HOME, Spelling, part_of, spellings
from sparring.lab.task import SPLITS, Splits

MIN_SHARED = 100  # names that a language must share with others to be a class
UNIQUE = 120  # names per language that no other language shares: a second label may be missing


def shared_names(seed: int = 0) -> Splits:
    """All names that two or more classes share, and `UNIQUE` of each class alone, in random order."""
    shared = [spelling for spelling in spellings() if len(spelling.languages) > 1]
    counts = Counter(language for spelling in shared for language in spelling.languages)
    classes = {language for language, count in counts.items() if count >= MIN_SHARED}
    unique: dict[str, list[Spelling]] = defaultdict(list)
    names: list[Spelling] = []
    for spelling in spellings():
        if part_of(spelling) is None:
            continue
        if len(classes.intersection(spelling.languages)) > 1:
            names.append(spelling)
        elif len(spelling.languages) == 1:
            unique[spelling.languages[0]].append(spelling)
    rng = random.Random(seed)
    for language in sorted(classes):
        names += rng.sample(unique[language], min(len(unique[language]), UNIQUE))
    rng.shuffle(names)
    splits: Splits = {split: [] for split in SPLITS}
    for spelling in names:
        labels = sorted(classes.intersection(spelling.languages))
        splits[str(part_of(spelling))].append({"text": spelling.text, "labels": labels})
    return splits


register_embedded(
    "languages-multilabel",
    kind="multi-label",
    about="all those of 64 languages that write a name so; two names in three are shared",
    splits=shared_names,
    source="pycountry",
    notes=(
        "split by the English name: none is in two parts",
        "a language that has not translated a name is not among its labels, so no score reaches 100 %",
    ),
    metric="micro_f1",
    home=HOME,
    max_length=64,
    settings={"batch_size": 64},
)
