"""``tiny``: small networks that are trained from scratch, on characters, pixels or mel bands.

    characters ─► residual convolutions, beside hashed n-grams ─► one row per character, or pooled ─► classes

They are classes of transformers, so that they save and load as such. No layer mixes samples, so the
backward pass of won samples can be skipped throughout.
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
    AutoModelForAudioClassification,
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

PAD = "[PAD]"
UNKNOWN = "[UNK]"
SEPARATOR = "[SEP]"
BLOCKS = {"hidden_size": 96, "dilations": [1, 2, 4], "dropout": 0.2}


def character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the characters of the texts; other characters are unknown."""
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
    """Settings of the networks on characters."""

    model_type = "sparring-tiny"

    def __init__(self, pad_token_id: int = 0, **settings: Any) -> None:
        grams = {"gram_size": 64, "n_grams": 4, "n_buckets": 32768, "gram_dropout": 0.5}
        super().__init__(**{"vocab_size": 1000, "space_token_id": -1, **BLOCKS, **grams, **settings})
        self.pad_token_id = pad_token_id


class TinyImageConfig(PretrainedConfig):
    """Settings of the network on pixels."""

    model_type = "sparring-tiny-image"

    def __init__(self, **settings: Any) -> None:
        shape = {"channels": 1, "height": 8, "width": 8}
        super().__init__(**{**shape, "hidden_size": 64, "dropout": 0.2, **settings})


class TinyAudioConfig(PretrainedConfig):
    """Settings of the network on mel bands."""

    model_type = "sparring-tiny-audio"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"n_mels": 64, **BLOCKS, **settings})


class NGrams(nn.Module):
    """(N, L) characters to (N, L, H): the sum of the embeddings of the n-grams that end at each character.

    N-grams are hashed into buckets. Their embeddings start close to zero, because an n-gram that does not
    occur in training should have no influence. Some are dropped in training, so that no single one decides.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.n_grams = config.n_grams
        self.n_buckets = config.n_buckets
        self.dropout = config.gram_dropout
        self.embedding = nn.Embedding(config.n_buckets, config.gram_size, padding_idx=0)
        self.embedding.weight.data.mul_(1e-3)  # the row of padding stays 0

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        hashes = torch.zeros_like(input_ids)
        buckets = []
        for n in range(self.n_grams):
            earlier = F.pad(input_ids, (n, 0))[:, : input_ids.shape[1]] if n else input_ids
            hashes = (hashes * 1_000_003 + earlier + 1) % 2_147_483_647
            buckets.append((hashes * 48_271 % 2_147_483_647) % (self.n_buckets - 1) + 1)
        ids = torch.stack(buckets, -1) * mask.long()  # (N, L, n-grams), 0 at padding
        if self.training:
            ids = ids * (torch.rand(ids.shape, device=ids.device) >= self.dropout)
        total: Tensor = self.embedding(ids).sum(2)
        return total / (1 - self.dropout) if self.training else total


class ConvolutionBlocks(nn.Module):
    """(N, L, H) to (N, L, H): residual convolutions. Padding stays 0, so that it reaches no neighbour."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in config.dilations)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation) for dilation in config.dilations
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            change = convolution((norm(hidden) * mask).transpose(1, 2)).transpose(1, 2)
            hidden = hidden + self.dropout(F.gelu(change)) * mask
        return hidden


class OwnInitialization(PreTrainedModel):
    """Base of networks whose modules initialise themselves."""

    def _init_weights(self, module: nn.Module) -> None:
        pass


