"""What a fused pass has to know besides tensors, and who does the work."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparring.losses.as_softmax import as_logit_rows, as_softmax_rows
from sparring.losses.base import RowFunction
from sparring.losses.checks import check_range
from sparring.losses.kernels.rule import SOFTMAX_RULE, Rule, logit_rule, probability_rule
from sparring.losses.rows import RowLosses
from sparring.losses.softmax import softmax_rows

IMPLS = ("auto", "torch", "triton")

# the losses of `strong.py`: by the name of their setting, since an operator takes plain numbers
RULES: dict[RowFunction, tuple[str | None, Callable[..., Rule]]] = {
    softmax_rows: (None, lambda: SOFTMAX_RULE),
    as_softmax_rows: ("delta", probability_rule),
    as_logit_rows: ("margin", lambda margin: logit_rule(check_range("margin", margin, 0))),
}


class Head(NamedTuple):
    """A loss on top of a linear layer."""

    row_function: RowFunction
    settings: dict[str, Any]  # of the row function: plain numbers
    ignore_index: int
    dtype: torch.dtype  # of the products
    impl: str  # "torch" or "triton"
    chunk_rows: int | None  # None: from the shapes

    def rows(self, logits: Tensor, target: Tensor) -> RowLosses:
        return self.row_function(logits, target, ignore_index=self.ignore_index, **self.settings)

    def rule(self) -> Rule | None:
        """The threshold that decides between opponents, where one does."""
        if self.row_function not in RULES:
            return None
        return RULES[self.row_function][1](*self.settings.values())


def choose_impl(impl: str, *, device: str, dtype: torch.dtype, has_rule: bool, why_not: str | None) -> str:
    """Who makes a chunk's losses and gradients: "torch" or "triton".

    "auto" takes Triton on a CUDA device where it can run. A choice of Triton that cannot run is an error that says why: `why_not` is
    the reason found on this machine, None where there is none.
    """
    if impl not in IMPLS:
        raise ValueError(f"impl must be one of {', '.join(IMPLS)}; got {impl!r}")
    if not has_rule:
        why_not = "it knows softmax, AS-Softmax and the logit-margin variant only"
    elif dtype == torch.float64:
        why_not = "its arithmetic is float32, and the input is float64"
    if impl == "triton" and why_not is not None:
        raise ValueError(f'impl="triton" cannot run here: {why_not}. impl="torch" can, "auto" takes what can')
    if impl == "triton" or (impl == "auto" and device == "cuda" and why_not is None):
        return "triton"
    return "torch"


def find_impl(impl: str, x: Tensor, dtype: torch.dtype, row_function: RowFunction) -> str:
    """`choose_impl` for an input and what this machine has; asked about Triton only where it might be taken."""
    might = impl == "triton" or (impl == "auto" and x.device.type == "cuda")
    why_not = why_no_triton(str(x.device)) if might else None
    return choose_impl(
        impl, device=x.device.type, dtype=dtype, has_rule=row_function in RULES, why_not=why_not
    )


def why_no_triton(device: str) -> str | None:
    """Why Triton kernels cannot run on a device ("cpu", "cuda:0"); None where they can."""
    return _why_no_triton(device)


# what torch.compiler.assume_constant_result does, without importing torch's compiler for everybody
why_no_triton._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _why_no_triton(device: str) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    if not device.startswith("cuda"):
        return (
            f"the input is on {device}, and Triton needs a CUDA device (or TRITON_INTERPRET=1, to try it out)"
        )
    if torch.version.hip is None and (capability := torch.cuda.get_device_capability(device)) < (8, 0):
        return f"this GPU has compute capability {capability[0]}.{capability[1]}, and the kernels need 8.0"
    return None
