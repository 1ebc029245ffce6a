"""The passes over chunks, and how autograd and torch.compile see them.

Forward finds losses and gradients together, as if the losses were to be averaged or summed. Backward looks at what comes from above: a
multiple of that scales what was found; anything else is a second pass over the rows that still fight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparring.heads.chunk_kernels import outcome
from sparring.heads.dispatch import RULES, Head
from sparring.heads.gradients import Gradients, Needs
from sparring.heads.unfused import batched_gradients, unfused_rows, valid_rows
from sparring.losses.base import at_least_float32, in_autograd_vmap, in_forward_mode, in_vmap
from sparring.losses.checks import check_class_values
from sparring.losses.kernels import margin_softmax_cpu as strong_cpu
from sparring.losses.rows import RowLosses

CHUNK_ROWS = 230
CHUNK_SIZE = 2**22  # logits, at least
KEPT_SIZE = 2**26  # logits: larger buffers are made anew for each call
LINE = (
    16  # numbers of a line of the cache: a product is up to a quarter slower where rows do not begin on one
)
PART_ROWS = 32
BLOCK_CLASSES = (
    512  # in one product on CPU: up to a tenth faster than all of them, since they stay in the cache
)


class Found(NamedTuple):
    """What the forward pass found besides the losses."""

    active: Tensor  # (N,)
    input: Tensor  # (N, H) gradients of Σ coefficient·value, or empty
    weight: Tensor  # (C, H)
    bias: Tensor  # (C,)


def fused_rows(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    head: Head,
    of_rows: Tensor | None = None,
    reduction: str = "mean",
) -> RowLosses:
    """`head.rows(F.linear(x, weight, bias), target)` without the logits. x (N, H), weight (C, H), target (N,), or (N, C) for label rows.

    `of_rows` (N,): class weights of the targets, if they are given. `reduction` says what to find gradients of: the mean or the sum;
    "none": each row may get a gradient of its own, so nothing is found ahead.
    """
    tensors = [each for each in (x, weight, bias) if each is not None]
    compiling = torch.compiler.is_compiling()
    plain = all(type(each) in (Tensor, nn.Parameter) for each in tensors) and x.device.type != "meta"
    traced = not plain or in_forward_mode() or (compiling and head.row_function not in RULES)
    if traced or 0 in x.shape or len(weight) < 2:
        return unfused_rows(head, target, x, weight, bias)._replace(weight=of_rows)
    valid = valid_rows(target, head.ignore_index)
    wanted = torch.is_grad_enabled() and reduction != "none"
    needs = Needs(*(wanted and each is not None and each.requires_grad for each in (x, weight, bias)))
    coefficient = (
        _expected(valid, of_rows, at_least_float32(head.dtype))
        if reduction == "mean" and head.dtype.itemsize > 2
        else of_rows
    )
    if compiling:
        from sparring.heads.custom_ops import plain_numbers, rows_operator  # they stand on this file

        value, active, *_ = rows_operator(x, weight, bias, target, coefficient, *plain_numbers(head, needs))
    else:
        value, active, *_ = _FusedRows.apply(x, weight, bias, target, coefficient, head, needs)
    return RowLosses(value, valid, active, of_rows)


def _expected(valid: Tensor, of_rows: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What `RowLosses.mean` sends back to each row. Not for half precision: it would lose digits there."""
    rows = RowLosses(valid.to(dtype), valid, valid, of_rows)
    total = rows.weighted().sum()
    return rows.weighted() / torch.where(total == 0, 1, total)


@torch.no_grad()
def solve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficient: Tensor | None,
    head: Head,
    needs: Needs,
) -> tuple[Tensor, Found]:
    """Losses, verdicts and gradients, chunk by chunk.

    One buffer holds all: the logits of a chunk, and before them the gradients of rows that fight, until these are half of it and worth the
    two products. So a chunk is the larger, the more is won. On CPU its rows are filled up with classes of probability 0.
    """
    with torch.autocast(x.device.type, enabled=False):
        x, weight, bias = (
            x.to(head.dtype),
            weight.to(head.dtype),
            bias if bias is None else bias.to(head.dtype),
        )
        n_rows, n_classes, dtype = len(x), len(weight), at_least_float32(x.dtype)
        if (
            target.dim() == 1
        ):  # torch.compile and vmap could not look; a class that is not there must not be one that fills up a row
            check_class_values(target, n_classes, head.ignore_index)
        step, size = chunk_sizes(x.shape, n_classes, head.chunk_rows, on_cpu=x.is_cpu)
        value, active = x.new_empty(n_rows, dtype=dtype), x.new_empty(n_rows, dtype=torch.bool)
        gradients = Gradients(x, weight, coefficient, needs)
        layer = Layer.of(weight, bias)
        held, work = (
            buffer(name, n, _width(n_classes, head, x), x) for name, n in (("held", step), ("part", size))
        )
        fighting: list[Tensor] = []
        n_fighting = start = 0
        while start < n_rows:
            chunk = x[start : start + _next(n_rows - start, step - n_fighting)]
            logits = held[n_fighting : n_fighting + len(chunk)]
            layer(chunk, out=logits[:, :n_classes])
            logits[:, n_classes:] = -torch.inf
            for part in logits.split(size):
                rows, n = slice(start, start + len(part)), len(part)
                value[rows], active[rows], blocks = outcome(part, target[rows], head, work[:n], any(needs))
                for block in blocks:
                    index = torch.arange(n, device=x.device) if block.rows is None else block.rows
                    if not len(index):
                        continue
                    if block.columns is not None:
                        gradients.add(index + start, block.columns, block.grad)
                    else:
                        _move(block.grad, held[n_fighting : n_fighting + len(index)], part, work)
                        fighting.append(index + start)
                        n_fighting += len(index)
                start += n
            if fighting and (2 * n_fighting > step or start == n_rows):
                gradients.add(torch.cat(fighting), None, held[:n_fighting, :n_classes])
                fighting, n_fighting = [], 0
        return value, Found(active, *gradients.all())


