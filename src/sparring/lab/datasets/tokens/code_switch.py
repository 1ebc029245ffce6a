"""Code-switch: a few names in two to four languages one after the other, and the language of every token."""

from __future__ import annotations

import random
from collections import defaultdict

from sparring.lab.datasets.text.languages import own_names
from sparring.lab.kinds import get_kind
from sparring.lab.readers.catalogues import HOME
from sparring.lab.task import Data, Sample, Where, register

UNSPACED = {
    "dz",
    "ja",
    "km",
    "lo",
    "th",
    "zh_CN",
    "zh_HK",
    "zh_TW",
}  # written without spaces between words: a token would be a whole name
NAMES = (3, 8)  # in a sequence
LANGUAGES = (2, 4)


def mix(samples: list[Sample], seed: int = 0) -> list[Sample]:
    """Sequences of names, each name used at most once; a tag is the language of the name its token is from."""
    rng = random.Random(seed)
    left: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        if sample["label"] not in UNSPACED:
            left[sample["label"]].append(sample["text"])
    sequences: list[Sample] = []
    while len(left) >= LANGUAGES[0]:
        some = rng.sample(sorted(left), min(rng.randint(*LANGUAGES), len(left)))
        turns = some + [
            rng.choice(some) for _ in range(rng.randint(*NAMES) - len(some))
        ]  # every one of them has a turn
        rng.shuffle(turns)
        names = [(language, left[language].pop()) for language in turns if left[language]]
        left = {language: texts for language, texts in left.items() if texts}
        if len(names) >= NAMES[0]:  # the last two languages may have one name each
            words = [(word, language) for language, name in names for word in name.split()]
            sequences.append(
                {"tokens": [word for word, _ in words], "tags": [language for _, language in words]}
            )
    return sequences


@register(
    "code-switch",
    kind="token",
    about="the language of every token where names in two to four of 81 languages follow one another",
    metric="accuracy",
    home=HOME,
    embedded=True,
)
def load(where: Where) -> Data:
    parts = {name: mix(samples) for name, samples in own_names().items()}
    notes = (
        "every name is used once, in the part it has in languages: no English name is in two parts",
        f"without languages written without spaces: {', '.join(sorted(UNSPACED))}",
    )
    return Data(get_kind("token"), **parts, source="pycountry", notes=notes)
