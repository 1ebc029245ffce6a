"""Sounds with one label each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparring.lab.errors import DataError
from sparring.lab.kinds.base import register_kind
from sparring.lab.kinds.encoder import Encoder, Features, Labels, Sample, Samples
from sparring.lab.kinds.media import MediaKind, png
from sparring.lab.models.settings import Model, ModelDefaults, ModelOptions
from sparring.lab.models.wav import read_wav, sixteen_bits

LOUDEST = 2.0  # values a little above 1 are clipped, as in WAV files; values far above have another scale


class AudioEncoder(Encoder):
    """One row of logits per sound. The processor is a `MelSpectrogram` or a `HubFeatures`."""

    def encode(self, samples: Samples) -> list[Features]:
        """The spectrum is computed once per sample, because it costs more than the network."""
        return [
            {"values": self.processor(sample["audio"], sample["rate"]), **self.target(sample)}
            for sample in samples
        ]

    def collate_inputs(self, features: Sequence[Features]) -> dict[str, Tensor]:
        inputs: dict[str, Tensor] = self.processor.collate([feature["values"] for feature in features])
        return inputs

    def lengths(self, features: Sequence[Features]) -> list[int] | None:
        return [len(feature["values"]) for feature in features]


@register_kind
class AudioKind(MediaKind):
    """A sound, 16-bit samples and their ``rate`` per second, and one of several labels."""

    name = "audio"
    fields = ("audio", "label")
    noun = "sounds"
    endings = (".wav",)
    arrays = ("audio", "labels")
    optional_arrays = ("offsets", "names")
    encoder_class = AudioEncoder
    auto_class = "AutoModelForAudioClassification"
    models = {
        "tiny": ModelDefaults(epochs=8, lr=3e-3, pieces=4, from_scratch=True),
        "ast": ModelDefaults(epochs=15, lr=2e-3, from_scratch=True),
        "resemblyzer": ModelDefaults(epochs=5, lr=1e-3),
    }
    pretrained = "resemblyzer"

    def read_file(self, path: Path, size: int | None = None) -> Sample:
        return read_wav(path)

    def read_arrays(self, arrays: Mapping[str, Any], sample_rate: int, path: Path) -> list[Sample]:
        """Clips of one length are rows. Others follow each other; ``offsets`` (N + 1) are their bounds."""
        import numpy as np

        audio, offsets = arrays["audio"], arrays.get("offsets")
        if audio.ndim != (2 if offsets is None else 1) or not (
            audio.dtype.kind in "if" or audio.dtype == np.uint8
        ):
            form = "(N, samples) without offsets, or one row with offsets"
            raise DataError(
                f"{path}: audio must be {form}, of int16 samples or of numbers between -1 and 1, "
                f"got {audio.dtype} {audio.shape} with{'out' if offsets is None else ''} offsets"
            )
        if offsets is None:
            length = audio.shape[1]
            audio, offsets = audio.reshape(-1), length * np.arange(len(audio) + 1)
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or not len(offsets):
            raise DataError(
                f"{path}: offsets must be one row of whole numbers, one more than samples, "
                f"got {offsets.dtype} {offsets.shape}"
            )
        bounds = [int(offset) for offset in offsets]
        return [
            {"audio": _clip(audio, begin, end, f"{path}: {path.stem} sample {i}"), "rate": sample_rate}
            for i, (begin, end) in enumerate(pairwise(bounds))
        ]

    def picture(self, sample: Sample) -> str | None:
        """The mel spectrum over time, low frequencies at the bottom."""
        from sparring.lab.models.sounds import MelSpectrogram

        spectrum = MelSpectrogram(rate=sample["rate"])(sample["audio"], sample["rate"]).T.flip(0)
        low, high = spectrum.quantile(0.02), spectrum.quantile(0.999)
        scaled = ((spectrum - low) / (high - low + 1e-6)).clamp(0, 1)
        return png(scaled.mul(255).byte().numpy()[..., None])

    def create_model(self, name: str, train: Samples, labels: Labels, options: ModelOptions) -> Model:
        from sparring.lab.models import audio

        return audio.build(name, train, labels, options)

    def load_processor(self, folder: Path, trust: bool) -> Any:
        from sparring.lab.models import sounds

        return sounds.load_processor(folder, trust)


def _clip(audio: Any, begin: int, end: int, place: str) -> Tensor:
    """One clip as 16-bit samples."""
    import numpy as np

    if not 0 <= begin < end <= len(audio):
        raise DataError(
            f"{place} must lie within the {len(audio)} values of audio, got offsets {begin} to {end}"
        )
    clip = audio[begin:end]
    if clip.dtype.kind == "f" and np.abs(clip[np.isfinite(clip)]).max(initial=0) > LOUDEST:
        raise DataError(f"{place}: sounds must have values between -1 and 1, or be int16")
    try:
        return torch.from_numpy(clip.copy()) if clip.dtype == np.int16 else sixteen_bits(clip)
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
