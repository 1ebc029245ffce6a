"""The models of `zoo.py`: small untrained ones of transformers and timm, and batches for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

N_CLASSES = 20
N_SAMPLES = 32
VOCABULARY = 1000
WIDE = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 384}
TEXT = {**WIDE, "vocab_size": VOCABULARY, "pad_token_id": 0}
DECODER = {**TEXT, "num_key_value_heads": 2, "head_dim": 32}
STAGES = {"depths": [2, 2, 2, 2], "hidden_sizes": [32, 64, 96, 128]}
Data = Callable[[], dict[str, Tensor]]


def tokens() -> dict[str, Tensor]:
    """Token ids."""
    ids = torch.randint(3, VOCABULARY, (N_SAMPLES, 32))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def image(size: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(N_SAMPLES, 3, size, size)}


def sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(N_SAMPLES, 3200)}


SEQUENCE = "ForSequenceClassification"
IMAGES = "ForImageClassification"
AUDIO = "ForAudioClassification"
CONV = {
    "conv_dim": [64] * 3,
    "conv_kernel": [10, 8, 4],
    "conv_stride": [5, 4, 4],
    "num_feat_extract_layers": 3,
}
# name: (class, settings of its configuration, inputs)
MODELS: dict[str, tuple[str, dict[str, Any], Data]] = {
    "bert": ("Bert" + SEQUENCE, TEXT, tokens),
    "roberta": ("Roberta" + SEQUENCE, TEXT, tokens),
    "electra": ("Electra" + SEQUENCE, {**TEXT, "embedding_size": 64}, tokens),
    "albert": ("Albert" + SEQUENCE, {**TEXT, "embedding_size": 64}, tokens),
    "mpnet": ("MPNet" + SEQUENCE, TEXT, tokens),
    "deberta-v2": (
        "DebertaV2" + SEQUENCE,
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        tokens,
    ),
    "modernbert": ("ModernBert" + SEQUENCE, {**TEXT, "reference_compile": False}, tokens),
    "convbert": ("ConvBert" + SEQUENCE, {**TEXT, "embedding_size": 128}, tokens),
    "fnet": ("FNet" + SEQUENCE, TEXT, tokens),
    "longformer": ("Longformer" + SEQUENCE, {**TEXT, "attention_window": 8}, tokens),
    "xlnet": (
        "XLNet" + SEQUENCE,
        {"d_model": 128, "n_layer": 3, "n_head": 4, "d_inner": 384, "vocab_size": VOCABULARY},
        tokens,
    ),
    "gpt2": (
        "GPT2" + SEQUENCE,
        {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, "pad_token_id": 0},
        tokens,
    ),
    "bloom": ("Bloom" + SEQUENCE, {**TEXT, "n_layer": 3, "n_head": 4}, tokens),
    "llama": ("Llama" + SEQUENCE, DECODER, tokens),
    "qwen3": ("Qwen3" + SEQUENCE, DECODER, tokens),
    "qwen3-moe": (
        "Qwen3Moe" + SEQUENCE,
        {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 192},
        tokens,
    ),
    "gemma": ("Gemma" + SEQUENCE, DECODER, tokens),
    "bart": (
        "Bart" + SEQUENCE,
        {
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 384,
            "decoder_ffn_dim": 384,
            "vocab_size": VOCABULARY,
        },
        lambda: {"input_ids": torch.cat([tokens()["input_ids"], torch.full((N_SAMPLES, 1), 2)], 1)},
    ),
    "vit": ("ViT" + IMAGES, {**WIDE, "image_size": 32, "patch_size": 4}, image),
    "swin": (
        "Swin" + IMAGES,
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 48,
            "window_size": 4,
            "depths": [2, 2, 2],
            "num_heads": [3, 6, 12],
        },
        image,
    ),
    "convnext": ("ConvNext" + IMAGES, {**STAGES, "patch_size": 2}, image),
    "convnextv2": ("ConvNextV2" + IMAGES, {**STAGES, "patch_size": 2}, image),
    "resnet": ("ResNet" + IMAGES, {**STAGES, "layer_type": "basic", "embedding_size": 32}, image),
    "wav2vec2": ("Wav2Vec2" + SEQUENCE, {**WIDE, **CONV, "mask_time_prob": 0.0}, sound),
    "hubert": ("Hubert" + SEQUENCE, {**WIDE, **CONV, "mask_time_prob": 0.0}, sound),
    "whisper": (
        "Whisper" + AUDIO,
        {
            "d_model": 128,
            "encoder_layers": 3,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 384,
            "decoder_layers": 1,
            "max_source_positions": 50,
        },
        lambda: {"input_features": torch.randn(N_SAMPLES, 80, 100)},
    ),
    "ast": (
        "AST" + AUDIO,
        {**WIDE, "max_length": 64, "num_mel_bins": 32},
        lambda: {"input_values": torch.randn(N_SAMPLES, 64, 32)},
    ),
    "mamba": ("MambaModel", {"hidden_size": 128, "num_hidden_layers": 3, "vocab_size": VOCABULARY}, tokens),
}
# name: (model, arguments of timm.create_model)
TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "timm resnet18": ("resnet18", {}),
    "timm mobilenetv3": ("mobilenetv3_small_050", {}),
    "timm efficientnet": ("efficientnet_lite0", {}),
    "timm regnet": ("regnetx_002", {}),
    "timm convnext": ("convnext_atto", {}),
    "timm vit": ("vit_tiny_patch16_224", {"img_size": 64, "depth": 4}),
    "timm mixer": ("mixer_s32_224", {"img_size": 64}),
    "timm xcit": ("xcit_nano_12_p16_224", {"img_size": 64, "depth": 4}),
}
NAMES = [*MODELS, *TIMM]


def build(name: str) -> nn.Module:
    """An untrained model."""
    if name in TIMM:
        import timm

        model, settings = TIMM[name]
        return timm.create_model(model, num_classes=N_CLASSES, **settings)  # type: ignore[no-any-return]
    model, settings, _ = MODELS[name]
    base = re.sub("(For[A-Z][A-Za-z]*Classification|Model)$", "", model)
    config = getattr(transformers, base + "Config")
    return getattr(transformers, model)(config(num_labels=N_CLASSES, **settings))  # type: ignore[no-any-return]


class Classifier(nn.Module):
    """A model with a bias of its logits that makes it predict class 0."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.model = build(name)
        self.head = nn.Linear(128, N_CLASSES) if name == "mamba" else None  # it has no classifier
        self.takes_names = name not in TIMM
        self.register_buffer("bias", torch.zeros(N_CLASSES).index_fill_(0, torch.tensor(0), 30.0))

    def forward(self, **inputs: Tensor) -> Tensor:
        output = self.model(**inputs) if self.takes_names else self.model(*inputs.values())
        if self.head is not None:
            return self.head(output.last_hidden_state[:, -1]) + self.bias  # type: ignore[no-any-return]
        return (output.logits if self.takes_names else output) + self.bias  # type: ignore[no-any-return]


def make(name: str, won: float) -> tuple[Classifier, dict[str, Tensor]]:
    """A model and a batch of which a share is won."""
    torch.manual_seed(0)
    model = Classifier(name).train()
    target = torch.randint(1, N_CLASSES, (N_SAMPLES,))
    target[torch.randperm(N_SAMPLES)[: round(won * N_SAMPLES)]] = 0
    inputs = MODELS[name][2]() if name in MODELS else image(64)
    return model, {**inputs, "labels": target}
