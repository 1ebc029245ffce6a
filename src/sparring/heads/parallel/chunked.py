"""The passes of a class-parallel head over chunks of rows: what the ranks tell each other, and what stays with each.

    logits of the own classes ─► max, Σ exp, the target's logit ─► (AS-Softmax: Σ exp and number of strong opponents) ─► gradients

An arrow is an all-reduce of a few numbers a row; Sparse-Softmax gathers k logits a row from each rank. Logits never leave their rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sparring.heads.gradients import Gradients, Needs
from sparring.heads.parallel.collectives import Wire
from sparring.heads.parallel.shards import Slice
from sparring.losses.base import in_float32
from sparring.losses.kernels.rule import Rule

CHUNK = 2**24  # logits that are held at once, at least
BLOCK = 2**15  # classes whose exponentials are


class Verdicts(NamedTuple):
    """Of every row, the same on all ranks; the rest is what gradients are made of, again if need be without a word between ranks."""

    value: Tensor  # (N,)
    active: Tensor  # (N,) bool
    rest: tuple[Tensor, ...]  # (N, …) each


class Block(NamedTuple):
    """∂value/∂logits of some rows and of some of the own classes; `columns` None: of all."""

    rows: Tensor
    columns: Tensor | None
    grad: Tensor


class Strong(NamedTuple):
    """Softmax, AS-Softmax and the logit-margin variant: opponents at or above a threshold stay."""

    rule: Rule
    num_classes: int

    def look(self, logits: Tensor, target: Tensor, wire: Wire, slice: Slice) -> Verdicts:
        mine = slice.local(target)
        peak = logits.amax(1) if logits.shape[1] else logits.new_full((len(logits),), -torch.inf)
        wire.max(peak)
        own = sum(
            ((part - peak[:, None]).exp_().sum(1) for part in logits.split(BLOCK, 1)), torch.zeros_like(peak)
        )
        total, of_target = wire.sum(torch.stack([own, _at(logits, mine, peak)]))
        log_total = total.log()
        logp_t = of_target - log_total
        tau = self.rule.threshold(logp_t)
        upper = self.rule.bounds()[1]
        value, mass = -logp_t, torch.zeros_like(tau)  # mass: log Σ p over those that stay
        active = torch.full_like(tau, self.num_classes > 1, dtype=torch.bool) & ~(
            (tau > -torch.inf) & (logp_t > upper)
        )
        contested = ((tau > -torch.inf) & active).nonzero().squeeze(1)
        if len(contested):
            logp = (logits[contested] - peak[contested, None]).sub_(log_total[contested, None])
            stays = _set(
                logp >= tau[contested, None], mine[contested], False
            )  # the target is no opponent of its own
            kept, n = wire.sum(torch.stack([logp.exp_().mul_(stays).sum(1), stays.sum(1).to(logp.dtype)]))
            value[contested] = torch.nn.functional.softplus(
                kept.log() - logp_t[contested]
            )  # log(p_t + kept) − log p_t
            mass[contested] = value[contested] + logp_t[contested]
            active[contested] = n > 0
        active |= value.isnan()  # of a single class, too
        return Verdicts(torch.where(active, value, 0), active, (peak, log_total, mass, tau))

    def blocks(self, logits: Tensor, target: Tensor, verdicts: Verdicts, slice: Slice) -> Iterator[Block]:
        peak, log_total, mass, tau = verdicts.rest
        mine = slice.local(target)
        contested = (verdicts.active & (tau > -torch.inf)).nonzero().squeeze(1)
        plain = (
            (verdicts.active & ~(tau > -torch.inf)).nonzero().squeeze(1)
        )  # and rows of NaN, which stay NaN
        if len(contested):
            logp = (logits[contested] - peak[contested, None]).sub_(log_total[contested, None])
            stays = _set(logp >= tau[contested, None], mine[contested], True)
            columns = stays.any(0).nonzero().squeeze(1)
            if len(columns):
                grad = (
                    logp.sub_(mass[contested, None])
                    .index_select(1, columns)
                    .exp_()
                    .mul_(stays.index_select(1, columns))
                )
                yield Block(contested, columns, _less_one(grad, _place(columns, mine[contested])))
        if len(plain) and logits.shape[1]:
            rows = logits if len(plain) == len(logits) else logits[plain]
            yield Block(
                plain,
                None,
                _less_one(rows.sub_(peak[plain, None]).sub_(log_total[plain, None]).exp_(), mine[plain]),
            )


class Top(NamedTuple):
    """Sparse-Softmax: the k largest logits of all ranks stay."""

    k: int

    def look(self, logits: Tensor, target: Tensor, wire: Wire, slice: Slice) -> Verdicts:
        top, classes = top_of_all(logits, self.k, wire, slice)
        peak = top[:, 0]
        value = (top - peak[:, None]).logsumexp(1) - wire.sum(_at(logits, slice.local(target), peak))
        active = (classes != target[:, None]).any(1) | value.isnan()
        return Verdicts(torch.where(active, value, 0), active, (classes, torch.softmax(top, 1)))

    def blocks(self, logits: Tensor, target: Tensor, verdicts: Verdicts, slice: Slice) -> Iterator[Block]:
        classes, q = verdicts.rest
        rows = verdicts.active.nonzero().squeeze(1)
        local, mine = slice.local(classes[rows]), slice.local(target[rows])
        columns = torch.cat([local[local >= 0], mine[mine >= 0]]).unique()
        if len(columns):
            grad = q.new_zeros(len(rows), len(columns))
            grad.scatter_add_(1, _place(columns, local).clamp(min=0), q[rows] * (local >= 0))
            yield Block(rows, columns, _less_one(grad, _place(columns, mine)))


Pass = Strong | Top


def top_of_all(logits: Tensor, k: int, wire: Wire, slice: Slice) -> tuple[Tensor, Tensor]:
    """The k largest logits of all ranks, (N, k), and their classes: k of each rank are told, no more.

    Ranks with fewer than k classes fill up with class -1 at -inf. A class masked with -inf counts as the least finite
    number until the choice is made, so that it comes before those.
    """
    least = torch.finfo(logits.dtype).min
    values = logits.new_full((len(logits), k), -torch.inf)
    classes = torch.full_like(values, -1, dtype=torch.long)
    n = min(k, logits.shape[1])
    if n:
        top, found = logits.topk(n, 1)
        values[:, :n], classes[:, :n] = top.clamp_(min=least), found + slice.start
    if wire.size > 1:
        every, names = (wire.gather(x).transpose(0, 1).flatten(1) for x in (values, classes))  # (N, p·k)
        values, place = every.topk(k, 1)
        classes = names.gather(1, place)
    return values.masked_fill_(values == least, -torch.inf), classes


def _place(columns: Tensor, classes: Tensor) -> Tensor:
    """Where among the columns classes are; -1 stays."""
    return torch.where(classes >= 0, torch.searchsorted(columns, classes.clamp(min=0)), -1)


def _set(x: Tensor, place: Tensor, value: bool) -> Tensor:
    """One number of each row that has it, in place."""
    rows = (place >= 0).nonzero().squeeze(1)
    x[rows, place[rows]] = value
    return x


def _at(logits: Tensor, mine: Tensor, less: Tensor) -> Tensor:
    """The target's logit less something, 0 on the ranks that do not have it."""
    if not logits.shape[1]:
        return torch.zeros_like(less)
    found = logits.gather(1, mine.clamp(min=0)[:, None]).squeeze(1) - less
    return torch.where(mine >= 0, found, 0)


