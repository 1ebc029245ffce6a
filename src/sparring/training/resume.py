"""Stopping and resuming a loop: its whole state, to a folder and back, to the bit."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.files import CheckpointWarning
from sparring.training import checkpoint
from sparring.training.identity import UNCHANGEABLE, differences, identity
from sparring.training.progress import step_schedules

if TYPE_CHECKING:
    from sparring.training.loop import Loop

KEYS = ("identity", "processes", "n_done", "best")
ANYWAY = "anyway"  # Loop(resume="anyway") resumes although settings or data differ


class ResumeError(ValueError):
    """A checkpoint belongs to another run, or cannot be read.

    Attributes:
        reason: What is wrong. The message adds what to do.
        settings: Whether only settings differ, so that ``resume="anyway"`` would resume.
    """

    def __init__(self, reason: str, *, settings: bool = False) -> None:
        self.reason = reason
        self.settings = settings
        anyway = f', or resume="{ANYWAY}" to go on with what is set now' if settings else ""
        super().__init__(f"{reason}; use another folder, or resume=False to start anew{anyway}")


class ResumeWarning(CheckpointWarning):
    """A run is resumed with other settings than it began with, because of resume="anyway"."""


def _shared_parts(loop: Loop) -> dict[str, Any]:
    """The parts with a state that is the same on all processes."""
    parts = {"model": loop.model, "optimizer": loop.prepared_optimizer, "schedule": loop.lr_schedule}
    return parts if loop.accelerator.scaler is None else {**parts, "scaler": loop.accelerator.scaler}


def begin(loop: Loop) -> None:
    """Create the folder of a loop that is about to run, and load its checkpoint, if it has one."""
    loop.save_due = time.perf_counter() + (loop.save_seconds or 0.0)
    if loop.folder is None:
        return
    Path(loop.folder).mkdir(parents=True, exist_ok=True)
    loop.identity = identity(loop)
    state = _read(loop) if loop.resume else None
    if state is None:
        return
    changed = _check(loop, state)
    try:
        _restore(loop, state, changed)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())[:300]
        raise ResumeError(f"{loop.folder}: the checkpoint does not fit this run ({message})") from error


def is_due(loop: Loop) -> bool:
    """Whether the time between two checkpoints is over. Several processes would not agree on it."""
    timed = loop.save_seconds is not None and loop.collectives.size == 1
    return timed and time.perf_counter() >= loop.save_due


def save(loop: Loop) -> None:
    """Write a checkpoint between two windows, unless the weights are not finite. A collective call."""
    start = time.perf_counter()
    if loop.monitor.can_save() and loop.folder is not None:
        _write(loop, Path(loop.folder))
    end = time.perf_counter()
    loop.save_due = end + max(loop.save_seconds or 0.0, 20 * (end - start))


def _write(loop: Loop, folder: Path) -> None:
    loop.collectives.broadcast(loop.model.buffers())
    process_state = {
        "random": checkpoint.random_state(),
        "engine": loop.engine.state_dict(),
        "loader": loop.loader.state_dict(),
    }
    processes = loop.collectives.gather_objects(process_state)
    if loop.collectives.rank == 0:
        state = {name: part.state_dict() for name, part in _shared_parts(loop).items()}
        state |= {"identity": loop.identity, "processes": processes, "n_done": loop.n_done, "best": loop.best}
        checkpoint.save(folder, state)


def _read(loop: Loop) -> dict[str, Any] | None:
    """The state to resume from. The first process chooses the file, and all others read the same one."""
    assert loop.folder is not None
    folder = Path(loop.folder)
    name = state = problem = None
    if loop.collectives.rank == 0:
        try:
            name, state = checkpoint.load(folder) or (None, None)
        except ValueError as error:
            problem = str(error)
    name, problem = loop.collectives.broadcast_object((name, problem))
    if problem is not None:
        raise ResumeError(problem)
    if name is None:
        return None
    if loop.collectives.rank != 0:
        state = checkpoint.read(folder / name)
    if not isinstance(state, dict) or not all(key in state for key in (*KEYS, *_shared_parts(loop))):
        raise ResumeError(f"{folder / name}: a {type(state).__name__} that is not the state of a loop")
    return state


def _check(loop: Loop, state: dict[str, Any]) -> dict[str, str]:
    """The settings that differ from those of the saved run; raises unless ``loop.resume`` allows it."""
    saved = state["identity"]
    if not isinstance(saved, Mapping):
        raise ResumeError(f"{loop.folder}: the checkpoint does not say which run it belongs to")
    changed = differences(saved, loop.identity)
    for other in loop.collectives.gather_objects(changed):  # all processes refuse together
        changed = {**other, **changed}
    if not changed:
        return changed
    fixed = [name for name in UNCHANGEABLE if name in changed]
    description = "; ".join(changed.values())
    if fixed or loop.resume != ANYWAY:
        raise ResumeError(f"{loop.folder} holds a run with {description}", settings=not fixed)
    if loop.collectives.rank == 0:
        message = f"{loop.folder} holds a run with {description}; it goes on with what is set now"
        warnings.warn(message, ResumeWarning, stacklevel=5)
    return changed


def _restore(loop: Loop, state: dict[str, Any], changed: Mapping[str, str]) -> None:
    """Load every part; parts that were changed on purpose keep their settings of now."""
    process_state = state["processes"][loop.collectives.rank]
    loop.n_done = loop.n_paused = int(state["n_done"])
    loop.best = state["best"]
    parts = _shared_parts(loop)
    new_length = {"epochs", "budget", "forward_share"} & changed.keys()
    if new_length or {"optimizer", "schedule"} & changed.keys():
        _load_optimizer(loop, state)
        del parts["optimizer"], parts["schedule"]
    for name, part in parts.items():
        part.load_state_dict(state[name])
    engine_state = process_state["engine"]
    replaced = {"loss", "accumulation"} & changed.keys()
    loop.engine.load_state_dict({name: engine_state[name] for name in engine_state if name not in replaced})
    if "loss" in changed:
        step_schedules(loop.objective, loop.n_done, loop.engine.won_share)
    loop.loader.load_state_dict(process_state["loader"])
    checkpoint.set_random_state(process_state["random"])
    budget = loop.run_progress.budget
    if budget is not None and "budget" not in engine_state:  # the run began with epochs
        budget.spent = loop.n_done / loop.sampler.n_planned * budget.n_samples
    if new_length or {"loss", "scorecard"} & changed.keys():
        loop.run_progress.begin(loop.objective, loop.parts.settle)
    if new_length:
        n_epochs = loop.sampler.epoch + loop.loader.finished
        loop.record.done = n_epochs >= loop.epochs if budget is None else budget.is_spent


def _load_optimizer(loop: Loop, state: dict[str, Any]) -> None:
    """Load the optimizer's state under the settings of now, and advance the schedule to the current step."""
    optimizer = getattr(loop.prepared_optimizer, "optimizer", loop.prepared_optimizer)
    settings = [{**group} for group in optimizer.param_groups]
    saved_type = state["identity"]["optimizer"]["type"]
    if saved_type == type(optimizer).__name__:  # an optimizer of another type starts anew
        loop.prepared_optimizer.load_state_dict(state["optimizer"])
        for group, values in zip(optimizer.param_groups, settings, strict=True):
            group.update({name: value for name, value in values.items() if name != "params"})
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch expects a step of the optimizer before each step of the schedule
        for _ in range(loop.n_done):
            loop.lr_schedule.step()
