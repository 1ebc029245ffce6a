"""A fingerprint of a data set, to notice that a run is resumed with other data of the same size.

- A TensorDataset: all of its tensors.
- A list or tuple: its samples, or 10,000 of them at even distances.
- Any other map-style data set: 32 samples at even distances, since reading one may take long. Each is read
  twice, with the global random number generators seeded alike, so random augmentation from those generators
  does not matter. Where two reads differ nevertheless, the samples are random by themselves, and only their
  number is compared.

A change that touches none of these samples is not noticed. The generators are left as they were.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from sparring.training.checkpoint import random_state, set_random_state

IN_MEMORY, ELSEWHERE = 10_000, 32  # samples that are read
RANDOM = "random"  # the fingerprint of samples that differ from read to read
LARGEST = 1 << 28  # bytes of one array that are hashed; of a larger one, elements at even distances
DEEPEST = 12


def fingerprint(data: Any) -> str:
    """A digest of a map-style data set, or ``RANDOM``. Never raises for what a sample is made of."""
    if isinstance(data, TensorDataset):
        return digest_of(data.tensors)
    with _seeded() as seed:
        if type(data) in (list, tuple):
            return digest_of([data[i] for i in spread(len(data), IN_MEMORY)])
        reads = []
        for _ in range(2):
            seed()
            reads.append(digest_of([_sample(data, i) for i in spread(len(data), ELSEWHERE)]))
    return reads[0] if reads[0] == reads[1] else RANDOM


def spread(n: int, most: int) -> list[int]:
    """At most ``most`` of n indices, at even distances, the first and the last among them.

    >>> spread(5, 3), spread(2, 3)
    ([0, 2, 4], [0, 1])
    """
    return list(range(n)) if n <= most else [i * (n - 1) // (most - 1) for i in range(most)]


def digest_of(value: Any) -> str:
    """SHA-256 of tensors, arrays, texts, numbers and containers of them, the same in every process.

    >>> digest_of({"a": [1, "x"], "b": None}) == digest_of({"b": None, "a": [1, "x"]})
    True
    >>> digest_of([1]) == digest_of((1,))
    False
    """
    digest = hashlib.sha256()
    _update(digest, value, DEEPEST)
    return digest.hexdigest()


def _sample(data: Any, index: int) -> Any:
    try:
        return data[index]
    except Exception:  # training will meet it again, where it can be seen
        return None


@contextmanager
def _seeded() -> Iterator[Any]:
    """Yield a function that seeds the global generators; at the end they are as they were."""

    def seed() -> None:
        random.seed(0)
        torch.default_generator.manual_seed(0)  # the CPU's alone; samples are made there
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)

    before = random_state()
    try:
        yield seed
    finally:
        set_random_state(before)


def _update(digest: Any, value: Any, depth: int) -> None:
    """Add a value to a digest: its type and what it is made of. Of an unknown type, its attributes."""
    if isinstance(value, (str, int, float, complex, type(None))):
        digest.update(f"{type(value).__name__}:{value!r};".encode("utf-8", "surrogatepass"))
        return
    digest.update(f"{type(value).__qualname__}(".encode())
    try:
        if isinstance(value, (bytes, bytearray)):
            digest.update(value)
        elif depth > 0:
            _update_parts(digest, value, depth - 1)
    except Exception:  # an exotic tensor, an attribute that raises: its type must do
        digest.update(b"!")
    digest.update(b")")


def _update_parts(digest: Any, value: Any, depth: int) -> None:
    if isinstance(value, Tensor) and value.layout is torch.sparse_coo:
        entries = value.detach().coalesce()
        _update(digest, [list(value.shape), entries.indices(), entries.values()], depth)
    elif isinstance(value, Tensor):
        _update_array(digest, value.detach().to("cpu").resolve_conj().contiguous(), depth)
    elif type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        _update_array(digest, value, depth)
    elif isinstance(value, Mapping):
        for key, inner in sorted(value.items(), key=lambda pair: repr(pair[0])):
            _update(digest, key, depth)
            _update(digest, inner, depth)
    elif isinstance(value, Set):
        digest.update("".join(sorted(digest_of(inner) for inner in value)).encode())
    elif isinstance(value, Sequence):
        for inner in value:
            _update(digest, inner, depth)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        _update(digest, {name: getattr(value, name) for name in names}, depth)
    elif hasattr(value, "tobytes"):  # an image of PIL
        _update(digest, [getattr(value, "mode", None), getattr(value, "size", None)], depth)
        digest.update(value.tobytes())
    else:
        _update(digest, getattr(value, "__dict__", None), depth)


def _update_array(digest: Any, array: Any, depth: int) -> None:
    """A tensor on the CPU or a NumPy array: its dtype, shape and bytes."""
    _update(digest, [str(array.dtype), list(array.shape)], depth)
    if str(array.dtype) == "object":
        _update(digest, array.tolist(), depth)
        return
    flat = array.reshape(-1)
    n_bytes = len(flat) * (array.element_size() if isinstance(array, Tensor) else array.itemsize)
    flat = flat[:: max(1, -(-n_bytes // LARGEST))]
    if isinstance(flat, Tensor):
        flat = flat.contiguous().view(torch.uint8).numpy()
    digest.update(flat.tobytes())
