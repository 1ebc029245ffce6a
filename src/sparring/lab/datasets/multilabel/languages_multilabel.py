"""Languages, multi-label: all the languages that write a name so, as Spain is "Spanien" in Danish, German and Swedish."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from sparring.lab.kinds import get_kind
from sparring.lab.readers.catalogues import HOME, Spelling, part_of, spellings
from sparring.lab.task import SPLITS, Data, Splits, Where, register

AT_LEAST = 100  # strings a language must share with others to be a class
ALONE = 120  # strings per language that it alone writes so: to know that there is no second language is part of the task


def shared_names(seed: int = 0) -> Splits:
    """All strings that two or more of the classes write so, and ``ALONE`` of each class that no other language does, in random order."""
    count = Counter(
        language for spelling in spellings() if len(spelling.languages) > 1 for language in spelling.languages
    )
    classes = {language for language in count if count[language] >= AT_LEAST}
    own: dict[str, list[Spelling]] = defaultdict(list)
    taken: list[Spelling] = []
    for spelling in spellings():
        if part_of(spelling) is None:
            continue
        if len(classes.intersection(spelling.languages)) > 1:
            taken.append(spelling)
        elif len(spelling.languages) == 1:
            own[spelling.languages[0]].append(spelling)
    rng = random.Random(seed)
    for language in sorted(classes):
        taken += rng.sample(own[language], min(len(own[language]), ALONE))
    rng.shuffle(taken)
    splits: Splits = {name: [] for name in SPLITS}
    for spelling in taken:
        splits[str(part_of(spelling))].append(
            {"text": spelling.text, "labels": sorted(classes.intersection(spelling.languages))}
        )
    return splits


@register(
    "languages-multilabel",
    kind="multi-label",
    about="all those of 64 languages that write a name so; two names in three are shared",
    metric="micro_f1",
    home=HOME,
    embedded=True,
    max_length=64,
    settings={"batch_size": 64},
)
def load(where: Where) -> Data:
    notes = (
        "split by the English name: none is in two parts",
        "a language that has not translated a name is not among its labels, so no score reaches 100 %",
    )
    return Data(get_kind("multi-label"), **shared_names(), source="pycountry", notes=notes)
