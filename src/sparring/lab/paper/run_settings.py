"""Settings of the runs at the two scales.

``full`` is the papers' own setting, for a GPU. ``small`` fits two cores and a day: encoders that
install as wheels, of which the last layer is trained, and fewer samples and epochs. Every method of a task
has the same settings.
"""

from typing import Any

from sparring.lab.paper import published
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import sizes
from sparring.lab.task import Data, Task, UserError

SCALES = ("small", "full")
EVALUATIONS = 10  # on dev in a run: Table 4 correlates over them
Settings = dict[str, Any]

# All layers of the encoders. The last one is trained; what the others compute is computed once for each
# sample. benchmarks/frontier.py chose learning rate and epochs of clinc_oos, sst5, conll2003 and cifar100
# (pre-trained), and the learning rate of iflytek, for softmax on dev. For eurlex, wos, reuters21578, cola,
# rte and mrpc a few learning rates were tried with softmax and one seed, on dev. The others were not tuned.
_LAST: Settings = {"batch_size": 32, "n_dev": 500, "lr": 1e-3}
_ENGLISH = {"model": "minilm", "freeze_layers": 5, **_LAST}
_CHINESE = {"model": "m3e-small", "freeze_layers": 3, **_LAST}
_TEXT = {**_ENGLISH, "pooling": "mean"}  # minilm is a sentence encoder: its first token scores far lower
_SHORT = {"max_length": 64}
_GLUE = {**_TEXT, **_SHORT, "lr": 5e-4, "n_train": 2000, "epochs": 3}
_GENERATION = {"model": "tiny", "n_train": 1000, "epochs": 6, "n_dev": 200, "n_test": 500}

SMALL: dict[str, Settings] = {  # a minute or so for each run
    "sst5": {**_TEXT, "lr": 5e-4, "n_train": 4000, "epochs": 2, "max_length": 48},
    "clinc_oos": {**_TEXT, "n_train": 6000, "epochs": 4},
    "conll2003": {**_ENGLISH, "lr": 2e-3, "n_train": 3000, "epochs": 4},
    "sighan2015": {**_CHINESE, **_SHORT, "batch_size": 16, "n_train": 600, "epochs": 4, "n_dev": 150},
    "eurlex": {**_TEXT, **_SHORT, "lr": 2e-3, "epochs": 8},
    "wos": {**_TEXT, **_SHORT, "lr": 4e-3, "epochs": 8},
    "reuters21578": {**_TEXT, **_SHORT, "lr": 2e-3, "epochs": 2},
    "rcv1": {**_TEXT, **_SHORT, "n_train": 7000, "epochs": 4},
    "iflytek": {**_CHINESE, **_SHORT, "pooling": "mean", "lr": 5e-4, "n_train": 2000, "epochs": 4},
    "squad_qg": _GENERATION,
    "gigaword": _GENERATION,
    "languages": {"epochs": 4, "n_train": 4000, "n_dev": 500},
    **dict.fromkeys(published.GLUE_TASKS, _GLUE),
    # the last layer alone learns little of grammar
    "cola": {**_GLUE, "freeze_layers": 3, "lr": 2e-4, "n_train": 4000},
}

_CIFAR = {"batch_size": 32, "n_dev": 500, "n_test": 2000}
_LITE = {"model": "efficientnet-lite0", "image_size": 96, "n_train": 1000, "epochs": 4}
_DIGITS = {"n_train": 300, "batch_size": 16}  # few samples: with all of them every method has 99 %
NETWORKS: dict[str, dict[str, Settings]] = {  # a network from scratch and a pre-trained one
    "cifar100": {
        "from scratch": {**_CIFAR, "model": "resnet", "n_train": 2000, "epochs": 8},
        "pre-trained": {**_CIFAR, **_LITE},
    },
    "fsdd": {
        "from scratch": {**_DIGITS, "model": "tiny", "epochs": 10},
        "pre-trained": {**_DIGITS, "model": "resemblyzer", "epochs": 5},
    },
}

