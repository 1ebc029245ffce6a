"""Stop at any point and go on: the whole state of a loop, into its folder and back, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.training import checkpoint

if TYPE_CHECKING:
    from sparring.training.loop import Loop


class ResumeError(ValueError):
    """A checkpoint that is not of this run, or cannot be read."""


def _parts(loop: Loop) -> dict[str, Any]:
    """What has a state of its own."""
    parts = {"model": loop.model, "optimizer": loop.stepper, "schedule": loop.lr_schedule, "loss": loop.objective}
    parts |= {"accumulation": loop.windows}
    return parts if loop.engine.scaler is None else parts | {"scaler": loop.engine.scaler}


def _own(loop: Loop) -> dict[str, Any]:
    """Of those, what each process has for itself."""
    return {"scorecard": loop.card, "record": loop.record}


def _identity(loop: Loop) -> dict[str, Any]:
    """What must not change between stop and start."""
    settings = {name: value for name, value in loop.objective.settings().items() if isinstance(value, (int, float, str))}
    named = {name: getattr(loop, name) for name in ("batch_size", "epochs", "seed")}
    return named | {"samples": len(loop.data), "processes": loop.replicas.size, "loss": {"name": loop.objective.name, **settings}}


def save(loop: Loop, position: int) -> None:
    """Between two windows, after ``position`` batches of the epoch. Every process calls it; the first one writes."""
    if loop.folder is None:
        return
    loop.replicas.same(loop.model.buffers())
    own = {"random": checkpoint.random_state(), "carried": loop.bouts.carried, "sampler": loop.sampler.state_dict(position)}
    everybody = loop.replicas.gather(own | {name: part.state_dict() for name, part in _own(loop).items()})
    if loop.replicas.rank == 0:
        state = {name: part.state_dict() for name, part in _parts(loop).items()}
        state |= {
            "identity": _identity(loop),
            "processes": everybody,
            "n_done": loop.n_done,
            "won_share": loop.won_share,
            "best": loop.best,
        }
        checkpoint.save(Path(loop.folder), state)


def restore(loop: Loop) -> None:
    """Bring a loop that is about to run to where its folder's checkpoint is, if there is one."""
    try:
        state = checkpoint.load(Path(loop.folder)) if loop.folder is not None and loop.resume else None
    except ValueError as error:
        raise ResumeError(str(error)) from None
    if state is None:
        return
    for name, now in _identity(loop).items():
        if (then := state["identity"][name]) != now:
            raise ResumeError(
                f"{loop.folder} holds a run with {name} {then}, this one has {now}; use another folder, or resume=False to start anew"
            )
    for name, part in _parts(loop).items():
        part.load_state_dict(state[name])
    own = state["processes"][loop.replicas.rank]
    for name, part in _own(loop).items():
        part.load_state_dict(own[name])
    loop.bouts.carried = own["carried"]
    loop.sampler.load_state_dict(own["sampler"])
    loop.n_done = loop.n_paused = state["n_done"]
    loop.won_share, loop.best = state["won_share"], state["best"]
    checkpoint.set_random_state(own["random"])
