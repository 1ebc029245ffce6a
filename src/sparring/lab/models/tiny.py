"""``tiny``: small networks trained from scratch, characters or pixels in; Hugging Face classes, so that they save and load as such.

    characters ─► residual convolutions, beside hashed n-grams ─► one row per character, or pooled ─► classes

Nothing mixes samples, so the backward of won ones can be skipped throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.modeling_outputs import (
    ImageClassifierOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

PAD, UNKNOWN, SEPARATOR = "[PAD]", "[UNK]", "[SEP]"


def character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Every character of the texts is a token; others are unknown."""
    counts = Counter(character for text in texts for character in text)
    vocabulary = [PAD, UNKNOWN, SEPARATOR, *sorted(counts)]
    tokenizer = Tokenizer(WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {SEPARATOR}",
        pair=f"$A {SEPARATOR} $B:1 {SEPARATOR}:1",
        special_tokens=[(SEPARATOR, vocabulary.index(SEPARATOR))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        sep_token=SEPARATOR,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


class TinyConfig(PretrainedConfig):
    model_type = "sparring-tiny"

    def __init__(
        self,
        vocab_size: int = 1000,
        hidden_size: int = 96,
        dilations: tuple[int, ...] = (1, 2, 4),
        gram_size: int = 64,
        n_grams: int = 4,
        n_buckets: int = 32768,
        dropout: float = 0.2,
        gram_dropout: float = 0.5,
        pad_token_id: int = 0,
        space_token_id: int = -1,
        **kwargs: Any,
    ) -> None:
        self.vocab_size, self.hidden_size, self.dilations, self.dropout = (
            vocab_size,
            hidden_size,
            list(dilations),
            dropout,
        )
        self.gram_size, self.n_grams, self.n_buckets, self.gram_dropout = (
            gram_size,
            n_grams,
            n_buckets,
            gram_dropout,
        )
        super().__init__(**kwargs)
        self.pad_token_id, self.space_token_id = pad_token_id, space_token_id


class TinyImageConfig(PretrainedConfig):
    model_type = "sparring-tiny-image"

    def __init__(
        self,
        channels: int = 1,
        height: int = 8,
        width: int = 8,
        hidden_size: int = 64,
        dropout: float = 0.2,
        **kwargs: Any,
    ) -> None:
        self.channels, self.height, self.width, self.hidden_size, self.dropout = (
            channels,
            height,
            width,
            hidden_size,
            dropout,
        )
        super().__init__(**kwargs)


class NGrams(nn.Module):
    """(N, L) characters to (N, L, H): the sum of the embeddings of the n-grams that end at each of them, hashed into buckets.

    They begin next to zero, since an n-gram that training has not seen should say nothing; and some are dropped, lest one alone decides.
    """

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.n_grams, self.n_buckets, self.dropout = config.n_grams, config.n_buckets, config.gram_dropout
        self.embedding = nn.Embedding(config.n_buckets, config.gram_size, padding_idx=0)
        self.embedding.weight.data.mul_(1e-3)  # the row of padding stays 0

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        hashed, grams = torch.zeros_like(input_ids), []
        for n in range(self.n_grams):
            earlier = F.pad(input_ids, (n, 0))[:, : input_ids.shape[1]] if n else input_ids
            hashed = (hashed * 1_000_003 + earlier + 1) % 2_147_483_647
            grams.append((hashed * 48_271 % 2_147_483_647) % (self.n_buckets - 1) + 1)
        ids = torch.stack(grams, -1) * mask.long()  # (N, L, n-grams), 0 at padding
        if self.training:
            ids = ids * (torch.rand(ids.shape, device=ids.device) >= self.dropout)
        total: Tensor = self.embedding(ids).sum(2)
        return total / (1 - self.dropout) if self.training else total


class TinyEncoder(nn.Module):
    """(N, L) characters to (N, L, H): n-grams, and characters that residual convolutions have shown their neighbours."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.grams = NGrams(config)
        self.characters = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.characters.weight.data.mul_(0.3)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in config.dilations)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in config.dilations
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.dropout(self.characters(input_ids)) * mask  # (N, L, H)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            change = convolution((norm(hidden) * mask).transpose(1, 2)).transpose(1, 2)
            hidden = (
                hidden + self.dropout(F.gelu(change)) * mask
            )  # padding stays 0: it must not reach its neighbours
        return torch.cat([hidden, self.grams(input_ids, mask)], -1)


class TinyModel(PreTrainedModel):
    config_class = TinyConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"

    def __init__(self, config: TinyConfig) -> None:
        super().__init__(config)
        self.encoder = TinyEncoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(2 * (config.hidden_size + config.gram_size), len(config.id2label or ()))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Each module has done so itself."""

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.characters

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        mask = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask
        mask = mask.unsqueeze(-1).to(self.classifier.weight.dtype)  # (N, L, 1)
        return self.encoder(input_ids, mask), mask


class TinyForSequenceClassification(TinyModel):
    """Characters to one row of logits a text, from the largest and the mean of each feature."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        hidden, mask = self.encode(input_ids, attention_mask)
        largest = (hidden - 1e4 * (1 - mask)).amax(1)
        mean = (
            hidden.sum(1) / mask.sum(1).clamp(min=1).sqrt()
        )  # between a sum and a mean: longer texts know more
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(torch.cat([largest, mean], -1))))


class TinyForTokenClassification(TinyModel):
    """Characters to one row of logits each, from the character and from its word."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> TokenClassifierOutput:
        hidden, mask = self.encode(input_ids, attention_mask)
        space = (input_ids == self.config.space_token_id).long()
        word = space.cumsum(1) - space  # (N, L), a space belongs to the word before it
        same = (word.unsqueeze(1) == word.unsqueeze(2)) * mask * mask.transpose(1, 2)  # (N, L, L)
        pooled = same @ hidden / same.sum(2, keepdim=True).clamp(min=1).sqrt()
        return TokenClassifierOutput(logits=self.classifier(self.dropout(torch.cat([hidden, pooled], -1))))


class TinyForImageClassification(PreTrainedModel):
    """Three convolutions, for images of a few pixels; larger ones are made small by convolutions that take every second point."""

    config_class = TinyImageConfig
    main_input_name = "pixel_values"

    def __init__(self, config: TinyImageConfig) -> None:
        super().__init__(config)
        width, channels, height, across = config.hidden_size, config.channels, config.height, config.width
        smaller: list[nn.Module] = []
        while min(height, across) > 16:
            smaller += [nn.Conv2d(channels, width // 2, 3, stride=2, padding=1), nn.ReLU()]
            channels, height, across = width // 2, -(-height // 2), -(-across // 2)
        width = width // 2 if smaller else width
        self.features = nn.Sequential(
            *smaller,
            *(
                nn.Conv2d(channels, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, 2 * width, 3, padding=1),
                nn.ReLU(),
            ),
            *(
                nn.MaxPool2d(2),
                nn.Conv2d(2 * width, 2 * width, 3, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Dropout(config.dropout),
            ),
        )
        self.classifier = nn.Linear(2 * width * (height // 2) * (across // 2), len(config.id2label or ()))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """As torch initialises them."""

    def forward(self, pixel_values: Tensor, **_: Any) -> ImageClassifierOutput:
        return ImageClassifierOutput(logits=self.classifier(self.features(pixel_values)))


AutoConfig.register(TinyConfig.model_type, TinyConfig)
AutoConfig.register(TinyImageConfig.model_type, TinyImageConfig)
AutoModelForSequenceClassification.register(TinyConfig, TinyForSequenceClassification)
AutoModelForTokenClassification.register(TinyConfig, TinyForTokenClassification)
AutoModelForImageClassification.register(TinyImageConfig, TinyForImageClassification)
