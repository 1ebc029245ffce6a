"""Losses in the form that Hugging Face's Trainer calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sparring.integrations.settings import mean_loss
from sparring.losses import Loss
from sparring.training.batches import class_second, logits_of

HF_IGNORED = -100  # labels that the Trainer does not count


def align(logits: Tensor, labels: Tensor, shift: bool) -> tuple[Tensor, Tensor]:
    """Logits and labels as the losses accept them. ``shift``: the logits are those of the next token."""
    if shift:
        return class_second(logits[..., :-1, :], labels[..., 1:])
    return class_second(logits, labels)


def window_mean(
    loss: Loss, logits: Tensor, target: Tensor, num_items_in_batch: Tensor | int | None
) -> Tensor:
    """The mean loss of a batch times its share of the items of a window, as the Trainer counts them."""
    mean = loss.to(logits.device).rows(logits, target).mean()
    if num_items_in_batch is None:
        return mean
    return mean * (target.ne(HF_IGNORED).sum() / torch.as_tensor(num_items_in_batch, device=target.device))


def loss_func(
    loss: Loss | str = "as-softmax", *, shift: bool = False, **settings: Any
) -> Callable[..., Tensor]:
    """A loss function for ``Trainer(compute_loss_func=…)``: the mean over all rows of an accumulation window.

    Args:
        loss: A loss, or its name.
        shift: Set it for causal language models, whose logits are those of the next token.
        settings: Of a loss by name, such as ``delta``. The caller has to step a δ schedule.

    Returns:
        A function of outputs, labels and ``num_items_in_batch``. With class weights a window is the mean of
        its batches' means, each by its share of the rows: the Trainer counts rows, not weights.

    Raises:
        ValueError: For a loss with another ``ignore_index`` than -100, or another reduction than the mean.
        TypeError: For a loss of another library.

    Example:
        >>> logits, labels = torch.zeros(4, 2), torch.tensor([0, 1, 0, -100])
        >>> compute = loss_func("softmax")
        >>> compute({"logits": logits}, labels), compute({"logits": logits}, labels, num_items_in_batch=6)
        (tensor(0.6931), tensor(0.3466))
    """
    objective = mean_loss(loss, **settings)
    if objective.ignore_index != HF_IGNORED:
        raise ValueError(
            f"the Trainer counts labels other than {HF_IGNORED}; got a loss with"
            f" ignore_index={objective.ignore_index}"
        )

    def compute(
        outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None, **_: Any
    ) -> Tensor:
        if labels is None:
            columns = ", ".join(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise ValueError(
                f'the Trainer passes targets only from a column named "labels" (the model returned {columns})'
                "; rename it, or use SparringTrainer with TrainingArguments(label_names=[…])"
            )
        logits, target = align(logits_of(outputs), labels, shift)
        return window_mean(objective, logits, target, num_items_in_batch)

    return compute
