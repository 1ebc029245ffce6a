"""Several runs, one after another or side by side, and the progress of each as it goes.

Side by side each run has a process of its own and one thread, unless told otherwise. Progress is drawn on a terminal only.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
from types import TracebackType
from typing import Any

from accelerate import PartialState
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from sparring.lab.errors import DivergedError, RunsDivergedError
from sparring.lab.runs.config import Config
from sparring.lab.runs.lock import remove as remove_folder
from sparring.lab.runs.plan import Plan, open_task, plan
from sparring.lab.runs.records import RunFolder
from sparring.lab.runs.runner import run

EVERY = 0.2  # seconds between two messages of a run


class Bars:
    """One line a run: what is done, the loss, the won share, the accumulation and the last look at dev."""

    def __init__(self, console: Console) -> None:
        text = TextColumn("{task.fields[now]}")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            text,
        )
        self.progress = Progress(
            *columns, console=console, disable=not console.is_terminal or os.environ.get("RANK", "0") != "0"
        )

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def watch(self, plan: Plan) -> Bar:
        return Bar(self.progress, plan)


class Bar:
    """The line of one run."""

    def __init__(self, progress: Progress, plan: Plan) -> None:
        self.progress, self.metric = progress, str(plan.config.metric)
        self.dev = ""
        self.line = progress.add_task(plan.name, total=None, now="")

    def begin(self, total: int) -> None:
        self.progress.reset(self.line, total=total)

    def step(self, entry: dict[str, Any]) -> bool:
        now = (
            f"loss {entry['loss']:.3f} · won {entry['won_share']:.0%} · accumulation {entry['accumulation']}"
        )
        self.progress.update(self.line, completed=entry["step"], now=f"{now}{self.dev}")
        return False

    def evaluation(self, entry: dict[str, Any]) -> None:
        self.dev = f" · dev {self.metric} {100 * entry[self.metric]:.2f}"

    def end(self, now: str = "done") -> None:
        self.progress.update(self.line, now=f"{now}{self.dev}")
        self.progress.stop_task(self.line)


def run_all(
    plans: Sequence[Plan], jobs: int, console: Console, *, anyway: bool = False
) -> list[dict[str, Any]]:
    """Their summaries, in the same order. Ctrl-C saves what is under way and raises KeyboardInterrupt.

    Args:
        anyway: go on with unfinished runs although their settings or data were others.

    Raises:
        RunsDivergedError: some runs diverged; raised when the others are done, with their summaries.
        UserError: any other mistake of a run, at once.
    """
    plans = [replace(each, anyway=anyway) for each in plans]
    errors: dict[int, str] = {}  # of runs that diverged, by index
    with Bars(console) as bars:
        side_by_side = jobs > 1 and sum(not plan.folder.done for plan in plans) > 1
        summaries = (
            _side_by_side(plans, jobs, bars, errors)
            if side_by_side
            else _in_turn(plans, bars, errors, single=jobs > 1)
        )
    if errors:
        failures = [
            {"run": plans[i].name, "folder": str(plans[i].folder.path), "error": errors[i]}
            for i in sorted(errors)
        ]
        raise RunsDivergedError(summaries, failures)
    return [summary for summary in summaries if summary is not None]


def _in_turn(
    plans: Sequence[Plan], bars: Bars, errors: dict[int, str], *, single: bool
) -> list[dict[str, Any] | None]:
    """Run what is not done, ``single``: with one thread, as side by side. None for runs that diverged, whose errors are noted."""
    summaries: list[dict[str, Any] | None] = []
    for index, each in enumerate(plans):
        if each.folder.done:
            summaries.append(each.folder.summary())
            continue
        bar = bars.watch(each)
        try:
            summaries.append(run(_single(each) if single else each, bar))
            bar.end()
        except DivergedError as error:
            errors[index] = str(error)
            summaries.append(None)
            bar.end("diverged")
    return summaries


def _single(plan: Plan) -> Plan:
    """With one thread, unless told otherwise."""
    return plan if plan.config.threads is not None else replace(plan, config=plan.config.replace(threads=1))


def remove(folders: Sequence[RunFolder], cpu: bool) -> None:
    """Begin anew. Of several processes of one run the first removes, while the others wait."""
    several = (
        PartialState(cpu=cpu).main_process_first()
        if os.environ.get("WORLD_SIZE", "1") != "1"
        else nullcontext()
    )
    with several:
        for folder in folders if os.environ.get("RANK", "0") == "0" else ():
            if folder.path.exists():
                remove_folder(folder.path)


# ------------------------------------------------------------ side by side


class Wire:
    """Watches in a worker, tells the main process."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.told = 0.0

    def begin(self, total: int) -> None:
        _messages.put((self.index, "begin", total))

    def step(self, entry: dict[str, Any]) -> bool:
        if time.monotonic() - self.told < EVERY:
            return False
        self.told = time.monotonic()
        _messages.put((self.index, "step", entry))
        return bool(_stopping.is_set())

    def evaluation(self, entry: dict[str, Any]) -> None:
        _messages.put((self.index, "evaluation", entry))


_messages: Any = None  # in a worker: to the main process
_stopping: Any = None  # and from it


def _begin_work(messages: Any, stopping: Any) -> None:
    global _messages, _stopping
    _messages, _stopping = messages, stopping
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A main process that was killed can tell nobody to stop."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _work(config: Config, decided: dict[str, Any], index: int) -> dict[str, Any] | None:
    """Run a plan made anew from its config, since its data is not sent, and what else was decided."""
    if _stopping.is_set():
        return None
    try:
        return run(replace(plan(config, *open_task(config)), **decided), Wire(index))
    except KeyboardInterrupt:
        return None


def _side_by_side(
    plans: Sequence[Plan], jobs: int, bars: Bars, errors: dict[int, str]
) -> list[dict[str, Any] | None]:
    """As `_in_turn`, each run in a process of its own."""
    context = multiprocessing.get_context("spawn")
    messages, stopping = context.Queue(), context.Event()
    watches: dict[int, Bar] = {}
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_begin_work, initargs=(messages, stopping)
    ) as pool:
        waiting: dict[Future[dict[str, Any] | None], int] = {}
        with _without_interrupts():  # which workers inherit: the main process says when to stop
            for index, each in enumerate(plans):
                if not each.folder.done:
                    decided = {name: getattr(each, name) for name in ("folder", "card", "chosen", "anyway")}
                    waiting[pool.submit(_work, _single(each).config, decided, index)] = index
        try:
            while waiting:
                ended, _ = wait(waiting, timeout=EVERY, return_when=FIRST_COMPLETED)
                _tell(messages, watches, plans, bars)
                for future in ended:
                    index = waiting.pop(future)
                    try:
                        interrupted = future.result() is None  # the signal to this process may have been lost
                    except DivergedError as error:  # any other error ends all
                        interrupted, errors[index] = False, str(error)
                    if interrupted:
                        raise KeyboardInterrupt
                    if index in watches:
                        watches[index].end("diverged" if index in errors else "done")
        except BaseException:
            stopping.set()
            for future in waiting:
                future.cancel()
            raise
    return [None if index in errors else each.folder.summary() for index, each in enumerate(plans)]


@contextmanager
def _without_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(messages: Any, watches: dict[int, Bar], plans: Sequence[Plan], bars: Bars) -> None:
    while True:
        try:
            index, kind, content = messages.get_nowait()
        except queue.Empty:
            return
        if index not in watches:
            watches[index] = bars.watch(plans[index])
        getattr(watches[index], kind)(content)