def _move(grad: Tensor, place: Tensor, part: Tensor, work: Tensor) -> None:
    """Gradients to their place, by way of `work` where they lie in the part's own memory and that is not it: the two may overlap."""
    if grad.data_ptr() == part.data_ptr():
        if grad.data_ptr() == place.data_ptr():
            return
        grad = work[: len(grad)].copy_(grad)
    place.copy_(grad)


def buffer(name: str, n_rows: int, n_classes: int, like: Tensor) -> Tensor:
    """An uninitialised buffer. On CPU one that the next call finds again, unless it is large: fresh memory costs a pass over it."""
    dtype = at_least_float32(like.dtype)
    if like.is_cpu and n_rows * n_classes <= KEPT_SIZE:
        return strong_cpu.workspace.rows(name, n_rows, n_classes, dtype)
    return like.new_empty(n_rows, n_classes, dtype=dtype)


def chunk_sizes(
    shape: Sequence[int], n_classes: int, chunk_rows: int | None, *, on_cpu: bool
) -> tuple[int, int]:
    """Rows of a chunk, enough for the products to be worth their passes over the weights; and of a part of it that is looked at at once:
    few megabytes on CPU, to stay in the cache, everything elsewhere. `shape`: of the input."""
    n_rows, n_features = shape
    wide = min(
        3 * n_features // 5, KEPT_SIZE // n_classes
    )  # the logits of a chunk take less than the weights, and may be kept
    large = max(CHUNK_ROWS, wide, CHUNK_SIZE // n_classes) if on_cpu else max(256, 2**24 // n_classes)
    step = min(max(1, n_rows), chunk_rows or large)
    return step, min(step, max(PART_ROWS, 2**20 // n_classes)) if on_cpu else step


def _next(n_left: int, n_free: int) -> int:
    """Rows of the next chunk: as many as there is room for, but no small one at the end."""
    return -(-n_left // 2) if n_free < n_left < 2 * n_free else min(n_left, n_free)


class Layer(NamedTuple):
    """A linear layer, some classes at a time."""

    weights: list[Tensor]  # (H, c)
    biases: list[Tensor]  # (c,), or none at all

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> Layer:
        size = BLOCK_CLASSES if weight.is_cpu else len(weight)
        return cls([part.T for part in weight.split(size)], [] if bias is None else list(bias.split(size)))

    def __call__(self, x: Tensor, *, out: Tensor) -> None:
        """The logits of some rows."""
        for i, part in enumerate(out.split(self.weights[0].shape[1], 1)):
            if x.dtype != out.dtype:
                part.copy_(
                    torch.addmm(self.biases[i], x, self.weights[i]) if self.biases else x @ self.weights[i]
                )
            elif self.biases:
                torch.addmm(self.biases[i], x, self.weights[i], out=part)
            else:
                torch.mm(x, self.weights[i], out=part)


def _width(n_classes: int, head: Head, x: Tensor) -> int:
    """Of the logits' buffers: on CPU rows begin on a line of the cache, where the loss can bear classes of probability 0."""
    return (
        -(-n_classes // LINE) * LINE
        if x.is_cpu and head.impl == "torch" and head.rule() is not None
        else n_classes
    )


def multiple_of(upstream: Tensor, found: Found, coefficient: Tensor | None, needs: Needs) -> Tensor | None:
    """k, where upstream = k · coefficient on every active row, to rounding, and the gradients were found in the forward pass."""
    if any(need and not len(grad) for need, grad in zip(needs, found[1:], strict=True)):
        return None
    rows = found.active.nonzero().squeeze(1)
    upstream = upstream.index_select(0, rows)
    if not len(rows):
        return upstream.new_zeros(())
    expected = torch.ones_like(upstream) if coefficient is None else coefficient.index_select(0, rows)
    pivot = expected.abs().argmax()
    scale = upstream[pivot] / expected[pivot]
    near = (upstream - scale * expected).abs() <= 4 * torch.finfo(upstream.dtype).eps * upstream.abs()
    return scale if near.all() else None


def pull_back(
    upstream: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficient: Tensor | None,
    found: Found,
    head: Head,
    needs: Needs,
    *,
    in_place: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Σ upstream·value; empty where not needed."""
    scale = multiple_of(upstream, found, coefficient, needs)
    if scale is not None:
        grads = [_scaled(grad.data, scale) if in_place else grad * scale for grad in found[1:]]
    else:
        rows = found.active.nonzero().squeeze(1)
        _, part = solve(
            x.index_select(0, rows),
            weight,
            bias,
            target.index_select(0, rows),
            upstream.index_select(0, rows),
            head,
            needs,
        )
        of_input = (
            x.new_zeros(x.shape, dtype=part.input.dtype).index_copy_(0, rows, part.input)
            if needs.input
            else part.input
        )
        grads = [of_input, part.weight, part.bias]
    return (
        grads[0].to(x.dtype),
        grads[1].to(weight.dtype),
        grads[2].to(weight.dtype if bias is None else bias.dtype),
    )


def _scaled(grad: Tensor, scale: Tensor) -> Tensor:
    """In place; not at all by 1, to rounding: a pass over the weight gradient is not free. Elsewhere than on CPU a look would cost more."""
    if grad.is_cpu and abs(scale.item() - 1) <= 4 * torch.finfo(scale.dtype).eps:
        return grad
    return grad.mul_(scale)


def _again(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficient: Tensor | None,
    found: Found,
    head: Head,
    spent: bool,
) -> Found:
    """What was found; found anew, to the bit, for a second backward through the same graph: the first gave it away."""
    there = Needs(*(len(grad) > 0 for grad in found[1:]))
    return solve(x, weight, bias, target, coefficient, head, there)[1] if spent and any(there) else found


def _each(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """The vmap rule of a function that looks at values: one by one."""

    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        def at(i: int) -> list[Any]:
            return [
                x.select(dim, i) if isinstance(dim, int) else x for x, dim in zip(args, in_dims, strict=True)
            ]

        parts = zip(*(function.apply(*at(i)) for i in range(info.batch_size)), strict=True)
        outputs = tuple(torch.stack(part) for part in parts)
        return outputs, (0,) * len(outputs)

    return vmap


class _FusedRows(torch.autograd.Function):
    """Row losses; then what backward needs: verdicts and gradients."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        coefficient: Tensor | None,
        head: Head,
        needs: Needs,
    ) -> tuple[Tensor, ...]:
        value, found = solve(x, weight, bias, target, coefficient, head, needs)
        return value, *found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.head, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output[1:])  # not the losses: they may be changed in place
        ctx.spent = False

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return (None,) * 7
        x, weight, bias, target, coefficient, *saved = ctx.saved_tensors
        found, needs = Found(*saved), Needs(*ctx.needs_input_grad[:3])
        if in_autograd_vmap(upstream):
            grads = batched_gradients(upstream, ctx.head, target, x, weight, bias)
        elif torch.is_grad_enabled() or in_vmap(
            upstream
        ):  # a second derivative may be wanted, or torch.func is at work
            grads = _FusedGradients.apply(
                upstream, x, weight, bias, target, coefficient, *found, ctx.head, needs, ctx.spent
            )
        else:
            found = _again(x, weight, bias, target, coefficient, found, ctx.head, ctx.spent)
            grads = pull_back(
                upstream, x, weight, bias, target, coefficient, found, ctx.head, needs, in_place=True
            )
            ctx.spent = True
        return (
            *(grad if need else None for grad, need in zip(grads, needs, strict=True)),
            None,
            None,
            None,
            None,
        )


class _FusedGradients(torch.autograd.Function):
    """The gradients, differentiable once more: by the unfused equation, logits and all."""

    @staticmethod
    def forward(
        upstream: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        coefficient: Tensor | None,
        *rest: Any,
    ) -> tuple[Tensor, ...]:
        *saved, head, needs, spent = rest
        found = _again(x, weight, bias, target, coefficient, Found(*saved), head, spent)
        return pull_back(upstream, x, weight, bias, target, coefficient, found, head, needs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:5])
        *_, ctx.head, ctx.needs, _ = inputs

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        first, *parameters, target = ctx.saved_tensors
        head, there = ctx.head, [each for each in parameters if each is not None]

        def value(*parameters: Tensor) -> Tensor:
            return unfused_rows(head, target, *parameters).value

        def gradients(upstream: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
            return torch.func.vjp(value, *parameters)[1](upstream)  # type: ignore[no-any-return]

        pull = torch.func.vjp(gradients, first, *there)[1]
        wanted = [
            g if need else torch.zeros_like(each)
            for g, need, each in zip(upstream, ctx.needs, there, strict=False)
        ]
        grads = pull(tuple(wanted))
        return *grads, *(None,) * (13 - len(grads))


_FusedRows.vmap = staticmethod(_each(_FusedRows))  # type: ignore[method-assign]
_FusedGradients.vmap = staticmethod(_each(_FusedGradients))  # type: ignore[method-assign]
