"""What the result of a loop depends on, as plain data for a checkpoint, and what differs between two of them.

Left out, since the result does not depend on it or since one may want to go on with another: the device, the
number of workers of the data loader, how often is saved and logged. Of functions the name counts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from sparring.losses.delta import DeltaSchedule
from sparring.training.fingerprint import RANDOM, digest_of, fingerprint

if TYPE_CHECKING:
    from sparring.training.loop import Loop

SETTINGS = (
    *("batch_size", "epochs", "seed", "max_grad_norm", "skip"),
    *("eval_every", "metric", "greater_is_better", "patience", "load_best"),
)
# of an optimizer: the rate is looked at apart, the others say how it computes
NOT_SETTINGS = ("params", "lr", "initial_lr", "fused", "foreach", "capturable", "differentiable")
RATES = ("base_lrs", "last_epoch", "verbose")  # of a schedule: the optimizer's rates, and how far it is
UNCHANGEABLE = ("samples", "processes", "batch_size")  # the plan of an epoch depends on them
MOST_SHOWN = 6


def identity(loop: Loop) -> dict[str, Any]:
    """Of a loop that is about to run."""
    windows = {name: getattr(loop.windows, name) for name in ("lam", "max_steps", "decide")}
    return {
        **{name: _plain(getattr(loop, name)) for name in SETTINGS},
        "samples": len(loop.data),
        "processes": loop.replicas.size,
        "data": fingerprint(loop.data),
        "model": _module(loop.model),
        "loss": _loss(loop.objective),
        "optimizer": _optimizer(loop.stepper),
        "schedule": _schedule(loop),
        "accumulation": {"type": type(loop.windows).__name__, **windows},
        "scorecard": _scorecard(loop),
        "lengths": None if loop.lengths is None else digest_of(loop.sampler.lengths),
        "forward": _name(loop.forward),
        "collate": _name(loop.collate),
        "evaluates": loop.evaluate is not None,
        "mixed_precision": str(loop.engine.mixed_precision),
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """By the setting that differs: what, in words. Random data has no fingerprint to compare."""
    words: dict[str, str] = {}
    for name in now:
        if name == "data" and RANDOM in (then.get(name), now[name]):
            continue
        lines = list(_differences(name, then.get(name), now[name]))
        more = [f"{len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        if lines:
            words[name] = ", ".join([*lines[:MOST_SHOWN], *more])
    return words


def _differences(name: str, then: Any, now: Any) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*then, *now]):
            yield from _differences(f"{name}.{key}", then.get(key), now.get(key))
    elif isinstance(then, (list, tuple)) and isinstance(now, (list, tuple)) and len(then) == len(now):
        for i, pair in enumerate(zip(then, now, strict=True)):
            yield from _differences(f"{name}[{i}]", *pair)
    elif then != now:
        yield f"other {name}" if name in ("data", "lengths") else f"{name} {then} (now {now})"


# ------------------------------------------------------------ its parts


def _module(model: nn.Module) -> dict[str, Any]:
    """Types of the modules, rates of dropout, shapes of the parameters and what of them is trained."""
    modules = {}
    for name, module in model.named_modules():
        rate = f"({module.p})" if isinstance(module, _DropoutNd) else ""
        modules[name] = f"{type(module).__name__}{rate}"
    tensors = {name: _shape(tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    return {"modules": modules, "tensors": tensors}


def _shape(tensor: Tensor) -> str:
    if is_lazy(tensor):
        return "without a shape"
    trained = " trained" if tensor.requires_grad else ""
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape}{trained}"


def _loss(loss: Any) -> dict[str, Any]:
    """Name and settings, those of a schedule of δ included, and class weights."""
    settings = {name: _setting(value) for name, value in loss.settings().items()}
    inner = getattr(loss, "loss", loss)  # of a layer and its loss in one
    weight = getattr(inner, "weight", None)
    return {
        "name": loss.name,
        **settings,
        "ignore_index": loss.ignore_index,
        "reduction": loss.reduction,
        "weight": None if weight is None else digest_of(weight),
    }


def _setting(value: Any) -> Any:
    if isinstance(value, DeltaSchedule):
        inner = {name: _setting(child) for name, child in value.named_children()}
        return {"type": type(value).__name__, **_plain(value._settings), **inner}
    return _plain(value)


def _optimizer(optimizer: Any) -> dict[str, Any]:
    """Its type and, by group, every hyper-parameter; the rate is the one before the schedule."""
    plain: Optimizer = getattr(optimizer, "optimizer", optimizer)  # within Accelerate's
    groups = []
    for group in plain.param_groups:
        settings = {name: _plain(value) for name, value in group.items() if name not in NOT_SETTINGS}
        rate = _plain(group.get("initial_lr", group["lr"]))
        groups.append({"lr": rate, **settings, "parameters": len(group["params"])})
    return {"type": type(plain).__name__, "groups": groups}


def _schedule(loop: Loop) -> dict[str, Any]:
    state = loop.lr_schedule.state_dict()
    names = [name for name in state if name not in RATES and not name.startswith("_")]
    return {"function": _name(loop.make_schedule), **{name: _plain(state[name]) for name in names}}


def _scorecard(loop: Loop) -> dict[str, Any] | None:
    if not loop.scorecard:
        return None
    rules = ("check", "max_rest", "spare", "earn", "narrow")
    return {"type": type(loop.card).__name__, **{name: _plain(getattr(loop.card, name)) for name in rules}}


def _name(function: Any) -> str | None:
    """A function's name, with the arguments of a partial one; of an object that is called, its type's."""
    if isinstance(function, functools.partial):
        return f"{_name(function.func)} {_plain([function.args, function.keywords])}"
    return None if function is None else str(getattr(function, "__qualname__", type(function).__qualname__))


def _plain(value: Any) -> Any:
    """Numbers and texts, in lists and dicts, as torch.load takes them; of anything else its type."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value) if value == value else "nan"  # NumPy's numbers are not what torch.load takes
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else digest_of(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return type(value).__name__
