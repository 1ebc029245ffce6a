"""Split missing dev and test sets off a train set, and look for problems between the splits.

The split samples are always the same ones, stratified by class, and no text is in two splits.
"""

import random
from collections import defaultdict
from collections.abc import Hashable
from itertools import combinations

from sparring.lab.kinds import Kind
from sparring.lab.readers.files import some
from sparring.lab.task import SPLITS, DataError, Sample, Splits

SHARE = 0.1  # of the inputs that a split gets
MAX_INPUTS = 5000  # of a split


def split_missing(kind: Kind, splits: Splits, place: str) -> tuple[Splits, tuple[str, ...]]:
    """Split missing dev and test sets off train. Returns all splits, and a note if any was missing."""
    missing = [split for split in ("test", "dev") if split not in splits]
    if not missing:
        return splits, ()
    splits = dict(splits)
    n_inputs = len({kind.key(sample) for sample in splits["train"]})
    if n_inputs < 1 + len(missing):
        problem = f"{n_inputs} different {kind.noun} are too few to split off {' and '.join(missing)}"
        raise DataError(f"{place}: {problem}; add rows, or give all three parts")
    for split in missing:
        splits["train"], splits[split] = split_off_inputs(kind, splits["train"], round(SHARE * n_inputs))
    missing.reverse()
    sizes = " and ".join(f"{len(splits[split])} for {split}" for split in missing)
    how = ", each class in its share" if kind.one_label else ""
    note = f"no {' and no '.join(missing)} set given: split off train, {sizes}{how}; always the same ones"
    return splits, (note,)


def split_off_inputs(
    kind: Kind, samples: list[Sample], n_inputs: int, seed: int = 0
) -> tuple[list[Sample], list[Sample]]:
    """The remaining samples, and all samples of ``n_inputs`` inputs (1 to `MAX_INPUTS`), both in their order.

    Inputs are sorted by class, shuffled within each class and taken at equal distances, so that the split is
    stratified. Classes with fewer than three inputs are left in train if others have more.
    """
    inputs: dict[Hashable, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        inputs[kind.key(sample)].append(i)
    classes: dict[str, list[list[int]]] = defaultdict(list)
    for indices in inputs.values():
        classes[samples[indices[0]][kind.target] if kind.one_label else ""].append(indices)
    rng = random.Random(seed)
    large = [label for label in sorted(classes) if len(classes[label]) >= 3]
    order: list[list[int]] = []
    for label in large or sorted(classes):
        order += rng.sample(classes[label], len(classes[label]))
    n_inputs = max(1, min(n_inputs, MAX_INPUTS, len(order) // 3))
    off = {i for k in range(n_inputs) for i in order[(2 * k + 1) * len(order) // (2 * n_inputs)]}
    return [sample for i, sample in enumerate(samples) if i not in off], [samples[i] for i in sorted(off)]


def quality_notes(kind: Kind, splits: Splits) -> list[str]:
    """Notes on labels without training samples, samples without a label, and inputs in two splits."""
    notes = []
    if kind.labelled:
        labels = {split: {label for s in splits[split] for label in kind.labels_of(s)} for split in SPLITS}
        if new := sorted((labels["dev"] | labels["test"]) - labels["train"]):
            notes.append(f"labels seen only in dev or test: {some(new)}")
        samples = [sample for split in splits.values() for sample in split]
        if n_unlabelled := sum(not kind.labels_of(sample) for sample in samples):
            notes.append(f"rows without any label: {n_unlabelled}")
    keys = {split: {kind.key(sample) for sample in splits[split]} for split in SPLITS}
    for first, second in combinations(SPLITS, 2):
        if n_both := len(keys[first] & keys[second]):
            notes.append(f"{kind.noun} of {second} that are also in {first}: {n_both}")
    return notes
