"""A text classifier on the mean of an encoder's tokens, where transformers uses the first token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from sparring.lab.models.tiny import OwnInitialization, register


class MeanPooledConfig(PretrainedConfig):
    """The config of the encoder, and the dropout of the head."""

    model_type = "sparring-mean-pooled"

    def __init__(self, encoder: dict[str, Any] | None = None, dropout: float = 0.1, **settings: Any) -> None:
        self.encoder = encoder or {"model_type": "bert"}
        self.dropout = dropout
        super().__init__(**settings)
        inner = self.encoder_config()
        self.hidden_size = inner.hidden_size
        self.num_hidden_layers = inner.num_hidden_layers
        self.max_position_embeddings = getattr(inner, "max_position_embeddings", None)
        self.pad_token_id = inner.pad_token_id

    def encoder_config(self) -> PretrainedConfig:
        return AutoConfig.for_model(**self.encoder)


class MeanPooledForSequenceClassification(OwnInitialization):
    """An encoder, the mean of its tokens, dropout and a linear layer."""

    config_class = MeanPooledConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"

    def __init__(self, config: MeanPooledConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        if encoder is None:
            encoder = AutoModel.from_config(config.encoder_config(), trust_remote_code=False)
        self.encoder = encoder
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None  # reads the first token
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, len(config.id2label or ()))
        self.post_init()

    @classmethod
    def around(
        cls, path: str, config: PretrainedConfig, trust: bool = False
    ) -> MeanPooledForSequenceClassification:
        """A pre-trained encoder with a new head for the labels of the config."""
        encoder = AutoModel.from_pretrained(path, config=config, trust_remote_code=trust)
        dropout: Any = getattr(config, "classifier_dropout", None)
        dropout = getattr(config, "hidden_dropout_prob", 0.1) if dropout is None else dropout
        names = {"id2label": config.id2label, "label2id": config.label2id}
        return cls(MeanPooledConfig(config.to_dict(), dropout, **names), encoder)

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **inputs)
        hidden = outputs.last_hidden_state  # (N, L, H)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mask = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(mean)))


register(AutoModelForSequenceClassification, MeanPooledForSequenceClassification)
