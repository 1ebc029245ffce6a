"""What stands around every loss: checks, shapes, class weights, reduction, the module and the registry.

A loss file brings a pure row function, ``(N, C) logits, targets -> RowLosses``, and a module class of a few lines. The
functions here make of it what nn.CrossEntropyLoss makes of log-softmax.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from sparring.losses.checks import check_class_input, check_multilabel_input, under_autocast
from sparring.losses.rows import REDUCTIONS, RowLosses

RowFunction = Callable[..., RowLosses]


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def in_float32(logits: Tensor) -> Tensor:
    """Logits in float32 at least."""
    return logits.to(at_least_float32(logits.dtype))


def in_forward_mode() -> bool:
    """Whether forward-mode AD is active: `torch.func.jvp`, `jacfwd`, or a dual level of `torch.autograd.forward_ad`.

    The losses then run as differentiable torch operations. An autograd.Function with a `jvp` gives the right first
    derivative, but a second one that is wrong, without a word from torch, where forward mode is nested in itself.
    """
    return torch.autograd.forward_ad._current_level >= 0


def in_autograd_vmap(x: Tensor) -> bool:
    """Whether x is a batch of gradients under `is_grads_batched`: autograd has a vmap of its own, older than torch.func's."""
    return torch._C._functorch.is_legacy_batchedtensor(x)


def in_vmap(x: Tensor) -> bool:
    """Whether x is a batch of tensors inside of any vmap: nothing can be multiplied by it in place."""
    return in_autograd_vmap(x) or torch._C._functorch.is_batchedtensor(x)


