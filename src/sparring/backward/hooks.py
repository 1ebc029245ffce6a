"""Hooks on tensors and on nodes of autograd's graph: detect them, and keep torch from calling them twice.

Only torch's engine calls hooks. A walk that visits nodes by hand must know whether they have any, and torch
has no function for that. There are two kinds:

- Hooks on tensors. The first forward pass of a compacted model wraps ``Tensor.register_hook`` and
  ``Tensor.retain_grad``. The wrappers also leave a mark in the metadata of the tensor's node, where all
  threads see it and which is freed with the graph.
- Hooks on nodes (``grad_fn.register_hook``), which cannot be wrapped. But torch numbers all hooks. If the
  number is that of an earlier snapshot, there is no new hook. If not, one more is registered on each node to
  count them.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.hooks import RemovableHandle

from sparring.backward.node_rules import Node

MARK = "sparring: hooked outputs"

_install_lock = threading.Lock()
_mark_numbers = itertools.count(1)  # next() is atomic, and no number is used twice
_last_mark = 0
_saving = threading.local()  # .n_entered: how often this thread has entered saved_tensors_hooks


class HookKind(IntEnum):
    NONE = 0
    SINGLE = 1
    JOINT = 2  # from register_multi_grad_hook: waits for the gradients of several tensors


class Snapshot(NamedTuple):
    """The numbers of the latest hooks at some moment."""

    mark: int
    handle: int
    n_saving: int


def snapshot() -> Snapshot:
    return Snapshot(_last_mark, RemovableHandle.next_id, getattr(_saving, "n_entered", 0))


def install() -> None:
    """Wrap torch's methods, the first time."""
    with _install_lock:
        if not hasattr(Tensor.register_hook, "marks_nodes"):
            saved_tensors_hooks.__enter__ = _counting(saved_tensors_hooks.__enter__)  # type: ignore[method-assign]
            for name in ("retain_grad", "register_hook"):
                setattr(Tensor, name, _marking(getattr(Tensor, name)))


