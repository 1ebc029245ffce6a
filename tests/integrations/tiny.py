"""A small model and data that Hugging Face's Trainer can be tried on in a second."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    TrainingArguments,
)

N_CLASSES = 4
EXAMPLES = Path(__file__).parents[2] / "examples"


def examples_module(name: str) -> ModuleType:
    """A module of the examples, which are no package."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def config(**settings: Any) -> BertConfig:
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 40,
    }
    return BertConfig(**{**sizes, "max_position_embeddings": 16, "num_labels": N_CLASSES, **settings})


def bert(seed: int = 0, **settings: Any) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    return BertForSequenceClassification(config(**settings))


def tagger(seed: int = 0) -> BertForTokenClassification:
    torch.manual_seed(seed)
    return BertForTokenClassification(config())


class Sentences(Dataset[dict[str, Tensor]]):
    """The first token says the class; ``hard`` of ten samples lie about it."""

    def __init__(self, n: int = 52, kind: str = "class", hard: int = 2, name: str = "labels") -> None:
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(5, 40, (n, 6), generator=generator)
        classes = self.ids[:, 0] % N_CLASSES
        lies = torch.randint(N_CLASSES, (n,), generator=generator)
        classes = torch.where(torch.arange(n) % 10 < hard, lies, classes)
        tokens = self.ids % N_CLASSES
        tokens[:, 4:] = -100
        several = torch.zeros(n, N_CLASSES)
        several[torch.arange(n), classes] = 1.0
        several[torch.arange(n), self.ids[:, 1] % N_CLASSES] = 1.0
        self.labels, self.name = {"class": classes, "token": tokens, "multi-label": several}[kind], name

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {
            "input_ids": self.ids[index],
            "attention_mask": torch.ones(6, dtype=torch.long),
            self.name: self.labels[index],
        }


def arguments(folder: Any, cls: Any = TrainingArguments, **settings: Any) -> Any:
    usual = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 3,
        "learning_rate": 1e-2,
        "logging_steps": 5,
        "seed": 3,
    }
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    return cls(output_dir=str(folder), **{**usual, **quiet, **settings})


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
