"""`margin_softmax.py` for a chunk of rows on CPU, where values can be read: each row costs what it needs.

p_t alone sorts most rows, without reading a single opponent (`MarginRule` has the bounds):

    won     no opponent can reach the threshold: loss 0, gradient 0
    plain   nothing is discarded: softmax
    scan    the rows in between: compare the strongest opponent with τ. In training, these are a quarter to
            half of the rows, and most turn out won: a trained row stays just past the margin

Memory traffic dominates the cost: fresh (n, C) temporaries (page faults), masks, torch.exp of large negative
numbers, and scattered rows (`docs/losses.md` has the figures). Therefore all chunks share a workspace, a
shift and a threshold replace the mask, softmax computes the exp, and all threads touch the gradient first.
"""

import math
import threading
from typing import NamedTuple

import torch
from torch import Tensor

from sparring.losses.kernels.margin_softmax_dense import dense_rows, is_dense
from sparring.losses.kernels.modes import at_least_float32
from sparring.losses.kernels.rule import MarginRule

_BELOW_ZERO = -1e-45  # the float32 next to 0: torch.threshold keeps values above it, so 0 stays


class Workspace(threading.local):
    """Buffers that all chunks share, one set per thread: fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def rows(self, name: str, n_rows: int, n_classes: int, dtype: torch.dtype) -> Tensor:
        """Return an uninitialised (n_rows, n_classes) view of a buffer."""
        size = n_rows * n_classes
        buffer = self.buffers.get((name, dtype))
        if buffer is None or buffer.numel() < size:
            with torch.inference_mode(False):  # an inference tensor could not be written to in training
                buffer = self.buffers[name, dtype] = torch.empty(size, dtype=dtype)
        return buffer[:size].view(n_rows, n_classes)


workspace = Workspace()


def forget_workspace() -> None:
    """Free the buffers of this thread: up to 16 MB, and 512 MB more after a fused head."""
    workspace.buffers.clear()


class ActiveRows(NamedTuple):
    """The losses of a chunk of n rows, and the gradients of its m active rows."""

    value: Tensor  # (n,)
    active: Tensor  # (n,) bool
    conceded: Tensor  # (n,) bool
    rows: Tensor | None  # (m,) active rows, plain rows first; None: all rows are plain
    n_plain: int  # number of rows that keep every class
    grad: Tensor  # (m, C) ∂value/∂logits of the active rows


def chunk(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, grad: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, active and conceded of some rows, and write gradients to `grad`, if not None. C > 1."""
    n_rows, n_classes = logits.shape
    dtype = at_least_float32(logits.dtype)
    with_grad = grad is not None
    out = workspace.rows("rows", n_rows, n_classes, dtype) if grad is None else grad
    if is_dense(n_classes, rule, dtype):
        dense = dense_rows(logits.to(dtype), target, valid, rule, out, with_grad=with_grad)
        if dense is not None:
            return dense
    work = workspace.rows("logp", n_rows, n_classes, dtype)
    result = active_rows(logits, target, valid, rule, work, out, with_grad=with_grad, touch=with_grad)
    if grad is not None and result.rows is not None:
        grad.zero_().index_add_(0, result.rows, result.grad)  # index_copy_ takes three times as long
    return result.value, result.active, result.conceded


