"""Stop at any point and go on: the whole state of a loop, into its folder and back, to the bit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.files import CheckpointWarning
from sparring.losses.delta import DeltaSchedule
from sparring.training import checkpoint
from sparring.training.identity import UNCHANGEABLE, differences, identity

if TYPE_CHECKING:
    from sparring.training.loop import Loop

KEYS = ("identity", "processes", "n_done", "won_share", "best")
ANYWAY = "anyway"  # of Loop(resume=…): go on although settings or data differ


class ResumeError(ValueError):
    """A checkpoint that is not of this run, or cannot be read.

    Attributes:
        reason: What is wrong. The message adds the next move.
        settings: Whether other settings are all that is wrong, so that ``resume="anyway"`` would go on.
    """

    def __init__(self, reason: str, *, settings: bool = False) -> None:
        self.reason = reason
        self.settings = settings
        deliberately = f', or resume="{ANYWAY}" to go on with what is set now' if settings else ""
        super().__init__(f"{reason}; use another folder, or resume=False to start anew{deliberately}")


class ResumeWarning(CheckpointWarning):
    """A run goes on with other settings than it was begun with, because resume="anyway" says so."""


def _parts(loop: Loop) -> dict[str, Any]:
    """What has a state of its own."""
    parts = {"model": loop.model, "optimizer": loop.stepper, "schedule": loop.lr_schedule}
    parts |= {"loss": loop.objective, "accumulation": loop.windows}
    return parts if loop.engine.scaler is None else parts | {"scaler": loop.engine.scaler}


def _own(loop: Loop) -> dict[str, Any]:
    """Of those, what each process has for itself."""
    return {"scorecard": loop.card, "record": loop.record}


def begin(loop: Loop) -> None:
    """Make the folder, and bring a loop that is about to run to where the folder's checkpoint is, if any."""
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
        words = " ".join(str(error).split())[:300]
        raise ResumeError(f"{loop.folder}: the checkpoint does not fit this run ({words})") from error


def save(loop: Loop, position: int) -> None:
    """Write a checkpoint between two windows, after ``position`` batches of the epoch. A collective."""
    if loop.folder is None:
        return
    loop.replicas.same(loop.model.buffers())
    own = {"random": checkpoint.random_state(), "carried": loop.bouts.carried}
    own |= {"sampler": loop.sampler.state_dict(position)}
    everybody = loop.replicas.gather(own | {name: part.state_dict() for name, part in _own(loop).items()})
    if loop.replicas.rank == 0:
        state = {name: part.state_dict() for name, part in _parts(loop).items()}
        state |= {
            "identity": loop.identity,
            "processes": everybody,
            "n_done": loop.n_done,
            "won_share": loop.won_share,
            "best": loop.best,
        }
        checkpoint.save(Path(loop.folder), state)


# ------------------------------------------------------------ reading


def _read(loop: Loop) -> dict[str, Any] | None:
    """The state that all processes go on from: the first one chooses the file, the others read the same."""
    assert loop.folder is not None
    folder, name, state, problem = Path(loop.folder), None, None, None
    if loop.replicas.rank == 0:
        try:
            if (last := checkpoint.load(folder)) is not None:
                name, state = last
        except ValueError as error:
            problem = str(error)
    name, problem = loop.replicas.first((name, problem))
    if problem is not None:
        raise ResumeError(problem)
    if name is not None and loop.replicas.rank != 0:
        state = checkpoint.read(folder / name)
    keys = (*KEYS, *_parts(loop))
    if name is not None and not (isinstance(state, dict) and all(key in state for key in keys)):
        raise ResumeError(f"{folder / name}: a {type(state).__name__} that is no state of a loop")
    return state


def _check(loop: Loop, state: dict[str, Any]) -> dict[str, str]:
    """What differs from the run that was saved, by setting; raises unless ``loop.resume`` allows it."""
    then = state["identity"]
    if not isinstance(then, Mapping):
        raise ResumeError(f"{loop.folder}: the checkpoint does not say what run it is of")
    changed = differences(then, loop.identity)
    for other in loop.replicas.gather(changed):  # one process that refuses must not leave the others waiting
        changed = {**other, **changed}
    if not changed:
        return changed
    fixed = [name for name in UNCHANGEABLE if name in changed]
    words = "; ".join(changed.values())
    if fixed or loop.resume != ANYWAY:
        raise ResumeError(f"{loop.folder} holds a run with {words}", settings=not fixed)
    if loop.replicas.rank == 0:
        message = f"{loop.folder} holds a run with {words}; it goes on with what is set now"
        warnings.warn(message, ResumeWarning, stacklevel=5)
    return changed


def _restore(loop: Loop, state: dict[str, Any], changed: Mapping[str, str]) -> None:
    """Load every part; what was changed on purpose stays as it is set now."""
    own = state["processes"][loop.replicas.rank]
    loop.n_done = loop.n_paused = int(state["n_done"])
    loop.won_share, loop.best = float(state["won_share"]), state["best"]
    parts = _parts(loop)
    if {"optimizer", "schedule", "epochs"} & changed.keys():
        _keep_rates(loop, state)
        del parts["optimizer"], parts["schedule"]
    if "loss" in changed:
        _advance_delta(loop)
        del parts["loss"]
    if "accumulation" in changed:
        del parts["accumulation"]
    for name, part in parts.items():
        part.load_state_dict(state[name])
    for name, part in _own(loop).items():
        part.load_state_dict(own[name])
    loop.bouts.carried = list(own["carried"])
    loop.sampler.load_state_dict(own["sampler"])
    checkpoint.set_random_state(own["random"])
    if "epochs" in changed:
        at_end = loop.sampler.position >= len(loop.sampler)
        loop.record.done = loop.sampler.epoch + at_end >= loop.epochs


def _keep_rates(loop: Loop, state: dict[str, Any]) -> None:
    """The optimizer's state under the settings of now, and the schedule as many steps on."""
    optimizer = getattr(loop.stepper, "optimizer", loop.stepper)
    settings = [{**group} for group in optimizer.param_groups]
    kind = state["identity"]["optimizer"]["type"]
    if kind == type(optimizer).__name__:  # another kind of optimizer begins anew
        loop.stepper.load_state_dict(state["optimizer"])
        for group, values in zip(optimizer.param_groups, settings, strict=True):
            group.update({name: value for name, value in values.items() if name != "params"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather see steps of the optimizer between them
        for _ in range(loop.n_done):
            loop.lr_schedule.step()


def _advance_delta(loop: Loop) -> None:
    delta = getattr(loop.objective, "delta", None)
    if isinstance(delta, DeltaSchedule):
        for _ in range(loop.n_done):
            delta.step(loop.won_share)
