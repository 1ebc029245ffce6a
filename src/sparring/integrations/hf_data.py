"""Windows and resting samples as the data of a Trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from sparring.training.batches import Batch
from sparring.training.resting.sampler import RestingLoader
from sparring.training.resting.scorecard import Scorecard

if TYPE_CHECKING:
    from sparring.integrations.hf import SparringMixin

try:
    import datasets
except ImportError:
    datasets = None


class Window(dict[str, torch.Tensor]):
    """The batches of a window. As a dict it holds the tensors in which the Trainer counts tokens."""

    def __init__(self, batches: Sequence[Batch], counted: Sequence[str]) -> None:
        self.batches = batches
        for name in counted:
            tensors = [batch.data.get(name) for batch in batches if isinstance(batch.data, Mapping)]
            flat = [tensor.flatten() for tensor in tensors if isinstance(tensor, torch.Tensor)]
            if flat:
                self[name] = torch.cat(flat)


def take_window(batches: Iterator[Batch], n_micro: int, n_done: int) -> list[Batch]:
    """Take the batches of one window.

    These are ``n_micro`` batches to train on; more where those do not advance the epoch beyond its ``n_done``
    planned batches; fewer at the end of an epoch.
    """
    window: list[Batch] = []
    n_train = 0
    for batch in batches:
        window.append(batch)
        n_train += not batch.check
        if n_train >= n_micro and batch.n_done > n_done:
            break
    return window


def resting_loader(trainer: SparringMixin, scorecard: Scorecard) -> RestingLoader:
    """The loader of a Trainer's training set, with its settings of collating, order and workers."""
    args, data = trainer.args, trainer.train_dataset
    strategy = getattr(args, "train_sampling_strategy", None)
    lengths = None
    if getattr(args, "group_by_length", False) or strategy == "group_by_length":
        name = args.length_column_name
        named = name in getattr(data, "column_names", ())
        lengths = list(data[name]) if named else [len(sample["input_ids"]) for sample in data]
    if datasets is not None and isinstance(data, datasets.Dataset):
        data = trainer._remove_unused_columns(data, description="training")
        collate = trainer.data_collator
    else:
        collate = trainer._get_collator_with_removed_columns(trainer.data_collator, description="training")
    return RestingLoader(
        data,
        scorecard,
        trainer._train_batch_size,
        collate,
        lengths,
        shuffle=strategy != "sequential",
        seed=args.seed if args.data_seed is None else args.data_seed,
        loading={"num_workers": args.dataloader_num_workers, "pin_memory": args.dataloader_pin_memory},
    )
