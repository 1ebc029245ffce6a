"""`sparring.doctor()`: whether every kernel is right on this machine, and what "auto" chooses."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sparring
from sparring.backward.compact import compact
from sparring.diagnosis.paths import check_paths
from sparring.diagnosis.report import NOTE, OK, SKIPPED, WRONG, Diagnosis, Finding
from sparring.diagnosis.twin import DELTA
from sparring.functional import linear_as_softmax_loss
from sparring.losses.as_softmax import ASSoftmaxLoss
from sparring.losses.kernels.implementation import VARIABLE, choose_impl, triton_problem

SECTIONS = ("machine", "kernels", "skipping", "syncs", "times", "choice")
_SHAPES = ((256, 5), (8192, 9), (4096, 151), (1024, 5201))
_SECONDS = 1.0  # for each comparison of times


def doctor(*, device: str | torch.device | None = None, only: Sequence[str] | None = None) -> Diagnosis:
    """Check this installation on this machine.

    Every way to compute AS-Softmax is compared with a loop over Python floats, values and gradients. Skipping
    is compared with an ordinary backward pass. Times are ratios to what torch itself takes.

    Args:
        device: Where to check. Default: the CPU, and the accelerator if there is one.
        only: Sections to run: "machine", "kernels", "skipping", "syncs", "times", "choice". Default: all.

    Returns:
        A `Diagnosis`: ``ok``, ``findings``, ``as_json()``; ``str()`` is a table.

    Raises:
        ValueError: A section is unknown.

    Example:
        >>> doctor(only=["machine"]).ok
        True
    """
    for section in only or ():
        if section not in SECTIONS:
            raise ValueError(f"no section {section!r}; expected {', '.join(SECTIONS)}")
    devices = _devices() if device is None else [torch.device(device)]
    diagnosis = Diagnosis()
    with torch.random.fork_rng(), torch.enable_grad():
        for section in SECTIONS:
            if only is None or section in only:
                for place in devices[:1] if section == "machine" else devices:
                    diagnosis.findings += _CHECKS[section](place)
    return diagnosis


def _devices() -> list[torch.device]:
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda", torch.cuda.current_device()))
    elif torch.backends.mps.is_available():
        devices.append(torch.device("mps"))
    return devices


def _machine(_: torch.device) -> Iterator[Finding]:
    versions = {"sparring": sparring.__version__, "Python": platform.python_version()}
    versions["torch"] = f"{torch.__version__} (CUDA {torch.version.cuda}, HIP {torch.version.hip})"
    for package in ("entmax", "triton", "transformers", "accelerate", "lightning"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    for name, version in versions.items():
        yield Finding("machine", name, NOTE, version)
    cpu = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    yield Finding("machine", "cpu", NOTE, f"{cpu}, {os.cpu_count()} cores, {torch.get_num_threads()} threads")
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        capability = f"{properties.major}.{properties.minor}, {properties.total_memory / 2**30:.0f} GB"
        yield Finding("machine", f"cuda:{i}", NOTE, f"{properties.name}, compute capability {capability}")
    if torch.cuda.device_count() == 0:
        yield Finding("machine", "cuda", SKIPPED, "torch finds no CUDA device: only the CPU is checked")
    if VARIABLE in os.environ:
        yield Finding("machine", VARIABLE, NOTE, os.environ[VARIABLE])


class Encoder(nn.Module):
    """A small transformer that classifies sequences of 32 tokens. `bias` decides which samples are won."""

    def __init__(self, width: int = 64, n_layers: int = 2, n_classes: int = 12) -> None:
        super().__init__()
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "activation": "gelu"}
        layers = (nn.TransformerEncoderLayer(width, 4, 4 * width, **options) for _ in range(n_layers))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(1)) + bias  # type: ignore[no-any-return]


def _won_batch(device: torch.device, width: int, n_rows: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, a bias of the logits that wins three quarters of the samples, and targets."""
    target = torch.arange(n_rows, device=device) % 12
    bias = F.one_hot(target, 12) * torch.where(target % 4 == 0, 0.0, 20.0)[:, None]
    return torch.randn(n_rows, 32, width, device=device), bias, target


def _skipping(device: torch.device) -> Iterator[Finding]:
    name = f"small encoder, 3/4 won, {device}"
    torch.manual_seed(0)
    model = Encoder().to(device)
    x, bias, target = _won_batch(device, 64)
    loss = ASSoftmaxLoss(DELTA)
    loss(model(x, bias), target).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    with compact(model) as compaction:
        loss(model(x, bias), target).backward()
    largest = max(float(grad.abs().max()) for grad in expected)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    pairs = zip(gradients, expected, strict=True)
    worst = max(float((a - b).abs().max()) for a, b in pairs) / largest
    stats = compaction.stats
    covered = f"{stats.n_samples_backward} of {stats.n_samples} samples"
    exact = worst <= 1e-5 and len(gradients) == len(expected)
    status = OK if exact and stats.n_skipping == 1 else WRONG
    reasons = f"; {dict(stats.reasons)}" if stats.reasons else ""
    yield Finding(
        "skipping", name, status, f"{covered}, gradients off by {worst:.1e} of the largest{reasons}", worst
    )


