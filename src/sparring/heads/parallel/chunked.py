"""Class-parallel row losses: each rank computes the logits of its class shard, chunk by chunk.

Ranks exchange a few numbers per row and never logits. For the losses with a rule (softmax, AS-Softmax and its
logit-margin variant) these are:

    max of the logits  ─►  Σ exp and the target's logit: log p_t, and the threshold τ from the rule
                       ─►  for rows that τ does not decide: Σ p and number of the classes with log p ≥ τ

For Sparse-Softmax each rank sends its k largest logits.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparring.heads.chunk_kernels import RowBlock, narrow, select_rows
from sparring.heads.dispatch import HeadInputs, current_settings, find_rule
from sparring.heads.gradients import GradientAccumulator, HeadGradients, NeedsGrad
from sparring.heads.parallel.collectives import Collectives
from sparring.heads.parallel.dtensor import ClassShard
from sparring.losses.base import Loss, MultilabelLoss
from sparring.losses.kernels.modes import in_float32
from sparring.losses.kernels.rule import SOFTMAX_RULE, MarginRule
from sparring.losses.sparse_softmax import SparseSoftmaxLoss

MIN_CHUNK_SIZE = 2**24  # logits held at once, at least
EXP_CLASSES = 2**15  # classes whose exponentials are held at once


class MarginStatistics(NamedTuple):
    """Numbers per row, equal on all ranks. Gradients need no further communication."""

    value: Tensor
    active: Tensor
    peak: Tensor  # the largest logit
    log_total: Tensor  # log Σ exp(logit − peak)
    tau: Tensor  # classes with log p < τ are discarded; -inf keeps all
    kept_mass: Tensor  # Σ p over the classes that are kept
    conceded: Tensor


class ParallelMarginSoftmax(NamedTuple):
    """Softmax over the classes that a rule keeps."""

    rule: MarginRule
    num_classes: int

    def statistics(
        self, logits: Tensor, target: Tensor, shard: ClassShard, collectives: Collectives
    ) -> MarginStatistics:
        peak = logits.amax(1) if shard.size else logits.new_full((len(logits),), -torch.inf)
        collectives.max(peak)
        total = torch.zeros_like(peak)
        for block in logits.split(EXP_CLASSES, 1):
            total += (block - peak[:, None]).exp_().sum(1)
        shifted_t = _target_logit(logits, shard.local(target), peak)
        total, shifted_t = collectives.sum(torch.stack([total, shifted_t]))
        log_total = total.log()
        logp_t = shifted_t - log_total
        tau = self.rule.threshold(logp_t)
        value = -logp_t
        kept_mass = torch.ones_like(tau)
        active = torch.full_like(tau, self.num_classes > 1, dtype=torch.bool)
        conceded = torch.zeros_like(active)
        if self.rule.concedes:
            conceded = self.rule.conceded(logp_t, -log_total)
        statistics = MarginStatistics(value, active, peak, log_total, tau, kept_mass, conceded)

        # Rows above the upper bound are won whatever their opponents are; -inf keeps all opponents.
        has_threshold = tau > -torch.inf
        decided = logp_t > self.rule.bounds()[1]
        active &= ~(has_threshold & decided)
        rows = (has_threshold & ~decided).nonzero().squeeze(1)
        if len(rows):
            p, is_kept = _kept_probabilities(logits, rows, statistics)
            sums = torch.stack([p.sum(1), is_kept.sum(1).to(p.dtype)])
            kept_mass[rows], n_kept = collectives.sum(sums)
            value[rows] = kept_mass[rows].log() - logp_t[rows]
            active[rows] &= n_kept > 1  # the target is one of them
        active |= value.isnan()
        active &= ~conceded
        return statistics._replace(value=torch.where(active, value, 0))

    def gradient_blocks(
        self, logits: Tensor, target: Tensor, statistics: MarginStatistics, shard: ClassShard
    ) -> Iterator[RowBlock]:
        """q − onehot(target) for the classes of this shard; overwrites the logits."""
        columns = shard.local(target)
        has_threshold = statistics.tau > -torch.inf
        rows = (statistics.active & has_threshold).nonzero().squeeze(1)
        if len(rows):
            p, _ = _kept_probabilities(logits, rows, statistics)
            q = p.div_(statistics.kept_mass[rows, None])
            yield narrow(rows, _minus_onehot(q, columns[rows]))
        rows = (statistics.active & ~has_threshold).nonzero().squeeze(1)  # includes rows with NaN
        if len(rows):
            p = _logp(select_rows(logits, rows), rows, statistics).exp_()
            yield RowBlock(rows, None, _minus_onehot(p, columns[rows]))


def _logp(logits: Tensor, rows: Tensor, statistics: MarginStatistics) -> Tensor:
    """log p over all classes of all ranks, in place."""
    return logits.sub_(statistics.peak[rows, None]).sub_(statistics.log_total[rows, None])


def _kept_probabilities(logits: Tensor, rows: Tensor, statistics: MarginStatistics) -> tuple[Tensor, Tensor]:
    """p of the classes of this shard in some rows, 0 where discarded; and which classes are kept."""
    logp = _logp(logits.index_select(0, rows), rows, statistics)
    is_kept = logp >= statistics.tau[rows, None]
    return logp.exp_().mul_(is_kept), is_kept


class SparseStatistics(NamedTuple):
    """Numbers per row, equal on all ranks."""

    value: Tensor
    active: Tensor
    classes: Tensor  # (N, k) classes of the k largest logits
    probabilities: Tensor  # (N, k) their softmax
    conceded: Tensor  # no row


class ParallelSparseSoftmax(NamedTuple):
    """Sparse-Softmax: softmax over the k largest logits of all ranks."""

    k: int

    def statistics(
        self, logits: Tensor, target: Tensor, shard: ClassShard, collectives: Collectives
    ) -> SparseStatistics:
        top, classes = topk(logits, self.k, shard, collectives)
        peak = top[:, 0]
        shifted_t = collectives.sum(_target_logit(logits, shard.local(target), peak))
        value = (top - peak[:, None]).logsumexp(1) - shifted_t
        active = (classes != target[:, None]).any(1) | value.isnan()
        value = torch.where(active, value, 0)
        return SparseStatistics(value, active, classes, torch.softmax(top, 1), torch.zeros_like(active))

    def gradient_blocks(
        self, logits: Tensor, target: Tensor, statistics: SparseStatistics, shard: ClassShard
    ) -> Iterator[RowBlock]:
        rows = statistics.active.nonzero().squeeze(1)
        top = shard.local(statistics.classes[rows])
        target = shard.local(target[rows])
        columns = torch.cat([top[top >= 0], target[target >= 0]]).unique()
        grad = logits.new_zeros(len(rows), len(columns))
        if len(columns):
            probabilities = statistics.probabilities[rows] * (top >= 0)
            grad.scatter_add_(1, _positions(columns, top).clamp(min=0), probabilities)
            yield RowBlock(rows, columns, _minus_onehot(grad, _positions(columns, target)))


ParallelLoss = ParallelMarginSoftmax | ParallelSparseSoftmax


def parallel_loss(loss: Loss, num_classes: int) -> ParallelLoss:
    """The class-parallel form of a loss, with the present value of its δ."""
    if isinstance(loss, SparseSoftmaxLoss):
        if loss.k < num_classes:
            return ParallelSparseSoftmax(loss.k)
        return ParallelMarginSoftmax(SOFTMAX_RULE, num_classes)
    rule = find_rule(type(loss).row_function, current_settings(loss.settings()))
    if rule is None:
        if isinstance(loss, MultilabelLoss):
            raise ValueError(
                f"{loss.name} has no class-parallel form: its labels are a matrix of rows × classes,"
                " which each rank would hold; use LinearLoss, which computes in chunks"
            )
        known = "as-logit, as-softmax, softmax or sparse-softmax"
        raise ValueError(f"{loss.name} has no class-parallel form; use {known}")
    return ParallelMarginSoftmax(rule, num_classes)


def topk(logits: Tensor, k: int, shard: ClassShard, collectives: Collectives) -> tuple[Tensor, Tensor]:
    """The k largest logits over all ranks, (N, k), and their classes. Each rank sends k logits per row.

    Ranks with fewer than k classes pad with class -1 at -inf. A class whose logit is -inf counts as the least
    finite number until the selection, so that it precedes the padding.
    """
    least = torch.finfo(logits.dtype).min
    values = logits.new_full((len(logits), k), -torch.inf)
    classes = torch.full_like(values, -1, dtype=torch.long)
    n = min(k, shard.size)
    if n:
        top, columns = logits.topk(n, 1)
        values[:, :n] = top.clamp_(min=least)
        classes[:, :n] = columns + shard.start
    if collectives.size > 1:
        values, order = collectives.gather(values).transpose(0, 1).flatten(1).topk(k, 1)  # of (N, size·k)
        classes = collectives.gather(classes).transpose(0, 1).flatten(1).gather(1, order)
    return values.masked_fill_(values == least, -torch.inf), classes


def _positions(columns: Tensor, classes: Tensor) -> Tensor:
    """The positions of classes among sorted columns; -1 stays -1."""
    return torch.where(classes >= 0, torch.searchsorted(columns, classes.clamp(min=0)), -1)


def _target_logit(logits: Tensor, columns: Tensor, shift: Tensor) -> Tensor:
    """The target's logit minus a shift; 0 on the ranks that do not hold the target."""
    if not logits.shape[1]:
        return torch.zeros_like(shift)
    shifted = logits.gather(1, columns.clamp(min=0)[:, None]).squeeze(1) - shift
    return torch.where(columns >= 0, shifted, 0)


