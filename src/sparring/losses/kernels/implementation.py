"""Which form of the kernels runs: torch operations or Triton, and whether Triton's results are right.

Before Triton runs for a device and dtype for the first time, its kernels are compared with the equation in
float64 on a small input. A kernel that does not compile, or is wrong, is never used there.

`SPARRING_IMPL=torch` or `SPARRING_IMPL=triton` in the environment replaces every ``impl`` argument.
"""

import functools
import importlib.util
import math
import os
import warnings

import torch
from torch import Tensor

from sparring.losses.kernels import margin_softmax_chunks
from sparring.losses.kernels.rule import MarginRule, logit_rule, probability_rule

IMPLS = ("auto", "torch", "triton")
VARIABLE = "SPARRING_IMPL"
_TOLERANCE = 1e-4  # the arithmetic is float32
_DELTA = 0.3
_MARGIN = 2.0
_CLASSES = (37, 4099)  # less than a block of classes, and a whole one and a part


def choose_impl(impl: str, device: torch.device, dtype: torch.dtype, *, has_rule: bool) -> str:
    """Resolve ``impl`` to "torch" or "triton". "auto" is Triton on a CUDA device where it can run.

    Args:
        dtype: Of the matrix products, or of the logits.
        has_rule: Whether the loss has Triton kernels.

    Raises:
        ValueError: ``impl`` or the environment asks for Triton where it cannot run or is wrong.
    """
    forced = os.environ.get(VARIABLE)
    for name, value in (("impl", impl), (VARIABLE, forced)):
        if value is not None and value not in IMPLS:
            raise ValueError(f"{name} must be one of {', '.join(IMPLS)}; got {value!r}")
    wanted = forced or impl
    if wanted == "torch" or (wanted == "auto" and device.type != "cuda"):
        return "torch"
    problem = unsupported(dtype, has_rule=has_rule)
    if problem is not None and forced == "triton":
        return "torch"  # the variable speaks for all losses, also for those without kernels
    if problem is None:
        problem = triton_problem(str(device), dtype)
    if problem is None:
        return "triton"
    if wanted == "triton":
        source = f'{VARIABLE}="triton"' if forced else 'impl="triton"'
        raise ValueError(f'{source} cannot run here: {problem}. Use "torch" or "auto"')
    return "torch"


def unsupported(dtype: torch.dtype, *, has_rule: bool) -> str | None:
    """Why there is no Triton kernel for a loss or a dtype; None where there is one."""
    if not has_rule:
        return "it supports softmax, AS-Softmax and the logit-margin variant only"
    return "its arithmetic is float32, and the input is float64" if dtype == torch.float64 else None


def triton_problem(device: str, dtype: torch.dtype) -> str | None:
    """Why Triton kernels must not run on a device ("cpu", "cuda:0"); None where they can, and are right."""
    problem = _missing(device)
    if problem is None and device.startswith("cuda") and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured, in which they cannot be checked: call the loss once before"
    return _self_check(device, dtype) if problem is None else problem


# The effect of torch.compiler.assume_constant_result, which would import torch's compiler for every user.
triton_problem._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _missing(device: str) -> str | None:
    """What Triton lacks on a device."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    if not device.startswith("cuda"):
        return f"the input is on {device}, and Triton needs a CUDA device (or TRITON_INTERPRET=1 to debug)"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    if torch.version.hip is None and (capability := torch.cuda.get_device_capability(device)) < (8, 0):
        return f"this GPU has compute capability {capability[0]}.{capability[1]}, and the kernels need 8.0"
    return None


@functools.cache
def _self_check(device: str, dtype: torch.dtype) -> str | None:
    """Compare the kernels with the equation, once for a device and dtype. Warns where they are wrong."""
    problem = kernel_error(device, dtype)
    if problem is not None:
        warnings.warn(
            f"the Triton kernels are not used on {device} for {dtype}: {problem}. Torch operations replace "
            "them. Please report the output of `sparring doctor --json`",
            RuntimeWarning,
            stacklevel=3,
        )
    return problem


def kernel_error(device: str, dtype: torch.dtype) -> str | None:
    """What is wrong with the Triton kernels on a device for a dtype; None if they agree with the equation."""
    rules = {
        "AS-Softmax": probability_rule(_DELTA)._replace(concede=0.5),
        "the logit margin": logit_rule(_MARGIN),
    }
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch.no_grad(), torch.autocast(device.split(":")[0], enabled=False):
        for n_classes in _CLASSES:
            for name, rule in rules.items():
                try:
                    error = _difference(n_classes, rule, device, dtype)
                except Exception as exception:  # whatever a compiler or a driver raises
                    return f"they fail with {type(exception).__name__}: {str(exception).splitlines()[:1]}"
                if not error <= _TOLERANCE:  # also for NaN
                    return f"they are off by {error:.2g} for {name} with {n_classes} classes"
    return None


def _difference(n_classes: int, rule: MarginRule, device: str, dtype: torch.dtype) -> float:
    """The largest difference of losses, flags and gradients from the equation in float64."""
    from sparring.losses.kernels import margin_softmax_triton  # Triton is an optional dependency

    logits, target, valid = check_rows(n_classes, device, dtype)
    grad = torch.empty(logits.shape, device=device)
    exact_grad = torch.empty(logits.shape, device=device, dtype=torch.float64)
    result = margin_softmax_triton.chunk(logits, target, valid, rule, grad)
    expected = margin_softmax_chunks.chunk(logits.double(), target, valid, rule, exact_grad)
    pairs = zip((*result, grad), (*expected, exact_grad), strict=True)
    return float(torch.stack([(a.double() - b.double()).abs().max() for a, b in pairs]).max())


def check_rows(n_classes: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Won, active, conceded and ignored rows, and rows near the margins. No random numbers are drawn."""
    n_rows = 12
    positions = torch.arange(n_rows * n_classes, device=device, dtype=torch.float64)
    logits = torch.sin(positions * 1.7).mul_(4).round_().div_(2).reshape(n_rows, n_classes)
    target = torch.arange(n_rows + 4, device=device) * 7 % n_classes
    height = torch.arange(n_rows, device=device, dtype=torch.float64) * 2 - 3.75
    logits.scatter_(1, target[:n_rows, None], height[:, None])
    strong = slice(n_rows // 2, None, 2)
    logits[strong, n_classes - 1] = height[strong] - 0.5  # an opponent in the last block
    logits[1, 0] = height[1] + 12  # conceded
    logits = torch.cat([logits, _rows_near_the_margins(target[n_rows:], n_classes)])
    return logits.to(dtype), target, torch.arange(len(logits), device=device) != 3


def _rows_near_the_margins(target: Tensor, n_classes: int) -> Tensor:
    """Four rows with an opponent on each side of a margin, 2.5 % of it away: two rows for each rule.

    A kernel whose margin is wrong by 5 % keeps or discards one of them wrongly, also after rounding to 16
    bits. One opponent is the first class, the other the last one, which is in another block.
    """
    logits = torch.full((4, n_classes), -20.0, dtype=torch.float64, device=target.device)
    p_t = (1 + 2 * _DELTA) / 3  # of three classes whose margins are δ on average
    near = [math.log(p_t - _DELTA * factor) for factor in (0.975, 1.025)]
    triples = [(math.log(p_t), *near), (_MARGIN, 0.025 * _MARGIN, -0.025 * _MARGIN)]
    for row, (height, first, last) in enumerate(triple for triple in triples for _ in range(2)):
        logits[row, target[row]] = height
        logits[row, 0], logits[row, -1] = (first, last) if row % 2 else (last, first)
    return logits
