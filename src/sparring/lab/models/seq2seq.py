"""Encoder–decoders for generation: a small BART from scratch with a tokenizer of its own, any Hugging Face model by name or folder; and
what they give before their output layer, so that a loss can have that layer and the logits of a whole vocabulary are never held.
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

N_PIECES = 8000
POSITIONS = 512
SPECIAL = ("<s>", "<pad>", "</s>")


def build(
    name: str, texts: Sequence[str], trust: bool = False, *, beams: int = 1, max_target_length: int = 64
) -> Model:
    """A network by name and its tokenizer; ``texts`` to make one of. How it generates is saved with it, as Hugging Face does.
    ``trust``: code that it brings along may run."""
    net, tokenizer = _tiny(texts) if name == "tiny" else _pretrained(name, trust)
    settings: Any = net.generation_config
    settings.num_beams, settings.do_sample, settings.early_stopping = beams, False, beams > 1
    settings.max_new_tokens, settings.max_length = max_target_length, None
    settings.min_length = min(settings.min_length or 0, max_target_length)
    return Model(net, tokenizer)


def _pretrained(name: str, trust: bool) -> tuple[Any, Any]:
    if not Path(name).exists():
        look_for_hub()
    net = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=trust)
    return net.float(), AutoTokenizer.from_pretrained(name, trust_remote_code=trust)


def _tiny(texts: Sequence[str]) -> tuple[Any, Any]:
    """Two layers and two, 128 wide. No dropout within attention: the kernels draw it by place in the batch, so the backward of won samples
    could not be skipped there."""
    tokenizer = piece_tokenizer(texts)
    ids = {
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    layers: dict[str, Any] = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 512), ("layerdrop", 0.0))
    }
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=128, max_position_embeddings=POSITIONS, dropout=0.1, attention_dropout=0.0,
        init_std=128**-0.5, scale_embedding=True,  # BART's own, 0.02, is for wide networks: this one would learn to look at its source late
        decoder_start_token_id=tokenizer.bos_token_id, forced_eos_token_id=None, **layers, **ids,
    )  # fmt: skip
    return BartForConditionalGeneration(config), tokenizer


def piece_tokenizer(texts: Sequence[str], n_pieces: int = N_PIECES) -> Any:
    """Byte-pair encoding of bytes: nothing is unknown, and what is decoded is what was written, spaces and all."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=True
    )  # a word is a word, also the first one
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=n_pieces,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    bos, pad, eos = SPECIAL
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", special_tokens=[(eos, made.token_to_id(eos))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=bos, pad_token=pad, eos_token=eos, clean_up_tokenization_spaces=False
    )


# ------------------------------------------------------------ before the output layer


def shifted(net: Any, labels: Tensor) -> Tensor:
    """What the decoder reads while it is to say ``labels``: the tokens before them."""
    if hasattr(net, "prepare_decoder_input_ids_from_labels"):
        return net.prepare_decoder_input_ids_from_labels(labels=labels)  # type: ignore[no-any-return]
    start = torch.full_like(labels[:, :1], net.config.decoder_start_token_id)
    return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] < 0, net.config.pad_token_id)], 1)


@contextmanager
def headless(net: Any) -> Iterator[None]:
    """Within it the network returns, as its logits, what its output layer takes. It is called as a whole all the same, so that whatever
    stands around its call (the gate of skipping, autocast) is there."""
    head, bias = net.get_output_embeddings(), net._buffers.get("final_logits_bias")
    head.forward = _identity
    if bias is not None:
        net._buffers["final_logits_bias"] = bias.new_zeros(())
    try:
        yield
    finally:
        del head.forward
        if bias is not None:
            net._buffers["final_logits_bias"] = bias


def _identity(x: Tensor) -> Tensor:
    return x


def output_layer(net: Any) -> nn.Linear | None:
    """The layer that makes logits of what a `headless` network returns, with the network's own weights; None where the network is of
    another make, such as one that does something to its logits afterwards."""
    head = net.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return None
    constant = net._buffers.get("final_logits_bias")
    if constant is not None and bool(constant.any()):
        if head.bias is not None:
            return None
        head = _with_bias(head, constant.flatten())
    return head if _fits(net, head) else None


def _with_bias(head: nn.Linear, bias: Tensor) -> nn.Linear:
    """The layer with a bias that is not trained."""
    layer = nn.Linear(head.in_features, head.out_features, bias=False, device="meta")
    layer.weight = head.weight
    del layer._parameters["bias"]
    layer.register_buffer("bias", bias)
    return layer


@torch.no_grad()
def _fits(net: Any, layer: nn.Linear) -> bool:
    """Whether the layer makes the network's logits: tried on two tokens."""
    training, device = net.training, layer.weight.device
    tokens = torch.tensor([[0, 1]], device=device)
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
        found = F.linear(hidden, layer.weight.float(), None if layer.bias is None else layer.bias.float())
        return torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    finally:
        net.train(training)