def _less_one(grad: Tensor, place: Tensor) -> Tensor:
    """q − onehot(target), in place."""
    rows = (place >= 0).nonzero().squeeze(1)
    grad[rows, place[rows]] -= 1
    return grad


def chunk_rows(n_rows: int, num_classes: int, n_features: int, n_ranks: int, asked: int | None) -> int:
    """Rows of a chunk, the same on all ranks: 64 MB of logits, or three fifths of what the weights take, for the products to be worth their
    passes over these."""
    return max(1, min(n_rows, asked or max(CHUNK // -(-num_classes // n_ranks), 3 * n_features // 5)))


def own_logits(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Of the own classes, in float32 at least."""
    return in_float32(torch.nn.functional.linear(x, weight, bias))


class Job(NamedTuple):
    """What a pass has to know besides tensors."""

    how: Pass
    slice: Slice
    wire: Wire
    step: int  # rows of a chunk


@torch.no_grad()
def solve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficient: Tensor | None,
    job: Job,
    needs: Needs,
    known: Verdicts | None = None,
) -> tuple[Verdicts, tuple[Tensor, Tensor, Tensor]]:
    """Verdicts on all rows, and the own part of the gradients of Σ coefficient·value; with ``known`` verdicts only those, and silently."""
    with torch.autocast(x.device.type, enabled=False):
        gradients = Gradients(x, weight, coefficient, needs)
        found: list[Verdicts] = []
        rows = torch.arange(len(x), device=x.device)
        for part in (rows if known is None else rows[known.active]).split(job.step):
            logits, of_them = own_logits(x[part], weight, bias), target[part]
            verdicts = (
                job.how.look(logits, of_them, job.wire, job.slice) if known is None else _take(known, part)
            )
            found.append(verdicts)
            if any(needs):
                for block in job.how.blocks(logits, of_them, verdicts, job.slice):
                    gradients.add(part[block.rows], block.columns, block.grad)
        return known or _join(found), gradients.all()


def _take(verdicts: Verdicts, rows: Tensor) -> Verdicts:
    return Verdicts(verdicts.value[rows], verdicts.active[rows], tuple(each[rows] for each in verdicts.rest))


def _join(parts: list[Verdicts]) -> Verdicts:
    rest = zip(*(part.rest for part in parts), strict=True)
    return Verdicts(
        torch.cat([part.value for part in parts]),
        torch.cat([part.active for part in parts]),
        tuple(map(torch.cat, rest)),
    )
