"""How large a rerun of the papers is: ``full`` is the papers' own setting, for a GPU; ``small`` fits two cores and an afternoon.

Small runs use encoders that install as wheels, cut to their first layers, with frozen embeddings; fewer samples and epochs. What is
set is the same for every method of a task.
"""

from __future__ import annotations

from typing import Any

from sparring.lab.kinds import Kind
from sparring.lab.paper import published as paper
from sparring.lab.runs.plan import sizes
from sparring.lab.task import Data, Task, UserError

SCALES = ("small", "full")
EVALUATIONS = 15  # looks at dev in a run: Table 4 correlates over them

_BERT = {"model": "bert-base-cased"}
_ENGLISH = {
    "model": "minilm",
    "layers": 1,
    "freeze_embeddings": True,
    "lr": 1e-3,
    "batch_size": 32,
    "n_dev": 500,
}
_TEXT = {
    **_ENGLISH,
    "pooling": "mean",
}  # minilm is a sentence encoder: at this size the first token's head is far behind
_CHINESE = {**_ENGLISH, "model": "m3e-small"}
_GLUE = {**_TEXT, "lr": 5e-4, "n_train": 1500, "epochs": 6, "max_length": 64}

SMALL: dict[str, dict[str, Any]] = {  # a minute or so for each run
    "sst5": {**_TEXT, "lr": 5e-4, "batch_size": 16, "n_train": 1500, "epochs": 7},
    "clinc_oos": {**_TEXT, "n_train": 3000, "epochs": 8},
    "conll2003": {**_ENGLISH, "n_train": 1500, "epochs": 8},
    "sighan2015": {**_CHINESE, "batch_size": 16, "n_train": 600, "epochs": 4, "max_length": 64, "n_dev": 150},
    "eurlex": {**_TEXT, "epochs": 8, "max_length": 64},
    "wos": {**_TEXT, "epochs": 8, "max_length": 64},
    "reuters21578": {**_TEXT, "n_train": 1000, "epochs": 6, "max_length": 64},
    "rcv1": {**_TEXT, "n_train": 1000, "epochs": 6, "max_length": 64},
    "iflytek": {**_CHINESE, "pooling": "mean", "n_train": 1500, "epochs": 6, "max_length": 64},
    "squad_qg": {"model": "tiny", "n_train": 2500, "epochs": 6, "n_dev": 200, "n_test": 500},
    "gigaword": {"model": "tiny", "n_train": 2500, "epochs": 6, "n_dev": 200, "n_test": 500},
    "languages": {"epochs": 4, "n_train": 4000, "n_dev": 500},
    **dict.fromkeys([name for name in paper.GLUE["Softmax"] if name != "Avg"], _GLUE),
}

_CIFAR = {"batch_size": 32, "n_dev": 500, "n_test": 2000}
NETWORKS: dict[str, dict[str, dict[str, Any]]] = {  # by task: a network from scratch and a pre-trained one
    "cifar100": {
        "from scratch": {**_CIFAR, "model": "resnet", "n_train": 5000, "epochs": 10},
        "pre-trained": {**_CIFAR, "model": "efficientnet-lite0", "n_train": 2000, "epochs": 4},
    },
    "fsdd": {  # few of its samples: with all of them every method has 99 %
        "from scratch": {"model": "tiny", "n_train": 300, "epochs": 10, "batch_size": 16},
        "pre-trained": {"model": "resemblyzer", "n_train": 300, "epochs": 5, "batch_size": 16},
    },
}
NETWORKS_FULL: dict[
    str, dict[str, dict[str, Any]]
] = {  # no library that we use has the paper's Densenet 201 and InceptionV3
    "cifar100": {
        "from scratch": {"model": "resnet", "batch_size": 62, "epochs": 200},
        "pre-trained": {"model": "microsoft/resnet-50", "batch_size": 62, "epochs": 200},
    },
}
GENERATION: dict[
    str, dict[str, Any]
] = {  # as the text of the Sparse-Softmax paper has it, but for UniLM, which no hub has
    "squad_qg": {
        "model": "facebook/bart-base",
        "epochs": 10,
        "batch_size": 32,
        "lr": 2e-5,
        "max_length": 464,
    },
    "gigaword": {
        "model": "facebook/bart-base",
        "epochs": 30,
        "batch_size": 64,
        "lr": 2e-5,
        "max_length": 256,
    },
}


def _networks_of(kind: Kind) -> dict[str, dict[str, Any]]:
    pretrained = _TEXT if kind.reads_text else {"model": kind.pretrained}
    return {"from scratch": {"model": "tiny"}, "pre-trained": pretrained}


def networks(task: Task, scale: str) -> dict[str, dict[str, Any]]:
    """A network from scratch and a pre-trained one, each with the settings that go with it."""
    whole = NETWORKS_FULL.get(task.name) if scale == "full" else None
    return whole or NETWORKS.get(task.name) or _networks_of(task.kind)


def beams(task: Task, scale: str) -> dict[str, dict[str, Any]]:
    """Greedy and with five beams, where text is generated."""
    return {"beam=1": {"beams": 1}, "beam=5": {"beams": 5}} if task.kind.generates else {"": {}}


def config_of(task: Task, scale: str, *, sparse: bool = False) -> dict[str, Any]:
    """A task's settings at a scale; ``sparse``: those of the Sparse-Softmax paper, which names no learning rate."""
    if scale == "small":
        return dict(SMALL.get(task.name, {}))
    if scale != "full":
        raise UserError(f'no scale "{scale}"; there are {", ".join(SCALES)}')
    if task.name in paper.SPARSE_TRAINING["epochs"] and (sparse or task.name not in paper.SECONDS):
        rows = {name: row[task.name] for name, row in paper.SPARSE_TRAINING.items()}
        # in place of NEZHA on iflytek: bert-base-chinese
        return {
            "model": "bert-base-chinese" if task.name == "iflytek" else "bert-base-uncased",
            **rows,
            "lr": 2e-5,
        }
    if task.name in GENERATION:
        return dict(GENERATION[task.name])
    if not task.kind.reads_text:
        return {}
    trained: dict[str, Any] = {
        name: row[task.name] for name, row in paper.TRAINING.items() if task.name in row
    }
    if task.name == "sighan2015":
        return {"model": "hfl/chinese-roberta-wwm-ext", **trained}
    if task.name in paper.GLUE["Softmax"]:
        return {**_BERT, "epochs": 10, "batch_size": 32, "lr": 2e-5}  # within Liu et al.'s ranges
    return {**_BERT, **trained}


def words(config: Any, task: Task, data: Data) -> str:
    """What a table says of its runs."""
    n, _, _ = sizes(config, data)
    parts = [
        f"{config.model}"
        + (f", first {config.layers} layer(s)" if config.layers else "")
        + (", frozen embeddings" if config.freeze_embeddings else "")
        + (f", {config.pooling} of the tokens" if config.pooling else ""),
        f"{n:,} of {len(data.train):,} samples",
        f"{config.epochs} epochs of batches of {config.batch_size}",
        f"lr {config.lr:g}",
        *([f"texts cut at {config.max_length} tokens"] if task.kind.reads_text else []),
    ]
    return ", ".join(parts)
