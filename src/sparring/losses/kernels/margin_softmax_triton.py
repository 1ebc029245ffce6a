"""`margin_softmax.py` for a chunk of rows in two Triton kernels. Imported only where Triton is selected.

Each program handles one row. The first kernel computes the largest logit and the log of the sum in one pass;
the rule computes the (n,) thresholds with torch; the second kernel computes the loss and the gradient.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparring.losses.kernels.rule import MarginRule

MAX_BLOCK = 4096


@triton.jit
def statistics_kernel(
    logits, target, peak_out, logsum_out, logp_t_out, stride, n_classes, BLOCK: tl.constexpr
):
    """Store the largest logit m, log Σ exp(o − m) and log p_t. +inf, or a row of -inf alone, gives NaN."""
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * stride
    offsets = tl.arange(0, BLOCK)
    peak = -float("inf")
    total = 0.0
    for start in range(0, n_classes, BLOCK):
        inside = start + offsets < n_classes
        o = tl.load(base + start + offsets, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(o, 0))
        shift = tl.where(
            higher == -float("inf"), 0.0, higher
        )  # masked classes alone: -inf − -inf would be NaN
        total = total * tl.exp(peak - shift) + tl.sum(tl.exp(o - shift), 0)
        peak = higher
    logsum = tl.log(total)
    o_t = tl.load(base + tl.load(target + row)).to(tl.float32)
    tl.store(peak_out + row, peak)
    tl.store(logsum_out + row, logsum)
    tl.store(logp_t_out + row, o_t - peak - logsum)


@triton.jit
def loss_kernel(
    logits,
    target,
    valid,
    peak_in,
    logsum_in,
    logp_t_in,
    tau_in,
    value_out,
    active_out,
    grad,
    stride,
    grad_stride,
    n_classes,
    WITH_GRAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store loss, active and q − onehot(target) of a row; all are 0 if it is won or ignored."""
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * stride
    offsets = tl.arange(0, BLOCK)
    t = tl.load(target + row)
    peak, logsum = tl.load(peak_in + row), tl.load(logsum_in + row)
    logp_t, tau = tl.load(logp_t_in + row), tl.load(tau_in + row)
    total = 0.0  # probability of the classes that stay: the strongest is one of them, so it is at least 1/C
    n_discarded = 0
    for start in range(0, n_classes, BLOCK):
        inside = start + offsets < n_classes
        logp = tl.load(base + start + offsets, mask=inside, other=0.0).to(tl.float32) - peak - logsum
        weak = inside & (logp < tau)  # false for NaN, which stays
        total += tl.sum(tl.where(inside & (weak == 0), tl.exp(logp), 0.0), 0)
        n_discarded += tl.sum(weak.to(tl.int32), 0)
    active = (tl.load(valid + row) != 0) & (n_discarded < n_classes - 1)
    log_total = tl.where(tau == -float("inf"), 0.0, tl.log(total))
    tl.store(value_out + row, tl.where(active, log_total - logp_t, 0.0))
    tl.store(active_out + row, active.to(tl.int8))
    if WITH_GRAD:
        grad_row = grad + row.to(tl.int64) * grad_stride
        for start in range(0, n_classes, BLOCK):
            inside = start + offsets < n_classes
            logp = tl.load(base + start + offsets, mask=inside, other=0.0).to(tl.float32) - peak - logsum
            q = tl.where(logp < tau, 0.0, tl.exp(logp - log_total)) - tl.where(start + offsets == t, 1.0, 0.0)
            tl.store(grad_row + start + offsets, tl.where(active, q, 0.0), mask=inside)


def chunk(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, grad: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, active and conceded of some rows, and write their gradients to `grad`, if not None.

    logits (n, C), C > 1, contiguous along the classes.
    """
    n_rows, n_classes = logits.shape
    peak, logsum, logp_t, value = (logits.new_empty(n_rows, dtype=torch.float32) for _ in range(4))
    active = torch.empty(n_rows, dtype=torch.int8, device=logits.device)
    size = {"BLOCK": min(MAX_BLOCK, triton.next_power_of_2(n_classes)), "num_warps": 8}
    statistics_kernel[(n_rows,)](logits, target, peak, logsum, logp_t, logits.stride(0), n_classes, **size)
    conceded = valid & rule.conceded(logp_t, -logsum) if rule.concedes else torch.zeros_like(valid)
    valid = valid & ~conceded
    tau = rule.threshold(logp_t)
    out = logits if grad is None else grad
    flags = {"WITH_GRAD": grad is not None, **size}
    tensors = (logits, target, valid.to(torch.int8), peak, logsum, logp_t, tau, value, active, out)
    loss_kernel[(n_rows,)](*tensors, logits.stride(0), out.stride(0), n_classes, **flags)
    return value, active.bool(), conceded
