"""Checkpoints of training on many ranks: saved by p of them, loaded by q; a crash while saving leaves the last good one as it is."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from sparring.files import CheckpointWarning
from sparring.heads.parallel import manifest
from sparring.heads.parallel.collectives import is_initialized
from sparring.losses.checks import check_count

NAME = re.compile(r"step-(\d+)")


class Checkpoints:
    """A folder of checkpoints, one folder a step, written by torch.distributed.checkpoint: any tool that reads those reads them.

    A checkpoint is written beside (``step-….part``) and renamed once every rank has written its part, so a folder with a proper name is
    whole. The last ``keep`` stay; those of later steps, left by a run that went on otherwise, go. All ranks call `save` and `load`; the
    folder is one that all of them see.

        checkpoints = Checkpoints("run/checkpoints")
        first = checkpoints.load(model, optimizer)         # 0 where there is none yet
        for step in range(first, n_steps):
            ...
            checkpoints.save(step + 1, model, optimizer)   # every so often
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2) -> None:
        self.folder, self.keep = Path(folder), check_count("keep", keep)

    def steps(self) -> list[int]:
        """Those there are, the oldest first."""
        found = (NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in found if match is not None)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, step: int, model: nn.Module, optimizer: Optimizer | None = None, **more: Any) -> Path:
        """After ``step`` steps. ``more``: further dicts or tensors, which `load` fills."""
        from torch.distributed.checkpoint.state_dict_saver import save

        part, whole = self.path(step).with_suffix(".part"), self.path(step)
        if _first():
            self._tidy()
            part.mkdir(parents=True)
        _wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one process is one process
            save(_state(model, optimizer, more), checkpoint_id=part)
        _wait()
        manifest.write(part)
        if _first():
            if whole.exists():
                os.replace(whole, whole.with_suffix(".old"))  # until the next line it is the last good one
            os.replace(part, whole)
            there = self.steps()
            for other in (*there[there.index(step) + 1 :], *there[: there.index(step) + 1][: -self.keep]):
                os.replace(self.path(other), self.path(other).with_suffix(".gone"))
            self._tidy()
        _wait()
        return whole

    def _tidy(self) -> None:
        """What a crash may have left: one that was about to be replaced comes back, halves go."""
        for old in self.folder.glob("step-*.old"):
            if not old.with_suffix("").exists():
                os.replace(old, old.with_suffix(""))
        for left in self.folder.glob("step-*.*"):
            if left.suffix in (".part", ".old", ".gone"):
                shutil.rmtree(left)

    def load(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        step: int | None = None,
        verify: bool = True,
        **more: Any,
    ) -> int:
        """Model and optimizer go on from the last checkpoint, or from that of a step; returns its step, 0 where there is none.

        Every file must have the checksum it was written with. One that has not: the last checkpoint gives way to the one
        before it, with a `CheckpointWarning`; that of a ``step`` is refused. ``verify=False`` loads a checkpoint without
        a manifest of checksums, such as one of another program.

        ``more``: dicts and tensors as in `save`, filled in place. Gradients are dropped. No code of the checkpoint is run: one that
        holds more than tensors and plain values is refused with an UntrustedCheckpointError."""
        from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict

        from sparring.heads.parallel.safe_reader import load

        if wrong := [name for name, value in more.items() if not isinstance(value, (dict, Tensor))]:
            raise ValueError(
                f"{wrong[0]}: expected a dict or a tensor, which can be filled; got {type(more[wrong[0]]).__name__}"
            )
        there = self._agreed()
        if step is None and not there:
            return 0
        if step is not None and step not in there:
            raise FileNotFoundError(
                f"{self.folder}: no checkpoint of step {step}; there are {', '.join(map(str, there)) or 'none'}"
            )
        candidates = there if step is None else [step]
        step = self._verified(candidates) if verify else candidates[-1]
        if optimizer is not None:
            optimizer.zero_grad(
                set_to_none=True
            )  # with gradients there, torch would leave the optimizer's state out
        state = _state(model, optimizer, more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(state, self.path(step))
        set_model_state_dict(model, state["model"])
        if optimizer is not None:
            set_optimizer_state_dict(model, optimizer, state["optimizer"])
        for name, value in more.items():
            if isinstance(value, dict):
                value.update(state[name])
        return step

    def _verified(self, steps: list[int]) -> int:
        """The last of the steps whose files are as they were written; all ranks find the same."""
        problems: list[str] = []
        for step in reversed(steps):
            problem = manifest.verify(self.path(step))
            if problem is None:
                if problems and _first():
                    message = f"{problems[0]}; training goes on from step {step}"
                    warnings.warn(message, CheckpointWarning, stacklevel=3)
                return step
            problems.append(f"{self.path(step)}: {problem}")
        raise ValueError(
            f"no checkpoint can be read: {'; '.join(problems)}; load another step, or verify=False to load it as it is"
        )

    def _agreed(self) -> list[int]:
        """The steps there are, as the first rank sees them: a shared folder may not look the same to all at once."""
        if _first():
            self._tidy()
        found = [self.steps() if _first() else []]
        if is_initialized():
            dist.broadcast_object_list(found, 0)
        return found[0]


def _state(model: nn.Module, optimizer: Optimizer | None, more: Mapping[str, Any]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    state = {"model": get_model_state_dict(model), **more}
    return state if optimizer is None else {**state, "optimizer": get_optimizer_state_dict(model, optimizer)}


def _first() -> bool:
    return not is_initialized() or dist.get_rank() == 0


def _wait() -> None:
    if is_initialized():
        dist.barrier()
