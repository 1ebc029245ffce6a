"""Hooks on tensors and on nodes of the autograd graph: noticing them, and keeping them from being called twice.

Only torch's engine calls hooks. A backward pass that visits nodes by hand must know whether there are any, and torch has no
way to ask. So the first forward of a compacted model wraps ``Tensor.register_hook``, ``Tensor.retain_grad`` and
``saved_tensors_hooks.__enter__`` once and for all: they do what they always did and leave a mark. The mark of a hook is in the
metadata of the tensor's node, so it is seen from any thread and goes away with the graph. Hooks on nodes
(``grad_fn.register_hook``) cannot be wrapped. torch numbers all hooks: where the number has not moved, there is no new one; where
it has, each node is asked by registering one more.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.hooks import RemovableHandle

Node = Any  # torch.autograd.graph.Node

MARK = "sparring: hooked outputs"
SINGLE, JOINT = "hook", "hook of several tensors"  # what is found on nodes

_install_lock = threading.Lock()
_mark_numbers = itertools.count(
    1
)  # next() is atomic; a number is never given twice, so an unchanged one proves that nothing came
_last_mark = 0
_saving = threading.local()  # .n_entered: how often this thread entered saved_tensors_hooks


class Snapshot(NamedTuple):
    """How many hooks there were at some moment."""

    mark: int
    handle: int
    n_saving: int


def snapshot() -> Snapshot:
    return Snapshot(_last_mark, RemovableHandle.next_id, getattr(_saving, "n_entered", 0))


def install() -> None:
    """Wrap torch's methods, the first time."""
    if hasattr(Tensor.register_hook, "marks_nodes"):
        return
    with _install_lock:
        if not hasattr(Tensor.register_hook, "marks_nodes"):
            saved_tensors_hooks.__enter__ = _counting(saved_tensors_hooks.__enter__)  # type: ignore[method-assign]
            for name in ("retain_grad", "register_hook"):  # the one that says "installed" comes last
                setattr(Tensor, name, _marking(getattr(Tensor, name)))


