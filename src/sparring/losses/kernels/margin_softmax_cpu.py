"""The loss of `strong.py` for a chunk of rows on CPU, where looking at values is free: each row pays for what it needs.

p_t alone sorts the rows, mostly without a look at a single opponent (`Rule` says where the bounds lie):

    won     no opponent can reach the threshold: loss 0, gradient 0
    plain   nothing is discarded: softmax
    scan    the rows between: compare the strongest opponent with τ. In training these are many, a quarter to a half, and most of
            them turn out won: a trained row stays just past the margin

Passes over memory are what costs here. The slow ones are fresh (n, C) temporaries (page faults), comparing into a mask and
filling from it, torch.exp of large negative numbers, and scattering rows; `docs/losses.md` has the figures. Hence a
workspace for all chunks, a shift and a threshold instead of a mask, softmax's own exp, and a gradient whose memory all threads touch first.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import torch
from torch import Tensor

from sparring.losses.base import at_least_float32
from sparring.losses.kernels.rule import Rule

_BELOW_ZERO = -1e-45  # the float32 next to 0: torch.threshold keeps what is above it, so 0 stays


class Workspace(threading.local):
    """Buffers that all chunks of all calls share, one set a thread: fresh memory costs more than the arithmetic on it."""

    def __init__(self) -> None:
        self._flat: dict[tuple[str, torch.dtype], Tensor] = {}

    def rows(self, name: str, n_rows: int, n_classes: int, dtype: torch.dtype) -> Tensor:
        """An uninitialised (n_rows, n_classes) view of the buffer."""
        flat = self._flat.get((name, dtype))
        if flat is None or flat.numel() < n_rows * n_classes:
            with torch.inference_mode(
                False
            ):  # a buffer made in inference mode could not be written to outside of it
                flat = self._flat[name, dtype] = torch.empty(n_rows * n_classes, dtype=dtype)
        return flat[: n_rows * n_classes].view(n_rows, n_classes)

    def forget(self) -> None:
        self._flat.clear()


workspace = Workspace()


def forget_workspace() -> None:
    """Give this thread's buffers back, up to 16 MB, and 512 MB more where a fused head was at work; the next call makes new ones."""
    workspace.forget()


class Fight(NamedTuple):
    """What a chunk came to."""

    value: Tensor  # (n,)
    active: Tensor  # (n,)
    rows: (
        Tensor | None
    )  # (m,) the rows that fight, those that keep every class first; None: all rows do, and keep every class
    n_plain: int  # how many keep every class
    grad: Tensor  # (m, C) ∂value/∂logits of those rows


def chunk(
    logits: Tensor, target: Tensor, valid: Tensor, rule: Rule, grad: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Value and active of the rows; their gradients into `grad`, if given. logits (n, C), C > 1."""
    (n_rows, n_classes), dtype = logits.shape, at_least_float32(logits.dtype)
    logp = workspace.rows("logp", n_rows, n_classes, dtype)
    out = workspace.rows("rows", n_rows, n_classes, dtype) if grad is None else grad
    fought = fight(logits, target, valid, rule, logp, out, with_grad=grad is not None, touch=grad is not None)
    if grad is not None and fought.rows is not None:
        grad.zero_().index_add_(0, fought.rows, fought.grad)  # index_copy_ takes three times as long
    return fought.value, fought.active


def fight(
    logits: Tensor,
    target: Tensor,
    valid: Tensor,
    rule: Rule,
    logp: Tensor,
    out: Tensor,
    *,
    with_grad: bool = True,
    touch: bool = False,
) -> Fight:
    """Losses of all rows, and gradients of those that fight. logits (n, C), C > 1.

    Works in `logp` and `out`, two (n, C) buffers; the gradients lie in one of them. `out` may be the logits themselves, if nobody needs
    them any more. `touch`: write to `out` first, with all threads, since it is fresh memory.
    """
    index = target[:, None]
    logp_t = torch.log_softmax(logits, dim=1, dtype=logp.dtype, out=logp).gather(1, index)
    lower, upper = rule.bounds()
    if logp_t.max() <= lower and valid.all():  # all plain: an untrained model, or warm-up
        if with_grad:
            _softmax_minus_onehot(logp, index, out=out)
        return Fight(-logp_t.squeeze(1), valid.clone(), None, len(logp), out)

    fights = (logp_t > upper).logical_not_().squeeze(1).logical_and_(valid)
    plain = (logp_t > lower).logical_not_().squeeze(1).logical_and_(fights)  # NaN comes here, and stays NaN
    value = torch.where(plain, -logp_t.squeeze(1), 0)
    scan, rows = (fights ^ plain).nonzero().squeeze(1), plain.nonzero().squeeze(1)
    if touch:
        out.zero_()
    scan, tau, rival = _lost(logp, index, logp_t, scan, rule)
    # the rows that fight: gathered into `out`, worked on, and put where log p was
    n_plain, rows = len(rows), torch.cat([rows, scan])
    index = index.index_select(0, rows)
    fighting, done = torch.index_select(logp, 0, rows, out=out[: len(rows)]), logp[: len(rows)]
    if len(scan):
        value.index_copy_(
            0,
            scan,
            _scan(
                fighting[n_plain:],
                index[n_plain:],
                logp_t.index_select(0, scan),
                tau,
                rival,
                out=done[n_plain:],
            ),
        )
    if with_grad:
        _softmax_minus_onehot(fighting[:n_plain], index[:n_plain], out=done[:n_plain])
    return Fight(value, plain.index_fill_(0, scan, True), rows, n_plain, done)


def _lost(
    logp: Tensor, index: Tensor, logp_t: Tensor, scan: Tensor, rule: Rule
) -> tuple[Tensor, Tensor, Tensor]:
    """Which of the rows to scan have an opponent at or above τ, their τ, and their strongest opponent.

    The strongest is found for all rows, without the targets, which then come back: quicker than gathering the rows that ask for it.
    """
    tau = rule.threshold(logp_t.index_select(0, scan))
    if not len(scan):
        return scan, tau, tau
    rival = logp.scatter_(1, index, -torch.inf).amax(1, keepdim=True).index_select(0, scan)
    logp.scatter_(1, index, logp_t)
    lost = (rival >= tau).squeeze(1).nonzero().squeeze(1)
    return scan[lost], tau[lost], rival[lost]


def _scan(logp: Tensor, index: Tensor, logp_t: Tensor, tau: Tensor, rival: Tensor, *, out: Tensor) -> Tensor:
    """Loss of lost rows; q − onehot into `out`. Uses up `logp`."""
    least = math.log(
        torch.finfo(logp.dtype).eps / logp.shape[1]
    )  # all classes below it together are less than rounding
    shift = tau.clamp(min=least)  # so that the difference keeps its digits
    q = torch.softmax(torch.threshold_(logp.sub_(shift), _BELOW_ZERO, -torch.inf), dim=1, out=out)
    # −log q_t by way of the largest, (peak − log p_t) + log Σ exp(log p_i − peak): q_t itself might underflow
    value = torch.maximum(rival, logp_t) - logp_t - q.amax(1, keepdim=True).log_()
    q.scatter_add_(1, index, torch.full_like(value, -1))
    return value.squeeze(1)


def _softmax_minus_onehot(logp: Tensor, index: Tensor, *, out: Tensor) -> None:
    """p − onehot through the kernel of F.cross_entropy's own backward: the same bits."""
    out.zero_().scatter_(1, index, -1)
    torch.ops.aten._log_softmax_backward_data.out(out, logp, 1, logp.dtype, out=out)
