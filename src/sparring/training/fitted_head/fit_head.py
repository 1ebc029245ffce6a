"""Start a classifier with a fitted head: its last linear layer becomes a discriminant analysis of its inputs.

A new head on a pre-trained encoder begins at random, and the first epochs mostly repair it. One forward pass
without gradients is enough to set it in closed form (`discriminant.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparring.heads.parallel.collectives import Collectives
from sparring.losses.multilabel import multilabel_softmax_rows
from sparring.losses.rows import class_last
from sparring.training import batches as batch_forms
from sparring.training.fitted_head.discriminant import SHRINKAGES, TEMPERATURES, Moments
from sparring.training.fitted_head.find_head import HeadError as HeadError
from sparring.training.fitted_head.find_head import find_head
from sparring.training.fitted_head.head_fit import HeadFit as HeadFit

HELD_OUT = 5  # one sample of so many judges the head
# Of the fits whose loss is this near to the best, as a share of the loss before, the one with the smallest
# weights is taken: large weights turn small changes of the encoder into large changes of the logits.
TOLERANCE = 0.04
ROWS_OF_A_CLASS = 5  # on average, before a pass may be broken off
# With so many rows for each feature and, on average, each class, more hardly change where training begins.
ENOUGH_OF_A_FEATURE = 20
ENOUGH_OF_A_CLASS = 50
# By so much the loss of a fit to a part of the rows may exceed that of all, with enough of each class or not.
# Measured, of all and of a fifth: 0.83 and 0.88 (sst5), 0.46 and 0.76 (iflytek), 0.52 and 0.82 (cifar100).
PROMISING = {True: 1.1, False: 1.25}
MOST_WEIGHTS = 1 << 25  # of the layer, and of the covariance: the fit needs some ten times as much memory
MOST_HELD_VALUES = 1 << 21  # rows times classes, and rows times features, that are kept for that
Forward = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]


@torch.no_grad()
def fit_head(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    head: nn.Linear | None = None,
    forward: Forward = batch_forms.forward,
    ignore_index: int = -100,
    keep_above: float = 1.0,
    max_scale: float = math.inf,
    check_after: int | None = None,
    stop_early: bool = False,
    collectives: Collectives | None = None,
) -> HeadFit:
    """Set the last linear layer of a classifier to a linear discriminant analysis of its inputs.

    One forward pass in eval mode, without gradients. A fifth of the samples is held out: it chooses shrinkage
    and temperature by the cross entropy, and decides whether the fitted layer replaces the one before, so a
    trained head is not lost. With several labels per row, the loss is that of `MultilabelSoftmaxLoss`.

    Args:
        model: The classifier, on its device. Nothing else of it changes.
        batches: Batches of the training data, as ``forward`` takes them; a DataLoader.
        head: The layer; by default the linear layer whose output ``forward`` returns.
        forward: Returns logits, classes second, and targets of a model and a batch.
        ignore_index: Target of rows without a class.
        keep_above: The layer stays as it was if the fitted one has more than this share of its loss.
        max_scale: The layer stays as it was if the fitted weights, times the size of their inputs, are larger
            than this. Features that hardly differ, as those of a network from scratch, need large weights.
        check_after: After this number of batches, and five samples for each class, stop if the fitted layer
            is far from replacing the other.
        stop_early: Stop once there are enough rows: 20 for each feature and, on average, 50 for each class.
        collectives: Of the processes, if each has a part of the batches.

    Returns:
        A `HeadFit`: whether the layer was replaced, and the losses.

    Raises:
        HeadError: No linear layer makes the logits; or the layer is frozen, shares its weights with another,
            is too large, or gets inputs that are not finite.

    Example:
        >>> x = torch.randn(200, 8)
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
        >>> fit = fit_head(model, [(x, x[:, :3].argmax(1))])
        >>> fit.replaced, fit.loss_after < fit.loss_before
        (True, True)
    """
    fitter = _Fitter(model, head, forward, ignore_index, max_scale, collectives or Collectives(local=True))
    with _evaluating(model):
        for number, batch in enumerate(batches, 1):
            fitter.add(batch)
            if check_after is not None and number >= check_after and fitter.has_seen_classes:
                check_after = None
                if not fitter.choose().replaces(PROMISING[fitter.has_enough_of_classes] * keep_above):
                    break
            if stop_early and fitter.has_enough:
                break
    return fitter.finish(keep_above)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


class _Choice(NamedTuple):
    """The losses of held-out rows with the layer as it is and with its best fit, and how that is made."""

    before: float
    after: float
    shrinkage: float
    temperature: float
    moments: Moments  # of all rows, on all processes

    def replaces(self, keep_above: float) -> bool:
        return self.after < keep_above * self.before


class _Fitter:
    """Collects the rows of one pass. Held-out rows are kept; of the others, only their moments."""

    def __init__(
        self,
        model: nn.Module,
        head: nn.Linear | None,
        forward: Forward,
        ignore_index: int,
        max_scale: float,
        collectives: Collectives,
    ) -> None:
        self.model = model
        self.head = head
        self.forward = forward
        self.ignore_index = ignore_index
        self.max_scale = max_scale
        self.collectives = collectives
        self.moments: Moments | None = None
        self.held: list[tuple[Tensor, Tensor]] = []  # rows and targets
        self.n_values = 0  # that are held
        self.n_samples = 0
        self.n_rows = 0

    def add(self, batch: Any) -> None:
        """Run the model on a batch, and take the rows of its head."""
        n_samples, target, rows, multilabel = self._run(batch)
        sample = torch.arange(self.n_samples, self.n_samples + n_samples, device=rows.device)
        # numbered over all processes, which take turns, so that the same samples are held out on any number
        sample = sample * self.collectives.size + self.collectives.rank
        sample = sample.repeat_interleave(len(rows) // n_samples)
        self.n_samples += n_samples
        if multilabel:
            valid = (target != self.ignore_index).all(1)
            if not bool(((target == 0) | (target == 1))[valid].all()):
                raise HeadError("the targets are shares of classes")
        else:
            valid = target != self.ignore_index
        rows, target, sample = rows[valid], target[valid], sample[valid]
        self.n_rows += len(rows)
        moments = self._moments(rows, multilabel)
        if not multilabel and bool(((target < 0) | (target >= moments.n_classes)).any()):
            raise HeadError(f"a target is none of the {moments.n_classes} classes of the last layer")
        held = (sample % HELD_OUT == 0) & (self.n_values < MOST_HELD_VALUES)
        self.held.append((rows[held], target[held]))
        self.n_values += int(held.sum()) * max(moments.n_features, moments.n_classes)
        moments.add(rows[~held], target[~held])

    @property
    def has_seen_classes(self) -> bool:
        """Whether there are some samples for each class; the same on all processes."""
        assert self.head is not None
        return self.n_samples * self.collectives.size >= ROWS_OF_A_CLASS * self.head.out_features

    @property
    def has_enough_of_classes(self) -> bool:
        """Whether more rows would hardly change the means of the classes. A collective call."""
        assert self.head is not None
        return self.collectives.sum_numbers([self.n_rows])[0] >= ENOUGH_OF_A_CLASS * self.head.out_features

    @property
    def has_enough(self) -> bool:
        """Whether more rows would hardly change the fit. A collective call."""
        assert self.head is not None
        n_rows = self.collectives.sum_numbers([self.n_rows])[0]
        return self.has_enough_of_classes and n_rows >= ENOUGH_OF_A_FEATURE * self.head.in_features

    def _run(self, batch: Any) -> tuple[int, Tensor, Tensor, bool]:
        """The number of samples, the targets and inputs of the head as rows, and whether labels are many."""
        calls: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # input and output of each layer

        def keep(
            layer: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
        ) -> None:
            calls[layer] = (inputs[0] if inputs else named["input"], output)

        linear = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
        handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in linear]
        try:
            output, target = self.forward(self.model, batch)
        finally:
            for handle in handles:
                handle.remove()
        if self.head is None:
            self.head = find_head(self.model, calls, output)
        # a fused head reads what forward returns
        features = calls[self.head][0] if self.head in calls else output
        if features.shape[-1] != self.head.in_features:
            raise HeadError("the model does not call the head as a layer")
        rows = features.reshape(-1, features.shape[-1]).float()
        multilabel = target.ndim == output.ndim
        if multilabel:
            target = class_last(target) if self.head in calls else target
            target = target.reshape(len(rows), -1)
        else:
            target = target.reshape(-1)
        if rows.device.type == "mps":  # has no double precision
            rows, target = rows.cpu(), target.cpu()
        return len(output), target, rows, multilabel

    def _moments(self, rows: Tensor, multilabel: bool) -> Moments:
        if self.moments is None:
            assert self.head is not None
            if not self.head.weight.requires_grad:
                raise HeadError("the last layer is frozen")
            if self.head.weight.numel() + self.head.in_features**2 > MOST_WEIGHTS:
                raise HeadError(f"a layer of {self.head.weight.numel():,} weights is too large to be fitted")
            origin = rows.mean(0) if len(rows) else rows.new_zeros(rows.shape[1])
            self.collectives.broadcast([origin])
            self.moments = Moments(self.head.in_features, self.head.out_features, multilabel, origin)
        return self.moments

    def choose(self) -> _Choice:
        """Judge the layer and its fits by the rows held out so far. A collective call."""
        moments, head = self.moments, self.head
        if moments is None or head is None:
            raise HeadError("there are no batches to fit the head to")
        fitted, everything = moments.copy(), moments.copy()
        for rows, target in self.held:
            everything.add(rows, target)
        for tensor in (*fitted.tensors(), *everything.tensors()):
            self.collectives.sum(tensor)
        if not all(bool(tensor.isfinite().all()) for tensor in everything.tensors()):
            raise HeadError("the inputs of the last layer are not finite")
        if not everything.n_rows > fitted.n_rows > 0:
            raise HeadError(f"{int(everything.n_rows)} rows are too few to fit the head to")
        no_bias = head.weight.new_zeros(head.out_features)
        before = self._loss(head.weight, no_bias if head.bias is None else head.bias)
        classes = fitted.discriminant()
        fits = []
        for shrinkage in SHRINKAGES:
            layer = classes.layer(shrinkage)
            for temperature in TEMPERATURES:
                weight, bias = layer.at(temperature)
                scale = float(weight.norm(dim=1).mean()) * everything.size
                fits.append((self._loss(weight, bias), scale, shrinkage, temperature))
        limit = min(fits)[0] + TOLERANCE * before
        near = [fit for fit in fits if fit[0] <= limit]
        after, scale, shrinkage, temperature = min(near, key=lambda fit: fit[1])
        if scale > self.max_scale:
            after = math.inf
        return _Choice(before, after, shrinkage, temperature, everything)

    def finish(self, keep_above: float) -> HeadFit:
        """Set the layer to its fit on all rows, if that is better on the held-out ones."""
        choice, head = self.choose(), self.head
        assert head is not None
        if replaced := choice.replaces(keep_above):
            weight, bias = choice.moments.discriminant().layer(choice.shrinkage).at(choice.temperature)
            head.weight.copy_(weight)
            if head.bias is not None:
                head.bias.copy_(bias)
        n_rows, n_samples = int(choice.moments.n_rows), self.collectives.sum_numbers([self.n_samples])[0]
        return HeadFit(replaced, choice.before, choice.after, n_rows, int(n_samples), *choice[2:4])

    def _loss(self, weight: Tensor, bias: Tensor) -> float:
        """The mean loss of the held-out rows under a linear layer, on all processes."""
        assert self.moments is not None
        total = n_rows = 0.0
        for rows, target in self.held:
            logits = F.linear(rows, weight.to(rows), bias.to(rows))
            if self.moments.multilabel:
                total += float(multilabel_softmax_rows(logits, target).sum())
            else:
                total += float(F.cross_entropy(logits, target.to(logits.device), reduction="sum"))
            n_rows += len(rows)
        total, n_rows = self.collectives.sum_numbers([total, n_rows])
        return total / max(n_rows, 1)
