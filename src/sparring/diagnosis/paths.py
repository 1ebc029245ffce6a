"""Every way to compute AS-Softmax, as functions of logits and targets that return a loss and a gradient."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sparring.diagnosis.report import OK, SKIPPED, WRONG, Finding
from sparring.diagnosis.twin import DELTA, HEAD_SHAPES, IGNORED, SHAPES, rows, twin
from sparring.functional import linear_as_softmax_loss
from sparring.heads.parallel import ClassParallelHead
from sparring.losses.as_softmax import ASSoftmaxLoss
from sparring.losses.base import valid_targets
from sparring.losses.kernels import margin_softmax_chunks
from sparring.losses.kernels.implementation import kernel_error, triton_problem
from sparring.losses.kernels.rule import probability_rule

HALF = 1e-2  # tolerance where a result is rounded to 16 bits
SINGLE = 2e-6
Path = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def check_paths(device: torch.device) -> Iterator[Finding]:
    """Judge every path on a device by the twin."""
    name = str(device)
    for title, path, dtype in (
        ("equation", equation, torch.float32),
        ("equation, float64", equation, torch.float64),
        ("loss", loss, torch.float32),
        ("loss, float64", loss, torch.float64),
        ("loss, bfloat16", loss, torch.bfloat16),
        ("loss, float16", loss, torch.float16),
        ("row losses", row_losses, torch.float32),
        ("autocast, bfloat16", autocast, torch.float32),
    ):
        yield judge(f"{title}, {name}", path, device, dtype)
    yield judge(f"fused head, {name}", fused_head("torch"), device, torch.float32, HEAD_SHAPES)
    yield from _triton(device)
    yield from _compiled(device)
    yield from _parallel(device)


def judge(
    name: str,
    path: Path,
    device: torch.device,
    dtype: torch.dtype,
    shapes: tuple[tuple[int, int], ...] = SHAPES,
) -> Finding:
    """Compare loss and gradient with the twin on all shapes."""
    tolerance = {torch.float64: 1e-6, torch.float32: SINGLE}.get(dtype, HALF)
    if "autocast" in name:
        tolerance = HALF
    worst = 0.0
    try:
        for shape in shapes:
            logits, target = rows(*shape)
            value, grad = path(logits.to(device, dtype), target.to(device))
            expected, expected_grad = twin(logits, target, DELTA)
            error = abs(float(value) - expected) / max(1.0, abs(expected))
            worst = max(worst, error, float((grad.double().cpu() - expected_grad).abs().max()))
            if worst != worst:
                break
    except Exception as exception:  # whatever fails on this machine is a finding
        text = str(exception).strip().split("\n")[0]
        return Finding("kernels", name, WRONG, f"{type(exception).__name__}: {text}")
    status = OK if worst <= tolerance else WRONG
    return Finding("kernels", name, status, f"off by {worst:.1e} (allowed {tolerance:.0e})", worst)


def equation(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The torch operations that run everywhere but on CPU."""
    safe, valid = valid_targets(target, IGNORED)
    grad = torch.empty(logits.shape, device=logits.device, dtype=logits.dtype)
    value, *_ = margin_softmax_chunks.chunk(logits, safe, valid, probability_rule(DELTA), grad)
    n_valid = valid.sum().clamp(min=1)
    return value.sum() / n_valid, grad / n_valid


def loss(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return _differentiate(ASSoftmaxLoss(DELTA), logits, target)


def row_losses(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return _differentiate(lambda x, t: ASSoftmaxLoss(DELTA).rows(x, t).mean(), logits, target)


def autocast(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast(logits.device.type, torch.bfloat16):
        return loss(logits, target)


def compiled(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return _differentiate(torch.compile(ASSoftmaxLoss(DELTA), dynamic=True), logits, target)


def fused_head(impl: str) -> Path:
    """The head on features that are the logits themselves, times an identity matrix."""

    def path(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        weight = torch.eye(logits.shape[1], device=logits.device, dtype=logits.dtype)
        options: dict[str, Any] = {"delta": DELTA, "impl": impl, "chunk_rows": 8}
        return _differentiate(lambda x, t: linear_as_softmax_loss(x, weight, t, **options), logits, target)

    return path


def class_parallel(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    layer = nn.Linear(logits.shape[1], logits.shape[1], bias=False, device=logits.device)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(logits.shape[1]))
    return _differentiate(ClassParallelHead.from_linear(layer, delta=DELTA), logits, target)


def _differentiate(function: Any, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    x = logits.detach().requires_grad_()
    value = function(x, target)
    return value.detach(), torch.autograd.grad(value, x)[0]


def _triton(device: torch.device) -> Iterator[Finding]:
    for dtype in (torch.float32, torch.bfloat16):
        name = f"Triton loss, {str(dtype).removeprefix('torch.')}, {device}"
        problem = triton_problem(str(device), dtype)
        if problem is not None and "they " not in problem:
            yield Finding("kernels", name, SKIPPED, problem)
            continue
        error = kernel_error(str(device), dtype)
        yield Finding("kernels", name, WRONG if error else OK, error or "agrees with the equation in float64")
    if problem is None:
        yield judge(f"Triton fused head, {device}", fused_head("triton"), device, torch.float32, HEAD_SHAPES)
    else:
        yield Finding("kernels", f"Triton fused head, {device}", SKIPPED, problem)


def _compiled(device: torch.device) -> Iterator[Finding]:
    name = f"torch.compile, {device}"
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        yield Finding("kernels", name, SKIPPED, "torch.compile needs Triton on this device")
        return
    yield judge(name, compiled, device, torch.float32)
    torch._dynamo.reset()


def _parallel(device: torch.device) -> Iterator[Finding]:
    backend = "nccl" if device.type == "cuda" else "gloo"
    name = f"class-parallel head, {backend}, {device}"
    if not dist.is_available() or (backend == "nccl" and not dist.is_nccl_available()):
        yield Finding("kernels", name, SKIPPED, f"torch is built without {backend}")
    elif device.type not in ("cpu", "cuda"):
        yield Finding("kernels", name, SKIPPED, f"there is no backend for {device.type}")
    elif dist.is_initialized():
        yield Finding("kernels", name, SKIPPED, "a process group is in use")
    else:
        with _process_group(backend):
            yield judge(name, class_parallel, device, torch.float32, HEAD_SHAPES)


@contextmanager
def _process_group(backend: str) -> Iterator[None]:
    """A process group of this process alone."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
