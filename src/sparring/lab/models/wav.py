"""WAV files to 16-bit samples, and bounds of sample rates."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

RATES = (1_000, 384_000)  # samples per second: telephones have 8,000, studio converters up to 384,000


def read_wav(path: Path) -> dict[str, Any]:
    """The mean of all channels as 16-bit samples, and the rate. Raises ValueError if it is not a sound."""
    from scipy.io import wavfile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about chunks that are not sound
        rate, sound = wavfile.read(path)
    if not len(sound):
        raise ValueError("no sound in it")
    return {"audio": sixteen_bits(sound), "rate": check_rate(rate)}


def check_rate(rate: Any) -> int:
    """The rate, if sound can have it; raises ValueError otherwise."""
    low, high = RATES
    if not isinstance(rate, int) or isinstance(rate, bool) or not low <= rate <= high:
        raise ValueError(f"expected {low:,} to {high:,} samples per second, got {rate!r:.40}")
    return rate


def sixteen_bits(sound: Any) -> Tensor:
    """(n,) or (n, channels) unsigned bytes, signed integers, or numbers between -1 and 1, to (n,) int16."""
    import numpy as np

    values = np.asarray(sound)
    if values.dtype == np.uint8:
        values = (values.astype(np.float64) - 128) / 128
    elif np.issubdtype(values.dtype, np.signedinteger):
        values = values.astype(np.float64) / np.iinfo(values.dtype).max
    elif not np.issubdtype(values.dtype, np.floating):
        raise ValueError(f"expected samples of uint8, int16, int32 or floating point, got {values.dtype}")
    values = values.mean(1) if values.ndim > 1 else values
    if not np.isfinite(values).all():
        raise ValueError("numbers in it are not finite")
    return torch.from_numpy((np.clip(values, -1, 1) * 32767).round().astype(np.int16))
