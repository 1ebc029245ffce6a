"""Small models of all kinds, with dropout on, and the gradients of a batch in which some samples are won."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

N = 20


class Case(NamedTuple):
    model: nn.Module
    batch: dict[str, Any]
    n_classes: int = 7


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(24, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class Seq(nn.Module):
    """torch's own transformer, with the batch first or second."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 7)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x if self.batch_first else x.t())
        return self.head(self.encoder(h).mean(1 if self.batch_first else 0))


class Shapes(nn.Module):
    """Many operations that change shapes, with and without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(12, 24)
        self.b = nn.Linear(24, 24)
        self.scale = nn.Parameter(torch.ones(24))
        self.norm = nn.GroupNorm(4, 24)
        self.head = nn.Linear(36, 7)
        self.prior = nn.Parameter(torch.zeros(N, 7))

    def forward(self, x: Tensor) -> Tensor:
        h = F.silu(self.a(x)) * self.scale
        left, right = h.chunk(2, dim=-1)
        h = torch.cat([left.sigmoid() * right, right.clone()], -1) + self.b(h).masked_fill(h > 2, 0.5)
        parts = torch.stack([h, h * 2], 1).unbind(1)
        h = torch.where(h > 0, parts[0], parts[1] / 3).unsqueeze(2).squeeze(2)
        h = self.norm(h.transpose(1, 2)).permute(0, 2, 1)
        h = h[:, 1:] - h[:, :-1].mean((1,), keepdim=True).expand(-1, h.shape[1] - 1, -1)
        top = h.amax(1)
        first = h.reshape(h.shape[0], -1)[:, :12].softmax(-1)
        return self.head(torch.cat([top, first * h.sum((1, 2)).unsqueeze(-1)], 1)) + self.prior


def _bert(**settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": 60,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    } | settings


def _tokens() -> dict[str, Tensor]:
    ids = torch.randint(1, 50, (N, 9))
    mask = torch.ones_like(ids)
    mask[::3, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _both(**settings: Any) -> dict[str, Any]:
    """The same settings for an encoder and a decoder."""
    return {"d_model": 32} | {
        f"{side}_{name}": value for name, value in settings.items() for side in ("encoder", "decoder")
    }


def _image() -> dict[str, Any]:
    return {"image_size": 8, "patch_size": 2, "hidden_dropout_prob": 0.1}


def _images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(N, 3, 8, 8)}


def _cnn(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout2d(0.1)),
        *(
            nn.Conv2d(8, 16, 3, groups=2),
            norm(16),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(64, 7),
        ),
    )


def _config(name: str, **settings: Any) -> Any:
    return getattr(transformers, name)(num_labels=7, **settings)


CASES: dict[str, Callable[[], Case]] = {
    "bert": lambda: Case(
        transformers.BertForSequenceClassification(_config("BertConfig", **_bert())), _tokens()
    ),
    "bert-eager": lambda: Case(
        transformers.BertForSequenceClassification(
            _config("BertConfig", attn_implementation="eager", **_bert())
        ),
        _tokens(),
    ),
    "bert-no-attention-dropout": lambda: Case(
        transformers.BertForSequenceClassification(
            _config("BertConfig", **_bert(attention_probs_dropout_prob=0.0))
        ),
        _tokens(),
    ),
    "distilbert": lambda: Case(
        transformers.DistilBertForSequenceClassification(
            _config("DistilBertConfig", vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=48)
        ),
        _tokens(),
    ),
    "tokens": lambda: Case(
        transformers.BertForTokenClassification(_config("BertConfig", **_bert())), _tokens()
    ),
    "gpt2": lambda: Case(
        transformers.GPT2ForSequenceClassification(
            _config(
                "GPT2Config", vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=16, pad_token_id=0
            )
        ),
        _tokens(),
    ),
    "deberta": lambda: Case(
        transformers.DebertaV2ForSequenceClassification(
            _config(
                "DebertaV2Config",
                relative_attention=True,
                pos_att_type=["p2c", "c2p"],
                max_position_embeddings=16,
                **_bert(),
            )
        ),
        _tokens(),
    ),
    "llama": lambda: Case(
        transformers.LlamaForSequenceClassification(
            _config("LlamaConfig", num_key_value_heads=2, pad_token_id=0, **_bert())
        ),
        _tokens(),
    ),
    "bart": lambda: Case(
        transformers.BartForSequenceClassification(
            _config(
                "BartConfig",
                vocab_size=60,
                max_position_embeddings=16,
                eos_token_id=2,
                **_both(layers=1, attention_heads=4, ffn_dim=48),
            )
        ),
        {"input_ids": torch.cat([torch.randint(3, 50, (N, 8)), torch.full((N, 1), 2)], 1)},
    ),
    "vit": lambda: Case(
        transformers.ViTForImageClassification(_config("ViTConfig", **_image(), **_bert())), _images()
    ),
    "swin": lambda: Case(
        transformers.SwinForImageClassification(
            _config(
                "SwinConfig",
                **_image(),
                embed_dim=16,
                depths=[2],
                num_heads=[2],
                window_size=2,
                drop_path_rate=0.1,
            )
        ),
        _images(),
    ),
    "convnext": lambda: Case(
        transformers.ConvNextForImageClassification(
            _config(
                "ConvNextConfig",
                hidden_sizes=[16, 32],
                depths=[1, 1],
                num_stages=2,
                patch_size=2,
                drop_path_rate=0.1,
            )
        ),
        _images(),
    ),
    "cnn": lambda: Case(_cnn(lambda _: nn.Identity()), {"input": torch.randn(N, 3, 12, 12)}),
    "group-norm": lambda: Case(_cnn(lambda c: nn.GroupNorm(4, c)), {"input": torch.randn(N, 3, 12, 12)}),
    "batch-norm": lambda: Case(_cnn(nn.BatchNorm2d), {"input": torch.randn(N, 3, 12, 12)}),
    "conv1d": lambda: Case(
        nn.Sequential(
            nn.Conv1d(5, 8, 3),
            nn.Tanh(),
            nn.ConvTranspose1d(8, 6, 2),
            nn.LeakyReLU(),
            nn.Flatten(),
            nn.Linear(54, 7),
        ),
        {"input": torch.randn(N, 5, 10)},
    ),
    "lstm": lambda: Case(Lstm(), {"x": torch.randint(0, 50, (N, 9))}),
    "transformer": lambda: Case(Seq(batch_first=False), {"x": torch.randint(0, 50, (N, 9))}),
    "transformer-batch-first": lambda: Case(Seq(batch_first=True), {"x": torch.randint(0, 50, (N, 9))}),
    "shapes": lambda: Case(Shapes(), {"x": torch.randn(N, 6, 12)}),
}


def make(name: str) -> Case:
    torch.manual_seed(0)
    case = CASES[name]()
    case.model.train()
    return case


def logits_of(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


def backward(case: Case, won: float, seed: int = 7) -> dict[str, Tensor | None]:
    """The gradients of a loss in which a share of the samples has a gradient of exactly zero."""
    case.model.zero_grad()
    torch.manual_seed(seed)
    logits = logits_of(case.model(**case.batch))
    weights = torch.ones(N)
    weights[torch.randperm(N, generator=torch.Generator().manual_seed(seed))[: round(won * N)]] = 0
    target = logits.detach().argmin(-1)
    losses = F.cross_entropy(logits.movedim(-1, 1), target, reduction="none")  # (N,) or (N, T)
    (losses * weights.view(-1, *[1] * (losses.ndim - 1))).sum().div(losses.numel()).backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in case.model.named_parameters()}


def difference(a: dict[str, Tensor | None], b: dict[str, Tensor | None]) -> float:
    """Largest difference over the largest gradient: that of key biases in attention is rounding."""
    assert {n for n, g in a.items() if g is None} == {n for n, g in b.items() if g is None}
    pairs = [(g, b[n]) for n, g in a.items() if g is not None]
    top = max(float(g.abs().max()) for g, _ in pairs)
    gap = max(float((g - h).abs().max()) for g, h in pairs)
    return gap / top if top else gap
