"""Several runs, one after another or in parallel, and their progress.

Each parallel run has a process of its own, with one thread unless the config says otherwise. A terminal shows
a progress bar for each run, other outputs get a line from time to time.
"""

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
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

from sparring.lab.errors import DivergedError, RunsDivergedError, name_flags, names_flags
from sparring.lab.lock import remove as remove_folder
from sparring.lab.process import ignore_interrupts
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import Plan, open_task, plan
from sparring.lab.runs.records import RunFolder
from sparring.lab.runs.run_log import Bars, Display, Lines, RunProgress
from sparring.lab.runs.runner import run

INTERVAL = 0.2  # seconds between two messages of a run
Summary = dict[str, Any]


def run_all(
    plans: Sequence[Plan], jobs: int, console: Console | None, *, anyway: bool = False
) -> list[Summary]:
    """Run the plans that are not done. Ctrl-C saves the unfinished runs and raises KeyboardInterrupt.

    Args:
        plans: What to run.
        jobs: How many runs at the same time.
        console: Where progress is shown; None: nowhere.
        anyway: Continue unfinished runs although their settings or data have changed.

    Returns:
        The summaries of all plans, in their order.

    Raises:
        RunsDivergedError: Some runs diverged; raised when the others are done, with their summaries.
        UserError: A run failed otherwise; raised at once.
    """
    plans = [replace(plan, anyway=anyway) for plan in plans]
    if jobs > 1:
        plans = [_with_one_thread(plan) for plan in plans]
    errors: dict[int, str] = {}  # of runs that diverged, by index
    n_todo = sum(not plan.folder.done for plan in plans)
    quiet = console is None or os.environ.get("RANK", "0") != "0"
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(
        TextColumn("{task.description}"),
        *columns,
        TextColumn("{task.fields[now]}"),
        console=console,
        disable=quiet or console is None or not console.is_terminal,
    ) as progress:
        display: Display = Bars(progress)
        if quiet or console is None:
            display = Lines(Console(quiet=True), n_todo)
        elif not console.is_terminal:
            display = Lines(console, n_todo)
        if jobs > 1 and n_todo > 1:
            summaries = _run_in_parallel(plans, jobs, display, errors)
        else:
            summaries = _run_in_turn(plans, display, errors)
    if errors:
        failures = [
            {"run": plans[i].name, "folder": str(plans[i].folder.path), "error": errors[i]}
            for i in sorted(errors)
        ]
        raise RunsDivergedError(summaries, failures)
    return [summary for summary in summaries if summary is not None]


def _with_one_thread(plan: Plan) -> Plan:
    return plan if plan.config.threads is not None else replace(plan, config=plan.config.replace(threads=1))


def remove(folders: Sequence[RunFolder], cpu: bool) -> None:
    """Delete run folders. In a distributed run, the first process deletes while the others wait."""
    distributed = os.environ.get("WORLD_SIZE", "1") != "1"
    with PartialState(cpu=cpu).main_process_first() if distributed else nullcontext():
        if os.environ.get("RANK", "0") == "0":
            for folder in folders:
                if folder.path.exists():
                    remove_folder(folder.path)


def _run_in_turn(plans: Sequence[Plan], display: Display, errors: dict[int, str]) -> list[Summary | None]:
    """Run what is not done. A run that diverged has no summary; its error is put into ``errors``."""
    summaries: list[Summary | None] = []
    for index, planned in enumerate(plans):
        if planned.folder.done:
            summaries.append(planned.folder.summary())
            continue
        progress = RunProgress(display, planned)
        try:
            summaries.append(run(planned, progress))
            progress.end()
        except DivergedError as error:
            summaries.append(None)
            errors[index] = str(error)
            progress.end("diverged")
    return summaries


# ------------------------------------------------------------ in parallel


class WorkerWatch:
    """Watches a run in a worker process and sends what it sees to the main process."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.last_message = 0.0

    def begin(self, total: int) -> None:
        _messages.put((self.index, "begin", total))

    def note(self, text: str) -> None:
        _messages.put((self.index, "note", text))

    def step(self, entry: dict[str, Any]) -> bool:
        if time.monotonic() - self.last_message < INTERVAL:
            return False
        self.last_message = time.monotonic()
        _messages.put((self.index, "step", entry))
        return bool(_stopping.is_set())

    def evaluation(self, entry: dict[str, Any]) -> None:
        _messages.put((self.index, "evaluation", entry))


_messages: Any = None  # in a worker: the queue to the main process
_stopping: Any = None  # in a worker: set when it has to stop
_flags = False  # in a worker: whether messages name flags


def _start_worker(messages: Any, stopping: Any, flags: bool) -> None:
    global _messages, _stopping, _flags
    _messages = messages
    _stopping = stopping
    _flags = flags
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End this process when the main process was killed and cannot set ``_stopping``."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _work(config: Config, decided: dict[str, Any], index: int) -> bool:
    """Run a plan in a worker. Its data is loaded again, not sent. Returns False if it was interrupted."""
    if _stopping.is_set():
        return False
    try:
        with name_flags(_flags):
            run(replace(plan(config, *open_task(config)), **decided), WorkerWatch(index))
    except KeyboardInterrupt:
        return False
    return True


def _run_in_parallel(
    plans: Sequence[Plan], jobs: int, display: Display, errors: dict[int, str]
) -> list[Summary | None]:
    """Like `_run_in_turn`, each run in a process of its own."""
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    stopping = context.Event()
    progress = {index: RunProgress(display, planned) for index, planned in enumerate(plans)}
    with ProcessPoolExecutor(jobs, context, _start_worker, (messages, stopping, names_flags())) as pool:
        waiting: dict[Future[bool], int] = {}
        with ignore_interrupts():  # inherited by the workers: the main process tells them to stop
            for index, planned in enumerate(plans):
                if not planned.folder.done:
                    decided = {
                        name: getattr(planned, name) for name in ("folder", "card", "chosen", "anyway")
                    }
                    waiting[pool.submit(_work, planned.config, decided, index)] = index
        try:
            while waiting:
                ended, _ = wait(waiting, timeout=INTERVAL, return_when=FIRST_COMPLETED)
                _update(messages, progress)
                for future in ended:
                    index = waiting.pop(future)
                    try:
                        if not future.result():  # the signal may have reached the worker alone
                            raise KeyboardInterrupt
                    except DivergedError as error:  # any other error ends all runs
                        errors[index] = str(error)
                    progress[index].end("diverged" if index in errors else "done")
        except BaseException:
            stopping.set()
            for future in waiting:
                future.cancel()
            raise
    return [None if i in errors else planned.folder.summary() for i, planned in enumerate(plans)]


def _update(messages: Any, progress: dict[int, RunProgress]) -> None:
    while True:
        try:
            index, method, content = messages.get_nowait()
        except queue.Empty:
            return
        getattr(progress[index], method)(content)
