"""A text classifier on the mean of an encoder's tokens, as sentence encoders are trained. Hugging Face's own heads take the first token's.

A Hugging Face class around any encoder, so that it saves and loads as such.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput


class MeanPooledConfig(PretrainedConfig):
    model_type = "sparring-mean-pooled"

    def __init__(self, encoder: dict[str, Any] | None = None, dropout: float = 0.1, **kwargs: Any) -> None:
        self.encoder, self.dropout = encoder or {"model_type": "bert"}, dropout
        super().__init__(**kwargs)
        inner = self.inner()
        self.hidden_size, self.num_hidden_layers = inner.hidden_size, inner.num_hidden_layers
        self.max_position_embeddings = getattr(inner, "max_position_embeddings", None)
        self.pad_token_id = inner.pad_token_id

    def inner(self) -> PretrainedConfig:
        """The encoder's own."""
        return AutoConfig.for_model(**self.encoder)


class MeanPooledForSequenceClassification(PreTrainedModel):
    config_class = MeanPooledConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"

    def __init__(self, config: MeanPooledConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.encoder = (
            AutoModel.from_config(config.inner(), trust_remote_code=False) if encoder is None else encoder
        )
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None  # of the first token
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, len(config.id2label or ()))
        self.post_init()

    @classmethod
    def around(
        cls, path: str, config: PretrainedConfig, trust: bool = False
    ) -> MeanPooledForSequenceClassification:
        """A pre-trained encoder's weights and a new head for the config's labels; ``trust``: code that it brings along may run."""
        encoder = AutoModel.from_pretrained(path, config=config, trust_remote_code=trust)
        dropout: Any = getattr(config, "classifier_dropout", None)
        dropout = getattr(config, "hidden_dropout_prob", 0.1) if dropout is None else dropout
        return cls(
            MeanPooledConfig(config.to_dict(), dropout, id2label=config.id2label, label2id=config.label2id),
            encoder,
        )

    def _init_weights(self, module: nn.Module) -> None:
        """The encoder's are there, and the head is as torch makes it."""

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        hidden = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **inputs
        ).last_hidden_state  # (N, L, H)
        if attention_mask is None:
            return SequenceClassifierOutput(logits=self.classifier(self.dropout(hidden.mean(1))))
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)  # (N, L, 1)
        return SequenceClassifierOutput(
            logits=self.classifier(self.dropout((hidden * mask).sum(1) / mask.sum(1).clamp(min=1)))
        )


AutoConfig.register(MeanPooledConfig.model_type, MeanPooledConfig)
AutoModelForSequenceClassification.register(MeanPooledConfig, MeanPooledForSequenceClassification)