def valid_targets(target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Targets that can be indexed with (0 where ignored), and which rows are valid."""
    valid = target != ignore_index
    return torch.where(valid, target, 0), valid


def row_weights(weight: Tensor, target: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
    """The class weight of each row's target, 0 where the row is ignored, whatever number the weight is."""
    return torch.where(valid, weight.to(dtype)[target], 0)


def class_last(input: Tensor) -> Tensor:
    """(C,), (N, C) or (N, C, d1, …) to (N, d1, …, C): one row of logits per target."""
    return input if input.dim() == 1 else input.movedim(1, -1)


def class_rows(
    row_function: RowFunction,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    **settings: Any,
) -> RowLosses:
    """Check and flatten nn.CrossEntropyLoss's shapes, (C,), (N, C) or (N, C, d1, …), to rows in the order of the target."""
    check_class_input(input, target, weight, ignore_index)
    logits = class_last(input)
    logits, target = logits.reshape(-1, logits.shape[-1]), target.reshape(-1).long()  # (rows, C), (rows,)
    rows = row_function(logits, target, ignore_index=ignore_index, **settings)
    if weight is None:
        return rows
    safe, valid = valid_targets(target, ignore_index)
    return rows._replace(weight=row_weights(weight, safe, valid, rows.value.dtype))


def multilabel_rows(
    row_function: RowFunction, input: Tensor, target: Tensor, ignore_index: int = -100, **settings: Any
) -> RowLosses:
    """Check and flatten (…, C) logits with (…, C) labels to rows."""
    check_multilabel_input(input, target, ignore_index)
    n_classes = input.shape[-1]
    return row_function(
        input.reshape(-1, n_classes), target.reshape(-1, n_classes), ignore_index=ignore_index, **settings
    )


def reduce(rows: RowLosses, reduction: str, input: Tensor, shape: torch.Size) -> Tensor:
    """Reduced loss in the dtype F.cross_entropy would give: float32 under autocast, else the input's."""
    loss = rows.reduce(reduction).to(at_least_float32(input.dtype) if under_autocast(input) else input.dtype)
    return loss.reshape(shape) if reduction == "none" else loss


def class_loss(
    row_function: RowFunction,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    **settings: Any,
) -> Tensor:
    rows = class_rows(row_function, input, target, weight, ignore_index, **settings)
    return reduce(rows, reduction, input, target.shape)


def multilabel_loss(
    row_function: RowFunction,
    input: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
    **settings: Any,
) -> Tensor:
    rows = multilabel_rows(row_function, input, target, ignore_index, **settings)
    return reduce(rows, reduction, input, target.shape[:-1])


class Loss(nn.Module):
    """A row function with its settings. Subclasses name both; everything else is shared."""

    name: ClassVar[str]
    row_function: ClassVar[RowFunction]
    setting_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")
        self.ignore_index = ignore_index
        self.reduction = reduction

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.setting_names}

    def rows(self, input: Tensor, target: Tensor) -> RowLosses:
        """The unreduced story: one loss per row, and which rows are valid, won or active."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        shown = {k: v for k, v in self.settings().items() if not isinstance(v, nn.Module)}
        shown |= {"ignore_index": self.ignore_index, "reduction": self.reduction}
        return ", ".join(f"{k}={v!r}" for k, v in shown.items())


class ClassLoss(Loss):
    """Base of the multi-class and token losses: called as nn.CrossEntropyLoss is.

    Shape:
        - input: ``(C,)``, ``(N, C)`` or ``(N, C, d1, …)`` logits
        - target: ``()``, ``(N,)`` or ``(N, d1, …)`` class indices; ``ignore_index`` is left out
        - output: a scalar, or the target's shape with ``reduction="none"``
    """

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.register_buffer("weight", weight)

    def rows(self, input: Tensor, target: Tensor) -> RowLosses:
        return class_rows(
            type(self).row_function, input, target, self.weight, self.ignore_index, **self.settings()
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return class_loss(
            type(self).row_function,
            input,
            target,
            self.weight,
            self.ignore_index,
            self.reduction,
            **self.settings(),
        )


class MultilabelLoss(Loss):
    """Base of the multi-label losses.

    Shape:
        - input: ``(…, C)`` logits
        - target: ``(…, C)`` labels, 0 or 1 in any dtype; ``ignore_index`` entries are left out, as if the class were not there
        - output: a scalar, or ``(…)`` with ``reduction="none"``. Predict with ``input > 0``.
    """

    def __init__(self, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(ignore_index, reduction)
        if ignore_index in (0, 1):
            raise ValueError(f"ignore_index must differ from the labels 0 and 1, got {ignore_index}")

    def rows(self, input: Tensor, target: Tensor) -> RowLosses:
        return multilabel_rows(type(self).row_function, input, target, self.ignore_index, **self.settings())

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return multilabel_loss(
            type(self).row_function, input, target, self.ignore_index, self.reduction, **self.settings()
        )


_REGISTRY: dict[str, type[Loss]] = {}
_L = TypeVar("_L", bound=type[Loss])


def register(name: str, row_function: RowFunction, *setting_names: str) -> Callable[[_L], _L]:
    """Class decorator: bind a row function and its settings to a module, and list it under a name."""

    def bind(cls: _L) -> _L:
        cls.name, cls.setting_names = name, setting_names
        cls.row_function = staticmethod(row_function)
        _REGISTRY[name] = cls
        return cls

    return bind


def list_losses() -> list[str]:
    """The names `make_loss` knows."""
    return sorted(_REGISTRY)


def find_loss(name: str) -> type[Loss]:
    """The class registered under a name."""
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), list_losses(), n=1)
        hint = f'; did you mean "{near[0]}"?' if near else "."
        raise ValueError(f'no loss named "{name}"{hint} Known: {", ".join(list_losses())}')
    return _REGISTRY[name]


def make_loss(name: str, **settings: Any) -> Loss:
    """A loss by name: ``make_loss("as-softmax", delta=0.3)``."""
    cls = find_loss(name)
    known = list(inspect.signature(cls).parameters)
    if unknown := [key for key in settings if key not in known]:
        raise ValueError(f'"{name}" has no setting {", ".join(unknown)}; it takes {", ".join(known)}')
    return cls(**settings)