def _marking(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def marked(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        global _last_mark
        result = method(self, *args, **kwargs)
        node: Node = self.grad_fn
        if node is not None:
            retains, hooks = node.metadata.setdefault(MARK, {}).get(self.output_nr, (False, None))
            if isinstance(result, RemovableHandle):
                hooks = result.hooks_dict_ref  # a weak reference: the tensor would keep its node alive
            else:
                retains = True
            node.metadata[MARK][self.output_nr] = (retains, hooks)
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


def find_since(before: Snapshot, nodes: Iterable[Node]) -> str:
    """`find`, where any hook at all was registered since; "" where none was."""
    now = snapshot()
    return "" if (now.mark, now.handle) == (before.mark, before.handle) else find(nodes)


def find_marked(nodes: Iterable[Node]) -> str:
    """`find` for tensors' hooks alone, which is quick: nodes are not asked."""
    return max((_marked(node) for node in nodes), default="", key=len) if _last_mark else ""


def find(nodes: Iterable[Node]) -> str:
    """SINGLE where a node, or a tensor it made, has a hook; JOINT where one waits for several tensors; "" without any."""
    marks = {_marked(node) or (SINGLE if _has_node_hooks(node) else "") for node in nodes}
    return max(marks, default="", key=len)  # JOINT is the longest


def _marked(node: Node) -> str:
    """What the marks of a node say that is still true."""
    if MARK not in node.metadata:
        return ""
    found = [hooks for _, hooks in _live_marks(node).values()]
    if any(
        "register_multi_grad_hook" in getattr(hook, "__qualname__", "")
        for hooks in found
        for hook in hooks.values()
    ):
        return JOINT
    return SINGLE if found else ""


def _live_marks(node: Node) -> dict[int, tuple[bool, dict[int, Any]]]:
    """By output: whether its gradient is retained, and its hooks. Those that were removed leave nothing."""
    marks: dict[int, Any] = node.metadata.get(MARK, {})
    live = {
        number: (retains, (reference and reference()) or {}) for number, (retains, reference) in marks.items()
    }
    return {number: mark for number, mark in live.items() if any(mark)}


def hooked_outputs(node: Node) -> set[int]:
    """Which of the tensors that a node made have hooks, or retain their gradients."""
    return set(_live_marks(node))


def _has_node_hooks(node: Node) -> bool:
    for register in (node.register_hook, node.register_prehook):
        handle = register(_do_nothing)
        n_hooks = len(handle.hooks_dict_ref())
        handle.remove()
        if n_hooks > 1:
            return True
    return False


def _do_nothing(*_: Any) -> None:
    pass


def saving_is_hooked() -> bool:
    """Whether tensors saved now go through somebody's saved_tensors_hooks: only one pair may sit on a saved tensor."""
    if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    with torch.enable_grad():  # older torch: only a tensor that is saved can tell, and the hooks see it
        probe: Any = torch.zeros((), requires_grad=True).exp()
    try:
        probe.grad_fn._raw_saved_result.register_hooks(lambda x: x, lambda x: x)
    except RuntimeError:
        return True
    return False


# ---------------------------------------------------------------- hooks at the ends of a backward pass inside another one


class _Muted:
    """A hook that stays silent in some graph tasks: always in those of ``inner_tasks``, for None in those of ``outer_tasks``."""

    inner_tasks: ClassVar[set[int]] = set()
    outer_tasks: ClassVar[set[int]] = set()
    lock = threading.Lock()

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self.hook, self.n_users = hook, 0

    def __call__(self, grad: Tensor | None) -> Any:
        task = torch._C._current_graph_task_id()
        silent = task in self.inner_tasks or (grad is None and task in self.outer_tasks)
        return None if silent else self.hook(grad)


Muting = list[tuple[dict[int, Any], int]]  # which hooks of which tensors


def _mute(tensors: Iterable[Tensor]) -> Muting:
    muting: Muting = []
    with _Muted.lock:
        for hooks in (x._backward_hooks for x in tensors if x._backward_hooks):
            for key, hook in list(hooks.items()):
                muted = hook if isinstance(hook, _Muted) else _Muted(hook)
                muted.n_users += 1
                hooks[key] = muted
                muting.append((hooks, key))
    return muting


def _unmute(muting: Muting) -> None:
    with _Muted.lock:
        for hooks, key in muting:
            hook = hooks.get(key)  # None: removed meanwhile
            if isinstance(hook, _Muted):
                hook.n_users -= 1
                if hook.n_users == 0:
                    hooks[key] = hook.hook


@contextmanager
def called_outside(ends: Sequence[Tensor], starts: Iterable[Node]) -> Iterator[None]:
    """A backward pass from ``starts`` to ``ends``, run inside another one, leaves the hooks of ``ends`` to that one.

    The outer pass receives these gradients, adds what comes from elsewhere, and calls the hooks with the sum. Other threads' passes go
    on calling them: a hook is muted for one graph task, whose number the start nodes report.
    """
    retaining = [x for x in ends if not x.is_leaf and x.retains_grad]
    muting = _mute(ends)
    if not muting and not retaining:
        yield
        return
    gradients = [x.grad for x in retaining]
    tasks: set[int] = set()

    def report(_: Any) -> None:
        tasks.add(torch._C._current_graph_task_id())
        _Muted.inner_tasks |= tasks

    handles = [node.register_prehook(report) for node in starts]
    try:
        yield
    finally:
        _unmute(muting)
        _Muted.inner_tasks -= tasks
        for handle in handles:
            handle.remove()
        for x, grad in zip(retaining, gradients, strict=True):
            x.grad = grad


def not_called_with_none(leaves: Iterable[Tensor]) -> None:
    """For the rest of the backward pass under way: it reaches these leaves without a gradient, where torch's own would not
    reach them at all."""
    muting = _mute(leaves)
    if not muting:
        return
    task = torch._C._current_graph_task_id()
    _Muted.outer_tasks.add(task)

    def finish() -> None:
        _unmute(muting)
        _Muted.outer_tasks.discard(task)

    torch.autograd.Variable._execution_engine.queue_callback(finish)
