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
from torch import nn
from torch.optim import Optimizer

from sparring.checks import check_count
from sparring.parallel.wire import is_initialized

NAME = re.compile(r"step-(\d+)")


class Checkpoints:
    """A folder of checkpoints, one folder a step, written by torch.distributed.checkpoint: any tool that reads those reads them.

    A checkpoint is written beside (``step-….part``) and renamed once every rank has written its part, so a folder with a proper name is
    whole. The last ``keep`` stay. All ranks call `save` and `load`; the folder is one that all of them see.

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
        """After ``step`` steps. ``more``: further states, tensors or plain values, that `load` gives back."""
        from torch.distributed.checkpoint.state_dict_saver import save

        part, whole = self.path(step).with_suffix(".part"), self.path(step)
        if _first():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        _wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one process is one process
            save(_state(model, optimizer, more), checkpoint_id=part, no_dist=not is_initialized())
        _wait()
        if _first():
            shutil.rmtree(whole, ignore_errors=True)
            os.replace(part, whole)
            for old in self.steps()[: -self.keep]:
                shutil.rmtree(self.path(old))
        _wait()
        return whole

    def load(self, model: nn.Module, optimizer: Optimizer | None = None, *, step: int | None = None, **more: Any) -> int:
        """Model and optimizer go on from the last checkpoint, or from that of a step; returns its step, 0 where there is none.

        ``more``: states as in `save`, filled in place where they are dicts."""
        from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
        from torch.distributed.checkpoint.state_dict_loader import load

        there = self.steps()
        if step is None and not there:
            return 0
        step = there[-1] if step is None else step
        if step not in there:
            raise FileNotFoundError(f"{self.folder}: no checkpoint of step {step}; there are {', '.join(map(str, there)) or 'none'}")
        state = _state(model, optimizer, more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(state, checkpoint_id=self.path(step), no_dist=not is_initialized())
        set_model_state_dict(model, state["model"])
        if optimizer is not None:
            set_optimizer_state_dict(model, optimizer, state["optimizer"])
        for name, value in more.items():
            if isinstance(value, dict):
                value.update(state[name])
        return step


def _state(model: nn.Module, optimizer: Optimizer | None, more: Mapping[str, Any]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    state = {"model": get_model_state_dict(model), **more}
    return state if optimizer is None else {**state, "optimizer": get_optimizer_state_dict(model, optimizer)}


def _first() -> bool:
    return not is_initialized() or dist.get_rank() == 0


def _wait() -> None:
    if is_initialized():
        dist.barrier()
