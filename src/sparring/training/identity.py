"""What the result of a run depends on: its settings as plain data, and a fingerprint of its data set.

Not included: the device, the number of workers, how often the run saves and logs. Functions count by name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from sparring.losses.delta import DeltaSchedule
from sparring.training.checkpoint import random_state, set_random_state

if TYPE_CHECKING:
    from sparring.training.loop import Loop

SETTINGS = (
    *("batch_size", "epochs", "budget", "forward_share", "seed", "max_grad_norm", "skip"),
    *("eval_every", "metric", "greater_is_better", "patience", "load_best"),
)
# the learning rate of an optimizer is compared apart, the others do not change the result
NOT_SETTINGS = ("params", "lr", "initial_lr", "fused", "foreach", "capturable", "differentiable")
SCHEDULE_STATE = ("base_lrs", "last_epoch", "verbose")  # not settings of a schedule
UNCHANGEABLE = ("samples", "processes", "batch_size")  # the plan of an epoch depends on them
MAX_SHOWN = 6  # differences of one setting

N_IN_MEMORY = 10_000  # samples of a list that are read for its fingerprint
N_ELSEWHERE = 32  # samples of another data set
RANDOM = "random"  # the fingerprint of a data set whose samples differ between two reads
MAX_BYTES = 1 << 28  # of an array; elements of a larger one are hashed at even distances
MAX_DEPTH = 12


def identity(loop: Loop) -> dict[str, Any]:
    """The identity of a loop that is about to run."""
    return {
        **{name: _plain(getattr(loop, name)) for name in SETTINGS},
        "epochs": loop.epochs if loop.budget is None else None,  # a budget replaces them
        "samples": len(loop.data),
        "processes": loop.collectives.size,
        "data": fingerprint(loop.data),
        "model": _module(loop.model),
        "loss": describe_loss(loop.objective),
        "optimizer": _optimizer(loop.prepared_optimizer),
        "schedule": _schedule(loop),
        "accumulation": _attributes(loop.engine.accumulation, "lam", "max_steps", "decide"),
        "scorecard": _attributes(loop.scorecard, *getattr(loop.scorecard, "rules", ())),
        "fit_head": loop.parts.fit_head or None,  # absent in older checkpoints
        "lengths": None if loop.lengths is None else digest_of(loop.sampler.lengths),
        "forward": _name(loop.forward),
        "collate": _name(loop.collate),
        "evaluates": loop.evaluate is not None,
        "mixed_precision": str(loop.accelerator.mixed_precision),
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """The settings that differ between two identities, each with a description of the difference."""
    described: dict[str, str] = {}
    for name in now:
        if name == "data" and RANDOM in (before.get(name), now[name]):
            continue
        lines = list(_differences(name, before.get(name), now[name]))
        if len(lines) > MAX_SHOWN:
            lines = [*lines[:MAX_SHOWN], f"{len(lines) - MAX_SHOWN} more"]
        if lines:
            described[name] = ", ".join(lines)
    return described


def _differences(name: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _differences(f"{name}.{key}", before.get(key), now.get(key))
    elif isinstance(before, (list, tuple)) and isinstance(now, (list, tuple)) and len(before) == len(now):
        for i, pair in enumerate(zip(before, now, strict=True)):
            yield from _differences(f"{name}[{i}]", *pair)
    elif before != now:
        yield f"other {name}" if name in ("data", "lengths") else f"{name} {before} (now {now})"


def _module(model: nn.Module) -> dict[str, Any]:
    """The types of the modules, dropout rates, and the dtypes and shapes of parameters and buffers."""
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


def describe_loss(loss: Any) -> dict[str, Any]:
    """The name and the settings of a loss as plain data; schedules without their state."""
    settings = {name: _setting(value) for name, value in loss.settings().items()}
    weight = getattr(
        getattr(loss, "loss", loss), "weight", None
    )  # of the loss in a LinearLoss, not of its layer
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
    if isinstance(value, Tensor):
        return digest_of(value)
    return _plain(value)


def _optimizer(optimizer: Any) -> dict[str, Any]:
    """The type and the hyper-parameters of each group; the learning rate is that before the schedule."""
    inner: Optimizer = getattr(optimizer, "optimizer", optimizer)  # inside Accelerate's wrapper
    groups = []
    for group in inner.param_groups:
        settings = {name: _plain(value) for name, value in group.items() if name not in NOT_SETTINGS}
        lr = _plain(group.get("initial_lr", group["lr"]))
        groups.append({"lr": lr, **settings, "parameters": len(group["params"])})
    return {"type": type(inner).__name__, "groups": groups}


def _schedule(loop: Loop) -> dict[str, Any]:
    state = loop.lr_schedule.state_dict()
    names = [name for name in state if name not in SCHEDULE_STATE and not name.startswith("_")]
    return {"function": _name(loop.make_schedule), **{name: _plain(state[name]) for name in names}}


def _attributes(part: Any, *names: str) -> dict[str, Any] | None:
    if not part:
        return None
    return {"type": type(part).__name__, **{name: _plain(getattr(part, name)) for name in names}}


def _name(function: Any) -> str | None:
    """A function's name, with the arguments of a partial; the name of the type for other callables."""
    if isinstance(function, functools.partial):
        return f"{_name(function.func)} {_plain([function.args, function.keywords])}"
    return None if function is None else str(getattr(function, "__qualname__", type(function).__qualname__))