def _syncs(device: torch.device) -> Iterator[Finding]:
    name = f"loss and backward, {device}"
    if device.type != "cuda":
        yield Finding("syncs", name, SKIPPED, "only a CUDA device counts them")
        return
    logits = torch.randn(64, 20, device=device, requires_grad=True)
    target = torch.arange(64, device=device) % 20
    loss = ASSoftmaxLoss(DELTA)
    loss(logits, target).backward()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loss(logits, target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    n_syncs = sum("synchronizing" in str(warning.message) for warning in caught)
    yield Finding("syncs", name, WRONG if n_syncs else OK, f"{n_syncs} a step, expected 0", float(n_syncs))


def _times(device: torch.device) -> Iterator[Finding]:
    loss = ASSoftmaxLoss(DELTA)
    for n_rows, n_classes in _SHAPES:
        logits = torch.randn(n_rows, n_classes, device=device, requires_grad=True)
        target = logits.detach().argmax(1)
        target[::2] = torch.randint(n_classes, target[::2].shape, device=device)
        name = f"loss, {n_rows} x {n_classes}, {device}"
        ours = _step(loss, [logits], target)
        theirs = _step(F.cross_entropy, [logits], target)
        yield _ratio(name, ours, theirs, device, "F.cross_entropy")
    features = torch.randn(1024, 256, device=device, requires_grad=True)
    weight = torch.randn(5201, 256, device=device, requires_grad=True)
    target = torch.randint(5201, (1024,), device=device)
    reference = getattr(F, "linear_cross_entropy", None)
    name = "F.linear_cross_entropy"
    if reference is None:
        name = "F.cross_entropy(F.linear)"

        def reference(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
            return F.cross_entropy(F.linear(x, w), t)

    ours = _step(linear_as_softmax_loss, [features, weight], target)
    theirs = _step(reference, [features, weight], target)
    yield _ratio(f"fused head, 1024 x 256 x 5201, {device}", ours, theirs, device, name)
    yield _skip_ratio(device)


def _skip_ratio(device: torch.device) -> Finding:
    model = Encoder(width=128, n_layers=3).to(device)
    twin = Encoder(width=128, n_layers=3).to(device)
    x, bias, target = _won_batch(device, 128, 64)
    loss = ASSoftmaxLoss(DELTA)
    with compact(model):
        ours, theirs = (lambda m=m: loss(m(x, bias), target).backward() for m in (model, twin))
        return _ratio(f"skipping step, 3/4 won, {device}", ours, theirs, device, "a full step")


def _step(function: Callable[..., Tensor], leaves: list[Tensor], target: Tensor) -> Callable[[], None]:
    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        function(*leaves, target).backward()

    return step


def _ratio(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], device: torch.device, reference: str
) -> Finding:
    """The least time of each, called in turn."""
    best = [float("inf"), float("inf")]
    deadline = time.perf_counter() + _SECONDS
    n_runs = 0
    while n_runs < 4 or time.perf_counter() < deadline:
        for i, step in enumerate((ours, theirs)):
            _wait(device)
            start = time.perf_counter()
            step()
            _wait(device)
            if n_runs > 0:  # the first run compiles and allocates
                best[i] = min(best[i], time.perf_counter() - start)
        n_runs += 1
    ratio = best[0] / best[1]
    detail = f"{ratio:.2f}x the time of {reference} ({best[0] * 1e3:.2f} and {best[1] * 1e3:.2f} ms)"
    return Finding("times", name, NOTE, detail, ratio)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _choice(device: torch.device) -> Iterator[Finding]:
    how = "the CPU kernels" if device.type == "cpu" else "torch operations, without a device sync"
    yield Finding("choice", f"loss, {device}", NOTE, how)
    impl = choose_impl("auto", device, torch.float32, has_rule=True)
    if os.environ.get(VARIABLE):
        reason = f"{VARIABLE} says so"
    elif impl == "triton":
        reason = "its kernels passed their self-check"
    elif device.type != "cuda":
        reason = "Triton is for CUDA devices"
    else:
        reason = str(triton_problem(str(device), torch.float32))
    yield Finding("choice", f'fused head, impl="auto", {device}', NOTE, f"{impl}: {reason}")


_CHECKS: dict[str, Callable[[torch.device], Iterator[Finding]]] = {
    "machine": _machine,
    "kernels": check_paths,
    "skipping": _skipping,
    "syncs": _syncs,
    "times": _times,
    "choice": _choice,
}
