"""Code-switch: a few names in two to four languages in a row, and the language of every token."""

import random
from collections import defaultdict

from sparring.lab.datasets import register_embedded
from sparring.lab.datasets.text.languages import unique_names
from sparring.lab.readers.catalogues import HOME
from sparring.lab.task import Sample

UNSPACED = ["dz", "ja", "km", "lo", "th", "zh_CN", "zh_HK", "zh_TW"]  # a token would be a whole name
NAMES = (3, 8)  # in a sequence
LANGUAGES = (2, 4)


def mix(samples: list[Sample], seed: int = 0) -> list[Sample]:
    """Sequences of names, each used at most once. A token's tag is the language of its name."""
    rng = random.Random(seed)
    names: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        if sample["label"] not in UNSPACED:
            names[sample["label"]].append(sample["text"])
    sequences: list[Sample] = []
    while len(names) >= LANGUAGES[0]:
        languages = rng.sample(sorted(names), min(rng.randint(*LANGUAGES), len(names)))
        n_more = rng.randint(*NAMES) - len(languages)
        turns = languages + [rng.choice(languages) for _ in range(n_more)]  # each language at least once
        rng.shuffle(turns)
        pairs = [(language, names[language].pop()) for language in turns if names[language]]
        names = {language: texts for language, texts in names.items() if texts}
        if len(pairs) >= NAMES[0]:  # the last two languages may have one name each
            words = [(word, language) for language, name in pairs for word in name.split()]
            tokens, tags = zip(*words, strict=True)
            sequences.append({"tokens": list(tokens), "tags": list(tags)})
    return sequences


register_embedded(
    "code-switch",
    kind="token",
    about="the language of every token where names in two to four of 81 languages follow one another",
    splits=lambda: {split: mix(samples) for split, samples in unique_names().items()},
    source="pycountry",
    notes=(
        "every name is used once, in the part it has in languages: no English name is in two parts",
        f"without languages written without spaces: {', '.join(UNSPACED)}",
    ),
    metric="accuracy",
    home=HOME,
)