_FULL_CIFAR = {"batch_size": 62, "epochs": 200}
FULL_NETWORKS: dict[str, dict[str, Settings]] = {
    "cifar100": {  # in place of Densenet 201 and InceptionV3, which transformers does not have
        "from scratch": {**_FULL_CIFAR, "model": "resnet"},
        "pre-trained": {**_FULL_CIFAR, "model": "microsoft/resnet-50"},
    }
}
_BART = {"model": "facebook/bart-base", "lr": 2e-5}  # in place of UniLM, which is not on the hub
FULL_GENERATION: dict[str, Settings] = {
    "squad_qg": {**_BART, "epochs": 10, "batch_size": 32, "max_length": 464},
    "gigaword": {**_BART, "epochs": 30, "batch_size": 64, "max_length": 256},
}
FULL_MODELS = {
    "sighan2015": "hfl/chinese-roberta-wwm-ext",
    "iflytek": "bert-base-chinese",  # in place of NEZHA
}


def networks(task: Task, scale: str) -> dict[str, Settings]:
    """Settings of a network from scratch and of a pre-trained one."""
    if scale == "full" and task.name in FULL_NETWORKS:
        return FULL_NETWORKS[task.name]
    pretrained = _TEXT if task.kind.reads_text else {"model": task.kind.pretrained}
    return NETWORKS.get(task.name) or {"from scratch": {"model": "tiny"}, "pre-trained": pretrained}


def beams(task: Task, scale: str) -> dict[str, Settings]:
    """Greedy search and five beams, where text is generated."""
    return {"beam=1": {"beams": 1}, "beam=5": {"beams": 5}} if task.kind.generates else {"": {}}


def pretrained(task: Task, scale: str) -> dict[str, Settings]:
    """Settings of a pre-trained network, for images and sounds, too."""
    return {"": dict(NETWORKS.get(task.name, {}).get("pre-trained", {})) if scale == "small" else {}}


def too_long(task: Task, scale: str) -> dict[str, Settings]:
    """As many epochs as the paper on sst5: there the loss on dev rises in the end, and quality does not."""
    epochs = {"epochs": published.TRAINING["epochs"]["sst5"], "n_train": 2000}
    return {"": epochs if scale == "small" and task.name == "sst5" else {}}


def settings_of(task: Task, scale: str, *, sparse: bool = False) -> Settings:
    """A task's settings at a scale.

    Args:
        task: The task.
        scale: "small" or "full".
        sparse: Whether to prefer the Sparse-Softmax paper's settings, which name no learning rate.
    """
    if scale == "small":
        return dict(SMALL.get(task.name, {}))
    if scale != "full":
        raise UserError(f'no scale "{scale}"; there are {", ".join(SCALES)}')
    if task.name in published.SPARSE_TASKS and (sparse or task.name not in published.TEXT_TASKS):
        values = {name: row[task.name] for name, row in published.SPARSE_TRAINING.items()}
        return {"model": FULL_MODELS.get(task.name, "bert-base-uncased"), **values, "lr": 2e-5}
    if task.name in FULL_GENERATION:
        return dict(FULL_GENERATION[task.name])
    if not task.kind.reads_text:
        return {}
    bert = {"model": FULL_MODELS.get(task.name, "bert-base-cased")}
    if task.name in published.GLUE_TASKS:
        return {**bert, "epochs": 10, "batch_size": 32, "lr": 2e-5}  # within Liu et al.'s ranges
    return {**bert, **{name: row[task.name] for name, row in published.TRAINING.items() if task.name in row}}


def description(config: Config, task: Task, data: Data) -> str:
    """What a table's notes say about its runs."""
    n_train, _, _ = sizes(config, data)
    parts = [
        config.model,
        f"first {config.layers} layer(s)" if config.layers else "",
        "frozen embeddings" if config.freeze_embeddings else "",
        f"embeddings and first {config.freeze_layers} layer(s) frozen" if config.freeze_layers else "",
        f"images of {config.image_size} pixels" if config.image_size else "",
        f"{config.pooling} of the tokens" if config.pooling else "",
        f"{n_train:,} of {len(data.train):,} samples",
        f"{config.epochs} epochs of batches of {config.batch_size}",
        f"lr {config.lr:g}",
        f"texts cut at {config.max_length} tokens" if task.kind.reads_text else "",
    ]
    return ", ".join(part for part in parts if part)
