"""Languages: which of 89 languages a name is in. Comes with a package, trains in a minute, and is hard where languages are close."""

from __future__ import annotations

import random
from collections import defaultdict

from sparring.lab.kinds import get_kind
from sparring.lab.readers.catalogues import HOME, SHARES, Spelling, part_of, spellings
from sparring.lab.task import SPLITS, Data, Splits, Where, register

AT_LEAST = 200  # strings a language must have to be a class
AT_MOST = 300  # strings taken of each


def own_names(seed: int = 0) -> Splits:
    """Strings that exactly one language writes so, up to ``AT_MOST`` of each language, in random order."""
    own: dict[str, list[Spelling]] = defaultdict(list)
    for spelling in spellings():
        if len(spelling.languages) == 1:
            own[spelling.languages[0]].append(spelling)
    rng = random.Random(seed)
    splits: Splits = {name: [] for name in SPLITS}
    for language in sorted(language for language in own if len(own[language]) >= AT_LEAST):
        texts: dict[str | None, list[str]] = defaultdict(list)
        for spelling in own[language]:
            texts[part_of(spelling)].append(spelling.text)
        for name, share in zip(SPLITS, SHARES, strict=True):
            taken = rng.sample(texts[name], min(len(texts[name]), round(share * AT_MOST)))
            splits[name] += [{"text": text, "label": language} for text in taken]
    for samples in splits.values():
        rng.shuffle(samples)
    return splits


@register(
    "languages",
    kind="multi-class",
    about="which of 89 languages the name of a language, country, region, script or currency is in",
    metric="accuracy",
    home=HOME,
    embedded=True,
    max_length=64,
    settings={"batch_size": 64},
)
def load(where: Where) -> Data:
    return Data(
        get_kind("multi-class"),
        **own_names(),
        source="pycountry",
        notes=("split by the English name: none is in two parts",),
    )