class TinyModel(OwnInitialization):
    """Base of the networks on characters."""

    config_class = TinyConfig
    main_input_name = "input_ids"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.grams = NGrams(config)
        self.characters = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.characters.weight.data.mul_(0.3)
        self.blocks = ConvolutionBlocks(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(2 * (config.hidden_size + config.gram_size), len(config.id2label or ()))
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.characters

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(N, L, H) features and an (N, L, 1) mask."""
        mask = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask
        mask = mask.unsqueeze(-1).to(self.classifier.weight.dtype)
        hidden = self.blocks(self.dropout(self.characters(input_ids)) * mask, mask)
        return torch.cat([hidden, self.grams(input_ids, mask)], -1), mask

    def classify(self, *features: Tensor) -> Any:
        return self.classifier(self.dropout(torch.cat(features, -1)))


class TinyForSequenceClassification(TinyModel):
    """One row of logits per text, from the maximum and the sum of each feature."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        hidden, mask = self.encode(input_ids, attention_mask)
        largest = (hidden - 1e4 * (1 - mask)).amax(1)
        # between a sum and a mean, because longer texts hold more evidence
        total = hidden.sum(1) / mask.sum(1).clamp(min=1).sqrt()
        return SequenceClassifierOutput(logits=self.classify(largest, total))


class TinyForTokenClassification(TinyModel):
    """One row of logits per character, from the character and from its word."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> TokenClassifierOutput:
        hidden, mask = self.encode(input_ids, attention_mask)
        space = (input_ids == self.config.space_token_id).long()
        word = space.cumsum(1) - space  # (N, L); a space belongs to the word before it
        same_word = (word.unsqueeze(1) == word.unsqueeze(2)) * mask * mask.transpose(1, 2)  # (N, L, L)
        pooled = same_word @ hidden / same_word.sum(2, keepdim=True).clamp(min=1).sqrt()
        return TokenClassifierOutput(logits=self.classify(hidden, pooled))


class TinyForImageClassification(OwnInitialization):
    """Three convolutions for small images. Larger ones are first reduced by convolutions with stride 2."""

    config_class = TinyImageConfig
    main_input_name = "pixel_values"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        features, channels = config.hidden_size, config.channels
        height, width = config.height, config.width
        layers: list[nn.Module] = []
        if min(height, width) > 16:
            features //= 2
        while min(height, width) > 16:
            layers += [nn.Conv2d(channels, features, 3, stride=2, padding=1), nn.ReLU()]
            channels = features
            height, width = -(-height // 2), -(-width // 2)
        layers += [nn.Conv2d(channels, features, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(features, 2 * features, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(2 * features, 2 * features, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(config.dropout))
        self.classifier = nn.Linear(2 * features * (height // 2) * (width // 2), len(config.id2label or ()))
        self.post_init()

    def forward(self, pixel_values: Tensor, **_: Any) -> ImageClassifierOutput:
        return ImageClassifierOutput(logits=self.classifier(self.features(pixel_values)))


class TinyForAudioClassification(OwnInitialization):
    """Residual convolutions over time, then the maximum and the mean of each feature."""

    config_class = TinyAudioConfig
    main_input_name = "input_values"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.stem = nn.Conv1d(config.n_mels, config.hidden_size, 5, stride=2, padding=2)
        self.blocks = ConvolutionBlocks(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(2 * config.hidden_size, len(config.id2label or ()))
        self.post_init()

    def forward(
        self, input_values: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        if attention_mask is None:
            attention_mask = torch.ones(input_values.shape[:2], device=input_values.device)
        mask = attention_mask.unsqueeze(-1).to(input_values.dtype)
        hidden = self.stem((input_values * mask).transpose(1, 2)).transpose(1, 2)  # (N, frames / 2, H)
        mask = mask[:, ::2]
        hidden = self.blocks(hidden, mask)
        largest = (hidden - 1e4 * (1 - mask)).amax(1)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(torch.cat([largest, mean], -1))))


def register(auto_class: Any, *models: Any) -> None:
    """Let ``AutoConfig`` and an auto class of transformers load networks of ours."""
    for model in models:
        AutoConfig.register(model.config_class.model_type, model.config_class, exist_ok=True)
        auto_class.register(model.config_class, model, exist_ok=True)


register(AutoModelForSequenceClassification, TinyForSequenceClassification)
register(AutoModelForTokenClassification, TinyForTokenClassification)
register(AutoModelForImageClassification, TinyForImageClassification)
register(AutoModelForAudioClassification, TinyForAudioClassification)
