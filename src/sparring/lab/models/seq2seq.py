"""Encoder-decoder networks for generation: a small BART trained from scratch, or any Hugging Face model.

Also gives access to what a network computes before its output layer, so that a loss can apply that layer
itself and the logits of the whole vocabulary are never held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedTokenizerFast,
)

from sparring.lab.models.offline import look_for_hub
from sparring.lab.models.settings import Model

VOCABULARY = 8000
POSITIONS = 512
BOS = "<s>"
PAD = "<pad>"
EOS = "</s>"


def build(
    name: str, texts: Sequence[str], trust: bool = False, *, beams: int = 1, max_target_length: int = 64
) -> Model:
    """Build a network by name, and its tokenizer. How it generates is saved with it, as transformers does.

    Args:
        name: "tiny", a name on the hub, or a folder.
        texts: The training texts, for the vocabulary of "tiny".
        trust: Allow code that comes with the model to run.
        beams: Number of beams.
        max_target_length: Largest number of tokens of a generated text.
    """
    if name == "tiny":
        model = _tiny(texts)
    else:
        if not Path(name).exists():
            look_for_hub()
        net = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=trust).float()
        model = Model(net, AutoTokenizer.from_pretrained(name, trust_remote_code=trust))
    settings = model.net.generation_config
    settings.num_beams = beams
    settings.do_sample = False
    settings.early_stopping = beams > 1
    settings.max_new_tokens = max_target_length
    settings.max_length = None
    settings.min_length = min(settings.min_length or 0, max_target_length)
    return model


def _tiny(texts: Sequence[str]) -> Model:
    """Two layers each, width 128. Attention has no dropout: kernels draw it by the position in the batch, so
    the backward pass of won samples could not be skipped there."""
    tokenizer = piece_tokenizer(texts)
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=128,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        max_position_embeddings=POSITIONS,
        dropout=0.1,
        attention_dropout=0.0,
        init_std=128
        ** -0.5,  # with BART's 0.02, made for wide networks, attention to the source is learned late
        scale_embedding=True,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
        forced_eos_token_id=None,
    )
    return Model(BartForConditionalGeneration(config), tokenizer)


def piece_tokenizer(texts: Sequence[str], vocabulary: int = VOCABULARY) -> Any:
    """Train a byte-level BPE tokenizer: no text is unknown, and decoding restores the text exactly."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)  # also the first word
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[BOS, PAD, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        pad_token=PAD,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
    )


# ------------------------------------------------------------ before the output layer


def shifted(net: Any, labels: Tensor) -> Tensor:
    """The decoder's input for the targets ``labels``: at each position the token before."""
    if hasattr(net, "prepare_decoder_input_ids_from_labels"):
        return net.prepare_decoder_input_ids_from_labels(labels=labels)  # type: ignore[no-any-return]
    start = torch.full_like(labels[:, :1], net.config.decoder_start_token_id)
    return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] < 0, net.config.pad_token_id)], 1)


@contextmanager
def headless(net: Any) -> Iterator[None]:
    """Within this context the network returns the input of its output layer as its logits.

    The network is still called as a whole, so that hooks, autocast and exact skipping apply.
    """
    head, bias = net.get_output_embeddings(), net._buffers.get("final_logits_bias")
    head.forward = lambda hidden: hidden
    if bias is not None:
        net._buffers["final_logits_bias"] = bias.new_zeros(())
    try:
        yield
    finally:
        del head.forward
        if bias is not None:
            net._buffers["final_logits_bias"] = bias


def output_layer(net: Any) -> nn.Linear | None:
    """The linear layer that computes the logits from what a `headless` network returns, sharing its weights.

    None if there is no such layer, for instance because the network changes its logits afterwards.
    """
    head = net.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return None
    constant = net._buffers.get("final_logits_bias")
    if constant is not None and bool(constant.any()):
        if head.bias is not None:
            return None
        head = _with_bias(head, constant.flatten())
    return head if _matches(net, head) else None


def _with_bias(head: nn.Linear, bias: Tensor) -> nn.Linear:
    """The layer with a bias that is not trained."""
    layer = nn.Linear(head.in_features, head.out_features, bias=False, device="meta")
    layer.weight = head.weight
    del layer._parameters["bias"]
    layer.register_buffer("bias", bias)
    return layer


@torch.no_grad()
def _matches(net: Any, layer: nn.Linear) -> bool:
    """Whether the layer computes the network's logits, tried on two tokens."""
    training = net.training
    tokens = torch.tensor([[0, 1]], device=layer.weight.device)
    inputs = {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "decoder_input_ids": tokens,
        "use_cache": False,
    }
    net.eval()
    try:
        expected = net(**inputs).logits.float()
        with headless(net):
            hidden = net(**inputs).logits.float()
        if hidden.shape[-1] != layer.in_features:
            return False
        logits = F.linear(hidden, layer.weight.float(), None if layer.bias is None else layer.bias.float())
        return torch.allclose(logits, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    finally:
        net.train(training)
