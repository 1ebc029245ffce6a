"""Tests of the Triton kernels without a GPU, one process for each.

TRITON_INTERPRET=1 python -m tests.losses.kernels.triton_cases interpret    run on CPU, compare with torch
python -m tests.losses.kernels.triton_cases compile                         compile for three kinds of GPU
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from sparring import functional as SF
from sparring.losses.kernels import implementation, margin_softmax_chunks, margin_softmax_triton
from sparring.losses.kernels.rule import SOFTMAX_RULE, MarginRule, logit_rule, probability_rule

RULES = [probability_rule(0.3), probability_rule(1.0), probability_rule(0.0), logit_rule(2.0), SOFTMAX_RULE]
RULES += [rule._replace(concede=0.4) for rule in (RULES[0], SOFTMAX_RULE)]


def chunks(n_classes: int, rule: MarginRule, dtype: torch.dtype) -> None:
    """Value, active and gradient of rows of every kind: won, active, ignored, infinite, NaN."""
    torch.manual_seed(n_classes)
    wide = 3 * torch.randn(14, n_classes + 3)
    logits, target = wide[:, :n_classes], torch.randint(n_classes, (14,))  # rows that do not lie end to end
    logits[torch.arange(4), target[:4]] += torch.tensor([2.0, 4.0, 8.0, 30.0])
    logits[5, 0], logits[6, 1], logits[7, 0] = torch.inf, -torch.inf, torch.nan
    logits[9, -1] = 40.0  # the largest in the last block
    logits[10, :-1] = -torch.inf  # a first block of masked classes
    logits[11] = -torch.inf
    logits[12, target[12]] = -torch.inf
    logits[13] = torch.nan
    logits = logits.to(dtype)
    valid = (torch.arange(14) != 8) & (torch.arange(14) != 13)
    grads = [torch.full(logits.shape, torch.nan) for _ in range(2)]
    triton_result = margin_softmax_triton.chunk(logits, target, valid, rule, grads[0])
    torch_result = margin_softmax_chunks.chunk(logits, target, valid, rule, grads[1])
    assert triton_result[1].equal(torch_result[1])
    assert triton_result[2].equal(torch_result[2])
    exact = torch.full(logits.shape, torch.nan, dtype=torch.float64)
    value = margin_softmax_chunks.chunk(logits.double(), target, valid, rule, exact)[0]
    for triton_value, torch_value, true in ((triton_result[0], torch_result[0], value), (*grads, exact)):
        torch.testing.assert_close(triton_value, torch_value, equal_nan=True, rtol=1e-5, atol=1e-6)
        assert triton_value.isfinite().equal(true.isfinite())
        fine = true.isfinite()
        assert (triton_value - true)[fine].abs().max() <= 2 * (torch_value - true)[fine].abs().max() + 1e-6
    alone = margin_softmax_triton.chunk(logits, target, valid, rule, None)  # without a gradient
    assert alone[1].equal(triton_result[1])
    torch.testing.assert_close(alone[0], triton_result[0], equal_nan=True)


def head(reduction: str, delta: float, dtype: torch.dtype) -> None:
    """The whole fused head through the kernels."""
    torch.manual_seed(0)
    weight, target = torch.randn(70, 6), torch.randint(70, (33,))
    x = torch.randn(33, 6) + 3 * (torch.arange(33) % 3)[:, None] * weight[target]
    target[::7] = -100
    upstream = torch.rand(33) if reduction == "none" else torch.ones(())
    results = []
    for fused in (True, False):
        parameters = [p.to(dtype, copy=True).requires_grad_() for p in (x, weight)]
        if fused:
            loss = SF.linear_as_softmax_loss(
                *parameters, target, delta=delta, reduction=reduction, impl="triton", chunk_rows=8
            )
        else:
            loss = SF.as_softmax_loss(F.linear(*parameters), target, delta=delta, reduction=reduction)
        results.append([loss, *torch.autograd.grad(loss, parameters, upstream.to(loss.dtype))])
    for triton_value, torch_value in zip(*results, strict=True):
        torch.testing.assert_close(
            triton_value, torch_value, **({} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 1e-2})
        )


class Wrong:
    """A kernel made wrong on purpose: it runs, and then one of its results is changed."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **flags: Any) -> None:
            self.kernel[grid](*args, **flags)
            args[3].add_(0.01)  # log Σ exp of `statistics_kernel`

        return launch


class WrongMargin:
    """`loss_kernel` with the thresholds of another rule."""

    def __init__(self, kernel: Any, rule: MarginRule) -> None:
        self.kernel = kernel
        self.rule = rule

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **flags: Any) -> None:
            logp_t = args[5]
            self.kernel[grid](*args[:6], self.rule.threshold(logp_t), *args[7:], **flags)

        return launch


