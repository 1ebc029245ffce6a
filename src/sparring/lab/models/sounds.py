"""MelSpectrogram to tensors: one rate, the log of the energy in each mel band over time. On torch; the bands' edges are transformers'."""

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

FILE = "preprocessor_config.json"
SECONDS = 10.0  # beyond which a sound is cut


@dataclass(frozen=True)
class MelSpectrogram:
    """How a network wants its sounds: (frames, bands)."""

    rate: int = 16000  # samples a second
    n_mels: int = 64
    window: float = 0.025  # seconds
    hop: float = 0.010
    log: bool = True
    loudness: float | None = None  # decibels of full scale that a quieter sound is brought to
    mean: float = 0.0  # of all values, and their spread
    std: float = 1.0
    frames: int | None = None  # exactly so many, for networks of one length

    @classmethod
    def of(cls, samples: Sequence[dict[str, Any]], **settings: Any) -> MelSpectrogram:
        """For a network trained from scratch: at the rate and with the mean and spread of the sounds themselves."""
        made = cls(**{"rate": max(sample["rate"] for sample in samples), **settings})
        some = torch.cat([made(sample["audio"], sample["rate"]).flatten() for sample in samples[:200]])
        return replace(made, mean=some.mean().item(), std=some.std().item() + 1e-6)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> MelSpectrogram:
        found = json.loads((Path(folder) / FILE).read_text())
        return cls(**found["sounds"])

    def save_pretrained(self, folder: str | Path) -> None:
        with atomic_write(Path(folder) / FILE) as part:
            part.write_text(json.dumps({"sounds": asdict(self)}, indent=1) + "\n")

    def __call__(self, sound: Tensor, rate: int) -> Tensor:
        """(n,) 16-bit samples, ``rate`` of them a second, to (frames, bands)."""
        wave = self._loud(resampled(sound[: int(SECONDS * rate)].float() / 32768, rate, self.rate))
        size, step = round(self.window * self.rate), round(self.hop * self.rate)
        wave = F.pad(wave, (0, max(0, size - len(wave))))
        power = torch.stft(
            wave, size, step, window=torch.hann_window(size), center=True, pad_mode="constant", return_complex=True
        ).abs().square()  # fmt: skip
        bands = mel_filters(size, self.n_mels, self.rate).T @ power  # (bands, frames)
        values = (((bands + 1e-10).log() if self.log else bands).T - self.mean) / self.std
        if self.frames is not None:
            values = F.pad(values[: self.frames], (0, 0, 0, max(0, self.frames - len(values))))
        return values

    def collate(self, spectra: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inputs of the network for a batch: (N, frames, bands), padded, and which frames are real."""
        padded = torch.nn.utils.rnn.pad_sequence(list(spectra), batch_first=True)
        if self.frames is not None:
            return {"input_values": padded}
        lengths = torch.tensor([len(spectrum) for spectrum in spectra])
        mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()
        return {"input_values": padded, "attention_mask": mask}

    def _loud(self, wave: Tensor) -> Tensor:
        if self.loudness is None:
            return wave
        now = 20 * math.log10(max(wave.square().mean().sqrt().item(), 1e-9))
        return wave * 10 ** (max(0.0, self.loudness - now) / 20)


def resampled(wave: Tensor, rate: int, to: int) -> Tensor:
    if rate == to:
        return wave
    from scipy.signal import resample_poly

    common = math.gcd(rate, to)
    return torch.from_numpy(resample_poly(wave.numpy(), to // common, rate // common)).float()


@cache
def mel_filters(size: int, n_mels: int, rate: int) -> Tensor:
    """(size // 2 + 1, n_mels): what each frequency gives to each band."""
    from transformers.audio_utils import mel_filter_bank

    found = mel_filter_bank(size // 2 + 1, n_mels, 0.0, rate / 2, rate, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(found).float()


class HubFeatures:
    """The feature extractor of a network on the hub."""

    def __init__(self, extractor: Any) -> None:
        self.extractor = extractor
        self.rate = int(extractor.sampling_rate)

    def save_pretrained(self, folder: str | Path) -> None:
        self.extractor.save_pretrained(folder)

    def __call__(self, sound: Tensor, rate: int) -> Tensor:
        return resampled(sound[: int(SECONDS * rate)].float() / 32768, rate, self.rate)

    def collate(self, waves: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inputs of the network for a batch of waves."""
        arrays = [wave.numpy() for wave in waves]
        return dict(self.extractor(arrays, sampling_rate=self.rate, padding=True, return_tensors="pt"))


def load_processor(folder: Path, trust: bool = False) -> MelSpectrogram | HubFeatures:
    """Load what was saved with a network: ours, or a feature extractor of the hub."""
    if '"sounds"' in (folder / FILE).read_text():
        return MelSpectrogram.from_pretrained(folder)
    from transformers import AutoFeatureExtractor

    return HubFeatures(AutoFeatureExtractor.from_pretrained(folder, trust_remote_code=trust))