def _plain(value: Any) -> Any:
    """Numbers and texts, in lists and dicts, as ``torch.load`` accepts them; the type of anything else."""
    if value is None or isinstance(value, bool):
        return value
    for plain_type in (int, float, str):
        if isinstance(value, plain_type):
            return (
                plain_type(value) if value == value else "nan"
            )  # torch.load does not accept NumPy's numbers
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else digest_of(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return type(value).__name__


# ------------------------------------------------------------ the fingerprint of a data set


def fingerprint(data: Any) -> str:
    """A digest of a map-style data set, to notice that a run is resumed with other data of the same size.

    It covers all of a TensorDataset, up to 10,000 samples of a list, and 32 samples of any other data set,
    since reading one may take long. These are read twice with the global generators seeded alike, so that
    random augmentation does not matter. The generators are restored.

    Returns:
        The digest, or ``RANDOM`` if the two reads differ. What a sample is made of never raises.
    """
    if isinstance(data, TensorDataset):
        return digest_of(data.tensors)
    if type(data) in (list, tuple):
        return digest_of([data[i] for i in evenly_spaced(len(data), N_IN_MEMORY)])
    state = random_state()
    try:
        digests = {_seeded_digest(data), _seeded_digest(data)}
    finally:
        set_random_state(state)
    return digests.pop() if len(digests) == 1 else RANDOM


def _seeded_digest(data: Any) -> str:
    random.seed(0)
    torch.default_generator.manual_seed(0)  # that of the CPU, where samples are made
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    return digest_of([_read(data, i) for i in evenly_spaced(len(data), N_ELSEWHERE)])


def evenly_spaced(n: int, limit: int) -> list[int]:
    """At most ``limit`` of n indices at even distances, the first and the last included.

    >>> evenly_spaced(5, 3), evenly_spaced(2, 3)
    ([0, 2, 4], [0, 1])
    """
    return list(range(n)) if n <= limit else [i * (n - 1) // (limit - 1) for i in range(limit)]


def digest_of(value: Any) -> str:
    """SHA-256 of tensors, arrays, texts, numbers and containers of them, the same in every process.

    >>> digest_of({"a": [1, "x"], "b": None}) == digest_of({"b": None, "a": [1, "x"]})
    True
    >>> digest_of([1]) == digest_of((1,))
    False
    """
    digest = hashlib.sha256()
    _update(digest, value, MAX_DEPTH)
    return digest.hexdigest()


def _read(data: Any, index: int) -> Any:
    try:
        return data[index]
    except Exception:  # training will raise it again
        return None


def _update(digest: Any, value: Any, depth: int) -> None:
    """Add a value to a digest: its type, and its content or the attributes of an unknown type."""
    if isinstance(value, (str, int, float, complex, type(None))):
        digest.update(f"{type(value).__name__}:{value!r};".encode("utf-8", "surrogatepass"))
        return
    digest.update(f"{type(value).__qualname__}(".encode())
    try:
        if isinstance(value, (bytes, bytearray)):
            digest.update(value)
        elif depth > 0:
            _update_content(digest, value, depth - 1)
    except Exception:  # an unusual tensor, or an attribute that raises
        digest.update(b"!")
    digest.update(b")")


def _update_content(digest: Any, value: Any, depth: int) -> None:
    if isinstance(value, Tensor) and value.layout is torch.sparse_coo:
        entries = value.detach().coalesce()
        _update(digest, [list(value.shape), entries.indices(), entries.values()], depth)
    elif isinstance(value, Tensor):
        _update_array(digest, value.detach().to("cpu").resolve_conj().contiguous(), depth)
    elif type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        _update_array(digest, value, depth)
    elif isinstance(value, Mapping):
        for key, inner in sorted(value.items(), key=lambda pair: repr(pair[0])):
            _update(digest, key, depth)
            _update(digest, inner, depth)
    elif isinstance(value, Set):
        digest.update("".join(sorted(digest_of(inner) for inner in value)).encode())
    elif isinstance(value, Sequence):
        for inner in value:
            _update(digest, inner, depth)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        _update(digest, {name: getattr(value, name) for name in names}, depth)
    elif hasattr(value, "tobytes"):  # an image of PIL
        _update(digest, [getattr(value, "mode", None), getattr(value, "size", None)], depth)
        digest.update(value.tobytes())
    else:
        _update(digest, getattr(value, "__dict__", None), depth)


def _update_array(digest: Any, array: Any, depth: int) -> None:
    """Add a tensor on the CPU or a NumPy array: dtype, shape and bytes."""
    _update(digest, [str(array.dtype), list(array.shape)], depth)
    if str(array.dtype) == "object":
        _update(digest, array.tolist(), depth)
        return
    flat = array.reshape(-1)
    n_bytes = len(flat) * (array.element_size() if isinstance(array, Tensor) else array.itemsize)
    flat = flat[:: max(1, -(-n_bytes // MAX_BYTES))]
    if isinstance(flat, Tensor):
        flat = flat.contiguous().view(torch.uint8).numpy()
    digest.update(flat.tobytes())