class Broken:
    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        raise RuntimeError("no such instruction\nin line 3")


def self_check() -> None:
    """Correct kernels pass; wrong and broken ones are found."""
    assert implementation.kernel_error("cpu", torch.bfloat16) is None
    assert implementation.triton_problem("cpu", torch.float32) is None
    kernel = margin_softmax_triton.statistics_kernel
    for replacement, message in ((Wrong(kernel), "they are off by"), (Broken(), "no such instruction")):
        implementation._self_check.cache_clear()
        margin_softmax_triton.statistics_kernel = replacement
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                assert message in implementation.triton_problem("cpu", torch.float32)
        assert len(caught) == 1
    margin_softmax_triton.statistics_kernel = kernel
    implementation._self_check.cache_clear()


def margins_off_by_5_percent() -> None:
    """The self-check sees them, for every rule, dtype and number of blocks."""
    kernel = margin_softmax_triton.loss_kernel
    for make_rule, number in (
        (probability_rule, implementation._DELTA),
        (logit_rule, implementation._MARGIN),
    ):
        for factor, n_classes in itertools.product((0.95, 1.0, 1.05), implementation._CLASSES):
            margin_softmax_triton.loss_kernel = WrongMargin(kernel, make_rule(factor * number))
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                error = implementation._difference(n_classes, make_rule(number), "cpu", dtype)
                assert (error <= implementation._TOLERANCE) == (factor == 1), (number, factor, dtype, error)
    margin_softmax_triton.loss_kernel = kernel


def interpret() -> None:
    self_check()
    margins_off_by_5_percent()
    for rule in RULES:
        for n_classes in (2, 300):
            chunks(n_classes, rule, torch.float32)
    chunks(5000, RULES[0], torch.float32)  # more than one block
    chunks(300, RULES[0], torch.bfloat16)
    for reduction in ("mean", "sum", "none"):
        head(reduction, 0.3, torch.float32)
    head("mean", 1.0, torch.float32)
    head("mean", 0.3, torch.bfloat16)


def compile_ahead() -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    floats = ["peak_out", "logsum_out", "logp_t_out", "peak_in", "logsum_in", "logp_t_in", "tau_in"]
    types = dict.fromkeys([*floats, "value_out", "grad"], "*fp32")
    types |= dict.fromkeys(["stride", "grad_stride", "n_classes"], "i32")
    types |= {"target": "*i64", "valid": "*i8", "active_out": "*i8"}
    kernels = [(margin_softmax_triton.statistics_kernel, {})]
    kernels += [(margin_softmax_triton.loss_kernel, {"WITH_GRAD": with_grad}) for with_grad in (True, False)]
    targets = [GPUTarget("cuda", 80, 32), GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)]
    for (kernel, flags), dtype, target in itertools.product(kernels, ("*fp32", "*bf16"), targets):
        constants = {"BLOCK": margin_softmax_triton.MAX_BLOCK, **flags}
        signature = {**types, "logits": dtype, **dict.fromkeys(constants, "constexpr")}
        signature = {name: signature[name] for name in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        binary = triton.compile(source, target=target, options={"num_warps": 8})
        registers = n_registers(binary.asm)
        print(f"{kernel.__name__} {dtype} {target.arch}: {registers} registers,", end=" ")
        print(f"{binary.metadata.shared} bytes of shared memory")
        assert registers <= 128  # else fewer than two blocks of 8 warps fit a multiprocessor
        assert binary.metadata.shared <= 48 * 1024
        if target.backend == "cuda":
            assert f"sm_{target.arch}" in binary.asm["ptx"]


def n_registers(asm: dict[str, Any]) -> int:
    """Registers of a thread, from the binary's own record."""
    if "amdgcn" in asm:
        return int(re.search(r"\.vgpr_count:\s+(\d+)", asm["amdgcn"]).group(1))
    from triton.backends.nvidia.compiler import get_ptxas

    target = re.search(r"\.target (sm_\w+)", asm["ptx"]).group(1)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(asm["ptx"])
        file.flush()
        command = [get_ptxas(int(re.search(r"\d+", target).group())).path, "-v", f"--gpu-name={target}"]
        process = subprocess.run([*command, file.name, "-o", "/dev/null"], capture_output=True, text=True)
    return int(re.search(r"Used (\d+) registers", process.stderr + process.stdout).group(1))


if __name__ == "__main__":
    {"interpret": interpret, "compile": compile_ahead}[sys.argv[1]]()