def _marking(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def marked(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        global _last_mark
        result = method(self, *args, **kwargs)
        node: Node = self.grad_fn
        if node is not None:
            marks = node.metadata.setdefault(MARK, {})
            retains_grad, hooks = marks.get(self.output_nr, (False, None))
            if isinstance(result, RemovableHandle):
                hooks = result.hooks_dict_ref  # weak: the tensor would keep its node alive
            else:
                retains_grad = True
            marks[self.output_nr] = retains_grad, hooks
            _last_mark = next(_mark_numbers)
        return result

    marked.marks_nodes = True  # type: ignore[attr-defined]
    return marked


def _counting(enter: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(enter)
    def counted(self: saved_tensors_hooks) -> None:
        _saving.n_entered = getattr(_saving, "n_entered", 0) + 1
        enter(self)

    return counted


def find(nodes: Iterable[Node], since: Snapshot | None = None) -> HookKind:
    """The greatest kind of hook on nodes (registered ``since`` a snapshot) or on their output tensors."""
    is_unchanged = since is not None and since[:2] == snapshot()[:2]
    if is_unchanged and not _last_mark:
        return HookKind.NONE
    return max((_kind(node, test_node=not is_unchanged) for node in nodes), default=HookKind.NONE)


def _kind(node: Node, test_node: bool) -> HookKind:
    outputs = tensor_hooks(node)
    names = [getattr(hook, "__qualname__", "") for hooks in outputs.values() for hook in hooks]
    if any("register_multi_grad_hook" in name for name in names):
        return HookKind.JOINT
    return HookKind.SINGLE if outputs or (test_node and _has_node_hooks(node)) else HookKind.NONE


def tensor_hooks(node: Node) -> dict[int, list[Any]]:
    """The hooks on the node's output tensors, of those that have hooks or retain their gradient."""
    outputs = {}
    for output_nr, (retains_grad, reference) in node.metadata.get(MARK, {}).items():
        hooks = list(((reference and reference()) or {}).values())  # removed hooks are no longer there
        if hooks or retains_grad:
            outputs[output_nr] = hooks
    return outputs


def _has_node_hooks(node: Node) -> bool:
    for register in (node.register_hook, node.register_prehook):
        handle = register(lambda *_: None)
        n_hooks = len(handle.hooks_dict_ref())
        handle.remove()
        if n_hooks > 1:
            return True
    return False


def saving_is_hooked() -> bool:
    """Whether saved_tensors_hooks are active: a saved tensor can have one pair of hooks only."""
    if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    with torch.enable_grad():  # older torch: save a tensor and see, although the hooks are called with it
        probe: Any = torch.zeros((), requires_grad=True).exp()
    try:
        probe.grad_fn._raw_saved_result.register_hooks(lambda x: x, lambda x: x)
    except RuntimeError:
        return True
    return False


# ---------------------------------------------------------------- a backward pass inside another one


class _MutedHook:
    """A hook that is not called in the graph tasks ``inner_tasks``, nor with None in ``outer_tasks``."""

    inner_tasks: ClassVar[set[int]] = set()
    outer_tasks: ClassVar[set[int]] = set()
    lock = threading.Lock()

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self.hook = hook
        self.n_users = 0

    def __call__(self, grad: Tensor | None) -> Any:
        task = torch._C._current_graph_task_id()
        is_muted = task in self.inner_tasks or (grad is None and task in self.outer_tasks)
        return None if is_muted else self.hook(grad)


HookKeys = list[tuple[dict[int, Any], int]]  # the dictionary of a tensor's hooks, and a key


def _mute(tensors: Iterable[Tensor]) -> HookKeys:
    keys: HookKeys = []
    with _MutedHook.lock:
        for hooks in (x._backward_hooks for x in tensors if x._backward_hooks):
            for key, hook in list(hooks.items()):
                muted_hook = hook if isinstance(hook, _MutedHook) else _MutedHook(hook)
                muted_hook.n_users += 1
                hooks[key] = muted_hook
                keys.append((hooks, key))
    return keys


def _unmute(keys: HookKeys) -> None:
    with _MutedHook.lock:
        for hooks, key in keys:
            hook = hooks.get(key)  # None if it was removed in the meantime
            if isinstance(hook, _MutedHook):
                hook.n_users -= 1
                if hook.n_users == 0:
                    hooks[key] = hook.hook


@contextmanager
def muted(tensors: Iterable[Tensor], starts: Iterable[Node]) -> Iterator[None]:
    """Mute the hooks of ``tensors`` in a backward pass from ``starts`` to them inside another one.

    The outer pass adds gradients from elsewhere and calls the hooks with the sum. Backward passes of other
    threads still call them: hooks are muted for one graph task, whose number the start nodes report.
    """
    keys = _mute(tensors)
    retained = [(x, x.grad) for x in tensors if not x.is_leaf and x.retains_grad]
    if not keys and not retained:
        yield
        return
    tasks: set[int] = set()

    def report(_: Any) -> None:
        tasks.add(torch._C._current_graph_task_id())
        _MutedHook.inner_tasks |= tasks

    handles = [node.register_prehook(report) for node in starts]
    try:
        yield
    finally:
        _unmute(keys)
        _MutedHook.inner_tasks -= tasks
        for handle in handles:
            handle.remove()
        for x, grad in retained:
            x.grad = grad


def mute_none(leaves: Iterable[Tensor]) -> None:
    """For the rest of this pass, do not call these hooks with None: an ordinary pass would not reach them."""
    keys = _mute(leaves)
    if not keys:
        return
    task = torch._C._current_graph_task_id()
    _MutedHook.outer_tasks.add(task)

    def finish() -> None:
        _unmute(keys)
        _MutedHook.outer_tasks.discard(task)

    torch.autograd.Variable._execution_engine.queue_callback(finish)
