"""Models whose parameters are spread over ranks: what skipping can do with them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from torch import Tensor, nn


def check_modules(model: nn.Module) -> None:
    """Refuse a model with modules that FSDP has sharded. Asked before every forward: sharding may come after ``compact``."""
    for module in model.modules():
        if _has_base(type(module).__mro__, "FSDP", "FullyShardedDataParallel"):
            raise _refusal(type(module).__name__)


def check_leaves(leaves: Iterable[Tensor]) -> str:
    """Refuse parameters that FSDP has flattened. Name parameters that are DTensors: their backward is left to torch."""
    for leaf in leaves:
        if getattr(leaf, "_is_flat_param", False):
            raise _refusal("FullyShardedDataParallel")
        if _has_base(type(leaf).__mro__, "DTensor"):
            return "DTensor parameters"
    return ""


@cache
def _has_base(bases: tuple[type, ...], *names: str) -> bool:
    return any(name in base.__name__ for base in bases for name in names)


def _refusal(name: str) -> ValueError:
    return ValueError(
        f"skip.compact cannot see into {name}: its parameters are gathered by backward hooks. "
        'Use DistributedDataParallel, or skip="two-pass"'
    )
