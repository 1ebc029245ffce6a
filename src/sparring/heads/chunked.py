"""The loop over chunks of rows: logits, losses and gradients without the (N, C) logits."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sparring.heads.chunk_kernels import solve_chunk
from sparring.heads.dispatch import HeadInputs, HeadSpec
from sparring.heads.gradients import GradientAccumulator, HeadGradients, NeedsGrad
from sparring.losses.checks import check_class_values
from sparring.losses.kernels import margin_softmax_cpu
from sparring.losses.kernels.modes import at_least_float32

# On CPU a chunk has at least MIN_CHUNK_ROWS rows and MIN_CHUNK_SIZE logits.
MIN_CHUNK_ROWS = 230
MIN_CHUNK_SIZE = 2**22
# Losses of a chunk are computed for parts of at least this many rows, which fit the CPU's cache.
MIN_PART_ROWS = 32
# Buffers of up to this many logits are kept for the next call.
MAX_KEPT_SIZE = 2**26
# Numbers in a cache line. Matrix products are up to a quarter slower where rows are not aligned to one.
CACHE_LINE = 16
# Classes in one product on CPU: up to a tenth faster than all at once, because they stay in the cache.
PRODUCT_CLASSES = 512


class FusedResult(NamedTuple):
    value: Tensor  # (N,)
    active: Tensor  # (N,)
    conceded: Tensor  # (N,)
    gradients: HeadGradients


@torch.no_grad()
def solve(inputs: HeadInputs, spec: HeadSpec, needs: NeedsGrad) -> FusedResult:
    """Compute row losses and gradients chunk by chunk.

    A single buffer is shared: its front collects gradients of active rows, its rear holds the current chunk's
    logits. When gradients fill half of the buffer, they are multiplied out and the front is free again, so
    chunks grow as fewer rows stay active. On CPU rows are padded with classes of probability 0.
    """
    with torch.autocast(inputs.features.device.type, enabled=False):
        inputs = inputs.cast(spec.dtype)
        features, target = inputs.features, inputs.target
        n_rows, n_classes = len(features), len(inputs.weight)
        if target.dim() == 1:
            # Not checked before under torch.compile and vmap. An index in the padding would be accepted.
            check_class_values(target, n_classes, spec.ignore_index)
        value = features.new_empty(n_rows, dtype=at_least_float32(features.dtype))
        active = features.new_empty(n_rows, dtype=torch.bool)
        conceded = torch.zeros_like(active)
        accumulator = GradientAccumulator(inputs, needs)
        layer = BlockedLinear(inputs.weight, inputs.bias)
        chunk_rows, part_rows = chunk_sizes(
            features.shape, n_classes, spec.chunk_rows, on_cpu=features.is_cpu
        )
        width = _padded_width(n_classes, spec, features)
        buffer = _workspace("held", chunk_rows, width, features)
        work = _workspace("part", part_rows, width, features)
        pending: list[Tensor] = []  # rows whose gradients are at the front of the buffer
        n_pending = 0
        start = 0
        while start < n_rows:
            n_chunk = _next_chunk(n_rows - start, chunk_rows - n_pending)
            logits = buffer[n_pending : n_pending + n_chunk]
            layer.write(features[start : start + n_chunk], out=logits[:, :n_classes])
            logits[:, n_classes:] = -torch.inf
            for part in logits.split(part_rows):
                rows = slice(start, start + len(part))
                result = solve_chunk(part, target[rows], spec, work[: len(part)], any(needs))
                value[rows] = result.value
                active[rows] = result.active
                if result.conceded is not None:
                    conceded[rows] = result.conceded
                for block in result.blocks:
                    indices = block.rows
                    if indices is None:
                        indices = torch.arange(len(part), device=features.device)
                    if not len(indices):
                        continue
                    if block.columns is not None:
                        accumulator.add(indices + start, block.columns, block.grad)
                    else:
                        _move(block.grad, buffer[n_pending : n_pending + len(indices)], part, work)
                        pending.append(indices + start)
                        n_pending += len(indices)
                start += len(part)
            if pending and (2 * n_pending > chunk_rows or start == n_rows):
                accumulator.add(torch.cat(pending), None, buffer[:n_pending, :n_classes])
                pending.clear()
                n_pending = 0
        return FusedResult(value, active, conceded, accumulator.result())


def _move(grad: Tensor, destination: Tensor, part: Tensor, work: Tensor) -> None:
    """Copy gradients to the front of the buffer.

    Gradients in the memory of ``part`` may overlap with the destination: they are copied to ``work`` first.
    """
    if grad.data_ptr() == part.data_ptr():
        if grad.data_ptr() == destination.data_ptr():
            return
        grad = work[: len(grad)].copy_(grad)
    destination.copy_(grad)


def chunk_sizes(
    shape: Sequence[int], n_classes: int, chunk_rows: int | None, *, on_cpu: bool
) -> tuple[int, int]:
    """Rows of a chunk, and of a part of a chunk; ``shape`` is that of the features.

    A chunk is large enough to make the products worth their passes over the weights. A part is what losses
    are computed for at once: a few megabytes on CPU, to stay in the cache; elsewhere the whole chunk.
    """
    n_rows, n_features = shape
    if not on_cpu:
        rows = min(max(1, n_rows), chunk_rows or max(256, 2**24 // n_classes))
        return rows, rows
    # The logits of a chunk take less memory than the weights, and no more than can be kept.
    wide = min(3 * n_features // 5, MAX_KEPT_SIZE // n_classes)
    rows = min(max(1, n_rows), chunk_rows or max(MIN_CHUNK_ROWS, wide, MIN_CHUNK_SIZE // n_classes))
    return rows, min(rows, max(MIN_PART_ROWS, 2**20 // n_classes))


def _next_chunk(n_left: int, n_free: int) -> int:
    """Rows of the next chunk: as many as fit, but the last two chunks have the same size."""
    return -(-n_left // 2) if n_free < n_left < 2 * n_free else min(n_left, n_free)


def _workspace(name: str, n_rows: int, n_classes: int, like: Tensor) -> Tensor:
    """An uninitialised buffer; on CPU later calls reuse it unless it is large, as new memory costs a pass."""
    dtype = at_least_float32(like.dtype)
    if like.is_cpu and n_rows * n_classes <= MAX_KEPT_SIZE:
        return margin_softmax_cpu.workspace.rows(name, n_rows, n_classes, dtype)
    return like.new_empty(n_rows, n_classes, dtype=dtype)


def _padded_width(n_classes: int, spec: HeadSpec, features: Tensor) -> int:
    """Columns of the buffers: on CPU a multiple of the cache line, where the loss accepts padding."""
    if features.is_cpu and spec.impl == "torch" and spec.rule() is not None:
        return -(-n_classes // CACHE_LINE) * CACHE_LINE
    return n_classes


class BlockedLinear:
    """A linear layer that computes some classes at a time."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.block_size = PRODUCT_CLASSES if weight.is_cpu else len(weight)
        self.weights = [block.T for block in weight.split(self.block_size)]
        self.biases = [] if bias is None else list(bias.split(self.block_size))

    def write(self, features: Tensor, *, out: Tensor) -> None:
        """Write the logits of some rows to ``out``."""
        for i, block in enumerate(out.split(self.block_size, 1)):
            same_dtype = block if features.dtype == out.dtype else None
            if self.biases:
                product = torch.addmm(self.biases[i], features, self.weights[i], out=same_dtype)
            else:
                product = torch.mm(features, self.weights[i], out=same_dtype)
            if same_dtype is None:
                block.copy_(product)
