"""The equation of `margin_softmax.py` in torch operations, and the loop over chunks of rows.

`compute_rows` stores no (N, C) tensor but the gradient. On CPU, `margin_softmax_cpu.py` computes a chunk;
elsewhere the equation itself does, which never syncs with the device.
"""

import torch
from torch import Tensor

from sparring.losses.kernels import margin_softmax_cpu
from sparring.losses.kernels.modes import at_least_float32, in_float32
from sparring.losses.kernels.rule import MarginRule


def margin_log_softmax(logits: Tensor, target: Tensor, rule: MarginRule) -> tuple[Tensor, Tensor, Tensor]:
    """Return log q over strong opponents (-inf for the others), log p, and τ. The mask has no gradient."""
    logp = torch.log_softmax(in_float32(logits), dim=1)  # (N, C)
    tau = rule.threshold(logp.detach().gather(1, target[:, None]))  # (N, 1)
    logq = torch.log_softmax(logp.masked_fill(logp.detach() < tau, -torch.inf), dim=1)  # (N, C)
    return logq, logp, tau


def equation(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return value, active and conceded of each row, and log q."""
    logq, logp, tau = margin_log_softmax(logits, target, rule)
    logq_t, logp_t = (x.gather(1, target[:, None]) for x in (logq, logp))
    value = -torch.where(tau == -torch.inf, logp_t, logq_t).squeeze(1)
    conceded = _conceded(logp.detach(), logp_t.detach().squeeze(1), valid, rule)
    n_opponents = logp.shape[1] - 1 - (logp.detach() < tau).sum(1)
    active = valid & ~conceded & ((n_opponents > 0) | logp_t.isnan().squeeze(1))
    return torch.where(active, value, 0), active, conceded, logq


def _conceded(logp: Tensor, logp_t: Tensor, valid: Tensor, rule: MarginRule) -> Tensor:
    if not rule.concedes or logp.shape[1] == 1:
        return torch.zeros_like(valid)
    return rule.conceded(logp_t, logp.amax(1)) & valid


def gradient(logits: Tensor, target: Tensor, active: Tensor, rule: MarginRule) -> Tensor:
    """∂value/∂logits = q − onehot(target), 0 for rows that are not active. Differentiable."""
    logq = margin_log_softmax(torch.where(active[:, None], logits, 0), target, rule)[0]
    onehot = torch.zeros_like(logq).scatter(1, target[:, None], 1)
    return torch.where(active[:, None], logq.exp() - onehot, 0)


def chunk(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, grad: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, active and conceded of some rows, and write their gradients to `grad`, if not None."""
    index = target[:, None]
    if rule.keeps_all():
        logq = torch.log_softmax(in_float32(logits), dim=1)
        logp_t = logq.gather(1, index).squeeze(1)
        conceded = _conceded(logq, logp_t, valid, rule)
        active = valid & ~conceded
        value = torch.where(active, -logp_t, 0)
    else:
        value, active, conceded, logq = equation(logits, target, valid, rule)
    if grad is not None:  # q − onehot(target), by the kernel of F.cross_entropy's backward
        minus_onehot = torch.zeros_like(logq).scatter_(1, index, -active.to(logq.dtype)[:, None])
        gradients = torch.ops.aten._log_softmax_backward_data(minus_onehot, logq, 1, logq.dtype)
        torch.where(active[:, None], gradients, logq.new_zeros(()), out=grad)  # an ignored row may hold NaN
    return value, active, conceded


def compute_rows(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, with_grad: bool, on_cpu: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return value, active and conceded of all rows, chunk by chunk, and their gradients, if `with_grad`."""
    grad = logits.new_empty(logits.shape if with_grad else 0, dtype=at_least_float32(logits.dtype))
    size = _rows_per_chunk(*logits.shape, on_cpu=on_cpu)
    compute = margin_softmax_cpu.chunk if on_cpu else chunk
    if size >= len(logits):
        return *compute(logits, target, valid, rule, grad if with_grad else None), grad
    chunks = zip(*(x.split(size) for x in (logits, target, valid)), strict=True)
    results = [
        compute(x, t, v, rule, grad[i * size : (i + 1) * size] if with_grad else None)
        for i, (x, t, v) in enumerate(chunks)
    ]
    value, active, conceded = (torch.cat(part) for part in zip(*results, strict=True))
    return value, active, conceded, grad


def _rows_per_chunk(n_rows: int, n_classes: int, *, on_cpu: bool) -> int:
    if on_cpu:  # about 8 MB in float32: large enough for the work per call, small enough for the cache
        return max(1, 2**21 // n_classes)
    return max(1, 2**20 // n_classes, -(-n_rows // 8))  # few kernel launches
