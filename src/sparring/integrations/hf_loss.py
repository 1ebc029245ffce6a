"""Our losses as Hugging Face's Trainer wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sparring.integrations.settings import as_loss
from sparring.losses import Loss
from sparring.training.batches import class_second, logits_of

HF_IGNORED = -100  # what the Trainer does not count


def shifted(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Of a causal language model, whose logits are of the next token."""
    return logits[..., :-1, :], labels[..., 1:]


def share_of(labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor | float:
    """This batch's share of a window's items, as the Trainer counts them: samples, tokens, or entries of multi-label targets."""
    return (
        1.0
        if num_items_in_batch is None
        else labels.ne(HF_IGNORED).sum() / torch.as_tensor(num_items_in_batch, device=labels.device)
    )


def loss_func(
    loss: Loss | str = "as-softmax", *, shift: bool = False, **settings: Any
) -> Callable[..., Tensor]:
    """For ``Trainer(compute_loss_func=loss_func("as-softmax", delta=0.3))``: the mean over all rows of an accumulation window.

    ``shift=True`` is for causal language models. A δ schedule is the caller's to step; ``SparringTrainer`` does it by itself. With class
    weights a window is the mean of its batches' means, each by its share of the rows: the Trainer counts rows, not weights.

    >>> logits, labels = torch.zeros(4, 2), torch.tensor([0, 1, 0, -100])
    >>> compute = loss_func("softmax")
    >>> compute({"logits": logits}, labels), compute({"logits": logits}, labels, num_items_in_batch=6)
    (tensor(0.6931), tensor(0.3466))
    """
    objective = as_loss(loss, **settings)
    if objective.ignore_index != HF_IGNORED:
        raise ValueError(
            f"the Trainer counts labels other than {HF_IGNORED}; got a loss with ignore_index={objective.ignore_index}"
        )

    def compute(
        outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None, **_: Any
    ) -> Tensor:
        if labels is None:
            known = ", ".join(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise ValueError(
                f'the Trainer hands over targets only from a column named "labels" (the model returned {known}); rename it, or use'
                " SparringTrainer with TrainingArguments(label_names=[…])"
            )
        logits, target = class_second(
            *shifted(logits_of(outputs), labels) if shift else (logits_of(outputs), labels)
        )
        return objective.to(logits.device).rows(logits, target).mean() * share_of(target, num_items_in_batch)

    compute.objective = objective  # type: ignore[attr-defined]
    return compute
