"""sentence-transformers: a CrossEncoder with the losses of this package, and with class weights.

loss = CrossEncoderLoss(model, "as-softmax", delta=0.3)      # in a CrossEncoderTrainer of your own
trainer = SparringCrossEncoderTrainer(model, args, train_dataset=data, loss="as-softmax", speed="fast")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparring.backward.compact import compact
from sparring.backward.stats import SkipStats
from sparring.integrations.hf import SparringMixin
from sparring.integrations.settings import mean_loss
from sparring.losses import Loss

try:
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer
    from sentence_transformers.util import batch_to_device
except ImportError as error:
    raise ImportError(
        "this needs sentence-transformers: pip install 'sparring[sentence-transformers]'"
    ) from error

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

__all__ = ["CrossEncoderLoss", "SparringCrossEncoderTrainer"]


class CrossEncoderLoss(nn.Module):
    """A loss for ``CrossEncoderTrainer(loss=…)``, with class weights and without a backward of won pairs.

    Args:
        model: A CrossEncoder with at least two outputs.
        loss: One of our losses, or its name. A loss object can have class weights.
        skip: Whether to skip the backward pass of won pairs (`sparring.skip.compact`). The gradients are the
            same.
        settings: Of a loss by name, such as ``delta`` or ``weight``. The caller has to step a δ schedule;
            `SparringCrossEncoderTrainer` does it.

    Raises:
        TypeError: The model is no CrossEncoder, or the loss is of another library.
        ValueError: The model has one output, or a setting is out of its range.

    Example::

        model = CrossEncoder("distilroberta-base", num_labels=3)
        loss = CrossEncoderLoss(model, "as-softmax", delta=0.3, weight=torch.tensor([1.0, 2.0, 1.0]))
        trainer = CrossEncoderTrainer(model, args, train_dataset=data, loss=loss)
        trainer.train()
        print(loss.stats.n_samples_backward, "of", loss.stats.n_samples)
    """

    def __init__(
        self, model: CrossEncoder, loss: Loss | str = "as-softmax", *, skip: bool = True, **settings: Any
    ) -> None:
        super().__init__()
        check_model(model)
        self.model: CrossEncoder | DistributedDataParallel = model  # the trainer may wrap it
        self.loss = mean_loss(loss, **settings).to(model.device)
        self.stats = compact(model).stats if skip else SkipStats()

    def forward(
        self,
        inputs: Sequence[Sequence[Any]],
        labels: Tensor | Sequence[Tensor],
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """The mean loss of a batch of pairs: two columns, and their labels."""
        value: Tensor = self.loss(*score_pairs(self.model, inputs, labels, prompt=prompt, task=task))
        return value


class SparringCrossEncoderTrainer(SparringMixin, CrossEncoderTrainer):  # type: ignore[misc]
    """A CrossEncoderTrainer with ``loss``, ``delta``, ``speed`` and the other settings of `SparringTrainer`.

    ``loss`` is one of our losses or its name, not a loss of sentence-transformers. Samples of a single
    training set can rest.

    Args:
        args, keywords: Of the CrossEncoderTrainer, and the settings of `SparringTrainer`.

    Raises:
        TypeError: The model is no CrossEncoder, or the loss is of another library.
        ValueError: The model has one output, settings exclude each other, or samples of several training
            sets should rest.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        check_model(self.model)
        self.label_names = ["label"]  # so the collator names them
        if isinstance(self.train_dataset, Mapping) and self.parts.scorecard is not None:
            raise ValueError(
                f"samples can rest in one training set, got {len(self.train_dataset)} of them;"
                " concatenate them, or use rest=False"
            )

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        return dataset  # the columns are texts, not arguments of the model

    def run_model(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, Tensor, Tensor]:
        """Return the output of the model, its logits, and the targets."""
        options = {name: inputs.get(name) for name in ("prompt", "task")}
        names = [name for name in inputs if name not in ("dataset_name", "label", *options)]
        columns = [inputs[name] for name in names]
        scores, target = score_pairs(model, columns, inputs.get("label"), **options)
        return {"logits": scores}, scores, target


def check_model(model: nn.Module) -> None:
    """Raise an error for a model that is no CrossEncoder, or that has one output."""
    if not isinstance(model, CrossEncoder):
        raise TypeError(f"the model must be a CrossEncoder, got {type(model).__name__}")
    if model.num_labels < 2:
        raise ValueError(
            "the CrossEncoder has one output, and a softmax needs two or more; use"
            " CrossEncoder(…, num_labels=2) for a yes or no, whose score is scores[:, 1] - scores[:, 0]"
        )


def score_pairs(
    model: nn.Module, columns: Sequence[Sequence[Any]], labels: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    """Return the logits of pairs and their targets. The model is a CrossEncoder, or a wrapper of one."""
    if len(columns) != 2:
        raise ValueError(f"expected two columns, the pairs, besides the label; got {len(columns)} columns")
    if labels is None:
        raise ValueError('the batch has no labels; name their column "label", "labels" or "score"')
    encoder: CrossEncoder = model if isinstance(model, CrossEncoder) else model.module  # type: ignore[assignment]
    pairs = list(zip(*columns, strict=True))
    features = batch_to_device(encoder.preprocess(pairs, **options), encoder.device)
    target = torch.stack(list(labels)) if isinstance(labels, (list, tuple)) else labels
    scores: Tensor = model(features)["scores"]
    if target.ndim == 2 and target.shape[1] == 1:
        target = target.squeeze(1)
    return scores, target.to(scores.device)