def active_rows(
    logits: Tensor,
    target: Tensor,
    valid: Tensor,
    rule: MarginRule,
    logp: Tensor,
    out: Tensor,
    *,
    with_grad: bool = True,
    touch: bool = False,
) -> ActiveRows:
    """Compute the losses of all rows, and the gradients of active rows. logits (n, C), C > 1.

    Args:
        logp, out: Two (n, C) buffers to work in; one of them holds the gradients in the end. `out` may be the
            logits themselves, if they are not needed any more.
        touch: Write to `out` first, with all threads. Set it if `out` is fresh memory.
    """
    index = target[:, None]
    logp_t = torch.log_softmax(logits, dim=1, dtype=logp.dtype, out=logp).gather(1, index)
    conceded = torch.zeros_like(valid)
    rivals: Tensor | None = None  # log p of the strongest opponents
    if rule.concedes and (logp_t < rule.concede_bound()).any():
        rivals = _strongest_opponents(logp, index, logp_t)
        conceded = rule.conceded(logp_t, rivals).squeeze(1) & valid
        valid = valid & ~conceded  # from here on a conceded row is like an ignored one
    lower, upper = rule.bounds()
    if logp_t.max() <= lower and valid.all():  # all rows are plain: an untrained model, or warm-up
        if with_grad:
            _softmax_minus_onehot(logp, index, out=out)
        return ActiveRows(-logp_t.squeeze(1), valid.clone(), conceded, None, len(logp), out)

    undecided = (logp_t > upper).logical_not_().squeeze(1).logical_and_(valid)
    plain = (
        (logp_t > lower).logical_not_().squeeze(1).logical_and_(undecided)
    )  # includes NaN, which stays NaN
    value = torch.where(plain, -logp_t.squeeze(1), 0)
    scan = (undecided ^ plain).nonzero().squeeze(1)
    plain_rows = plain.nonzero().squeeze(1)
    if touch:
        out.zero_()
    tau = rule.threshold(logp_t.index_select(0, scan))
    rival = tau
    if len(scan):
        rivals = _strongest_opponents(logp, index, logp_t) if rivals is None else rivals
        rival = rivals.index_select(0, scan)
        strong = (rival >= tau).squeeze(1).nonzero().squeeze(1)
        scan, tau, rival = scan[strong], tau[strong], rival[strong]
    # gather log p of the active rows into `out`, and write their gradients where log p was
    n_plain = len(plain_rows)
    rows = torch.cat([plain_rows, scan])
    index = index.index_select(0, rows)
    logp_active = torch.index_select(logp, 0, rows, out=out[: len(rows)])
    grad = logp[: len(rows)]
    if len(scan):
        scan_value = _scan(
            logp_active[n_plain:],
            index[n_plain:],
            logp_t.index_select(0, scan),
            tau,
            rival,
            out=grad[n_plain:],
        )
        value.index_copy_(0, scan, scan_value)
    if with_grad:
        _softmax_minus_onehot(logp_active[:n_plain], index[:n_plain], out=grad[:n_plain])
    return ActiveRows(value, plain.index_fill_(0, scan, True), conceded, rows, n_plain, grad)


def _strongest_opponents(logp: Tensor, index: Tensor, logp_t: Tensor) -> Tensor:
    """Return log p of the strongest opponent of each row, (n, 1).

    The targets are set to -inf meanwhile. That is faster than gathering the rows that need it.
    """
    rivals = logp.scatter_(1, index, -torch.inf).amax(1, keepdim=True)
    logp.scatter_(1, index, logp_t)
    return rivals


def _scan(logp: Tensor, index: Tensor, logp_t: Tensor, tau: Tensor, rival: Tensor, *, out: Tensor) -> Tensor:
    """Return the losses of scanned rows, and write q − onehot to `out`. Overwrites `logp`."""
    least = math.log(
        torch.finfo(logp.dtype).eps / logp.shape[1]
    )  # all classes below sum to less than rounding
    shift = tau.clamp(min=least)  # so that the difference keeps its digits
    q = torch.softmax(torch.threshold_(logp.sub_(shift), _BELOW_ZERO, -torch.inf), dim=1, out=out)
    # −log q_t through the largest, (peak − log p_t) + log Σ exp(log p_i − peak): q_t itself might underflow
    value = torch.maximum(rival, logp_t) - logp_t - q.amax(1, keepdim=True).log_()
    q.scatter_add_(1, index, torch.full_like(value, -1))
    return value.squeeze(1)


def _softmax_minus_onehot(logp: Tensor, index: Tensor, *, out: Tensor) -> None:
    """p − onehot by the kernel of F.cross_entropy's backward, for identical bits."""
    out.zero_().scatter_(1, index, -1)
    torch.ops.aten._log_softmax_backward_data.out(out, logp, 1, logp.dtype, out=out)
