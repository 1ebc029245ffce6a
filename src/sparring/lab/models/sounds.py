"""Processors of sounds: log-mel spectra on torch, or the feature extractor of a Hugging Face model.

The feature extractors of transformers compute spectra with torchaudio, or frame by frame in Python, so that
networks of ours have their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.files import atomic_write

FILE = "preprocessor_config.json"  # as transformers names it
SECONDS = 10.0  # longer sounds are cut


@dataclass(frozen=True)
class MelSpectrogram:
    """Sounds to the energy in each mel band over time, (frames, bands)."""

    rate: int = 16000  # samples per second
    n_mels: int = 64
    window: float = 0.025  # seconds
    hop: float = 0.010
    log: bool = True
    loudness: float | None = None  # quieter sounds are amplified to so many decibels of full scale
    mean: float = 0.0  # subtracted from all values, which are then divided by `std`
    std: float = 1.0
    frames: int | None = None  # pad or cut to this length

    @classmethod
    def of(cls, samples: Sequence[dict[str, Any]], **settings: Any) -> MelSpectrogram:
        """For a network trained from scratch: rate, mean and standard deviation of the training sounds."""
        plain = cls(**{"rate": max(sample["rate"] for sample in samples), **settings})
        values = torch.cat([plain(sample["audio"], sample["rate"]).flatten() for sample in samples[:200]])
        return replace(plain, mean=values.mean().item(), std=values.std().item() + 1e-6)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> MelSpectrogram:
        return cls(**json.loads((Path(folder) / FILE).read_text())["sounds"])

    def save_pretrained(self, folder: str | Path) -> None:
        with atomic_write(Path(folder) / FILE) as part:
            part.write_text(json.dumps({"sounds": asdict(self)}, indent=2) + "\n")

    def __call__(self, sound: Tensor, rate: int) -> Tensor:
        """(n,) 16-bit samples, ``rate`` per second, to (frames, bands)."""
        wave = to_wave(sound, rate, self.rate)
        if self.loudness is not None:
            decibels = 20 * math.log10(max(wave.square().mean().sqrt().item(), 1e-9))
            wave = wave * 10 ** (max(0.0, self.loudness - decibels) / 20)
        size, step = round(self.window * self.rate), round(self.hop * self.rate)
        wave = F.pad(wave, (0, max(0, size - len(wave))))
        window = torch.hann_window(size)
        spectrum = torch.stft(wave, size, step, window=window, pad_mode="constant", return_complex=True)
        bands = mel_filters(size, self.n_mels, self.rate).T @ spectrum.abs().square()  # (bands, frames)
        values = (((bands + 1e-10).log() if self.log else bands).T - self.mean) / self.std
        if self.frames is not None:
            values = F.pad(values[: self.frames], (0, 0, 0, max(0, self.frames - len(values))))
        return values

    def collate(self, spectra: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inputs of the network for a batch: (N, frames, bands), padded, and a mask of the frames."""
        padded = torch.nn.utils.rnn.pad_sequence(list(spectra), batch_first=True)
        if self.frames is not None:
            return {"input_values": padded}
        lengths = torch.tensor([len(spectrum) for spectrum in spectra])
        mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()
        return {"input_values": padded, "attention_mask": mask}


def to_wave(sound: Tensor, rate: int, new_rate: int) -> Tensor:
    """(n,) 16-bit samples, at most `SECONDS` of them, to numbers between -1 and 1 at another rate."""
    return resampled(sound[: int(SECONDS * rate)].float() / 32768, rate, new_rate)


def resampled(wave: Tensor, rate: int, new_rate: int) -> Tensor:
    """The wave at another number of samples per second."""
    if rate == new_rate:
        return wave
    from scipy.signal import resample_poly

    common = math.gcd(rate, new_rate)
    return torch.from_numpy(resample_poly(wave.numpy(), new_rate // common, rate // common)).float()


@cache
def mel_filters(size: int, n_mels: int, rate: int) -> Tensor:
    """(size // 2 + 1, n_mels): the weight of each frequency in each band."""
    from transformers.audio_utils import mel_filter_bank

    filters = mel_filter_bank(size // 2 + 1, n_mels, 0.0, rate / 2, rate, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(filters).float()


class HubFeatures:
    """The feature extractor of a network on the hub."""

    def __init__(self, extractor: Any) -> None:
        self.extractor = extractor
        self.rate = int(extractor.sampling_rate)

    def save_pretrained(self, folder: str | Path) -> None:
        self.extractor.save_pretrained(folder)

    def __call__(self, sound: Tensor, rate: int) -> Tensor:
        return to_wave(sound, rate, self.rate)

    def collate(self, waves: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inputs of the network for a batch of waves."""
        arrays = [wave.numpy() for wave in waves]
        return dict(self.extractor(arrays, sampling_rate=self.rate, padding=True, return_tensors="pt"))


def load_processor(folder: Path, trust: bool = False) -> MelSpectrogram | HubFeatures:
    """Load what was saved with a network."""
    if '"sounds"' in (folder / FILE).read_text():
        return MelSpectrogram.from_pretrained(folder)
    from transformers import AutoFeatureExtractor

    return HubFeatures(AutoFeatureExtractor.from_pretrained(folder, trust_remote_code=trust))