def _minus_onehot(grad: Tensor, columns: Tensor) -> Tensor:
    """Subtract 1 at one column of each row, in place; at none where the column is -1."""
    rows = (columns >= 0).nonzero().squeeze(1)
    grad[rows, columns[rows]] -= 1
    return grad


class ParallelSpec(NamedTuple):
    """The loss of a class-parallel head, and where its classes are."""

    loss: ParallelLoss
    shard: ClassShard
    collectives: Collectives
    chunk_rows: int


def chunk_rows(n_rows: int, n_classes: int, n_features: int, user_choice: int | None) -> int:
    """Rows of a chunk, the same on all ranks: 64 MB of logits, or 3/5 of the size of the weights."""
    default = max(MIN_CHUNK_SIZE // n_classes, 3 * n_features // 5)
    return max(1, min(n_rows, user_choice or default))


def shard_logits(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logits of the classes of this rank, in float32 at least."""
    return in_float32(torch.nn.functional.linear(features, weight, bias))


@torch.no_grad()
def solve(
    inputs: HeadInputs, spec: ParallelSpec, needs: NeedsGrad, statistics: Any = None
) -> tuple[Any, HeadGradients]:
    """The loss's statistics of all rows, and this rank's part of the gradients of Σ coefficient·value.

    With the statistics of an earlier pass, only gradients are computed, without communication.
    """
    with torch.autocast(inputs.features.device.type, enabled=False):
        accumulator = GradientAccumulator(inputs, needs)
        chunks: list[Any] = []
        rows = torch.arange(len(inputs.features), device=inputs.features.device)
        if statistics is not None:
            rows = rows[statistics.active]
        for chunk in rows.split(spec.chunk_rows):
            logits = shard_logits(inputs.features[chunk], inputs.weight, inputs.bias)
            target = inputs.target[chunk]
            if statistics is None:
                chunks.append(spec.loss.statistics(logits, target, spec.shard, spec.collectives))
                current = chunks[-1]
            else:
                current = type(statistics)(*(tensor[chunk] for tensor in statistics))
            if any(needs) and spec.shard.size:
                for block in spec.loss.gradient_blocks(logits, target, current, spec.shard):
                    accumulator.add(chunk[block.rows], block.columns, block.grad)
        if statistics is None:
            statistics = type(chunks[0])(*map(torch.cat, zip(*chunks, strict=True)))
        return statistics, accumulator.result()
