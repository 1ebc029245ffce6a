"""Checkpoints of training on several ranks: saved by p ranks, loaded by q.

A crash while saving leaves the last complete checkpoint in place.
"""

import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from sparring.files import CheckpointWarning, changed_file, file_digest, file_names
from sparring.heads.parallel.collectives import Collectives
from sparring.losses.checks import check_count

FOLDER_NAME = re.compile(r"step-(\d+)")
MANIFEST = "manifest.json"


class Checkpoints:
    """A folder with one torch.distributed.checkpoint folder per saved step.

    A checkpoint is written to ``step-….part`` and renamed when every rank has finished, so a folder without
    that suffix is complete. All ranks call `save` and `load`, and see the same file system.

    Args:
        folder: Where the checkpoints are.
        keep: How many checkpoints to keep. Older ones are removed, and so are those of later steps, which an
            earlier run left.

    Example::

        checkpoints = Checkpoints("run/checkpoints")
        first = checkpoints.load(model, optimizer)  # 0 if there is no checkpoint
        for step in range(first, n_steps):
            ...
            checkpoints.save(step + 1, model, optimizer)
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2) -> None:
        self.folder = Path(folder)
        self.keep = check_count("keep", keep)

    def steps(self) -> list[int]:
        """The saved steps in ascending order."""
        matches = (FOLDER_NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in matches if match is not None)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, step: int, model: nn.Module, optimizer: Optimizer | None = None, **more: Any) -> Path:
        """Save model, optimizer and further dicts or tensors after ``step`` steps; returns the folder."""
        from torch.distributed.checkpoint.state_dict_saver import save

        collectives = Collectives()
        final = self.path(step)
        part = final.with_suffix(".part")
        if collectives.rank == 0:
            self._clean_up()
            part.mkdir(parents=True)
        collectives.barrier()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about a single process
            save(_state(model, optimizer, more), checkpoint_id=part)
        collectives.barrier()
        write_manifest(part)
        if collectives.rank == 0:
            if final.exists():
                os.replace(final, final.with_suffix(".old"))  # _clean_up restores it after a crash here
            os.replace(part, final)
            steps = self.steps()
            n_older = steps.index(step) + 1
            for other in (*steps[n_older:], *steps[:n_older][: -self.keep]):
                os.replace(self.path(other), self.path(other).with_suffix(".gone"))
            self._clean_up()
        collectives.barrier()
        return final

    def _clean_up(self) -> None:
        """Restore a checkpoint that was about to be replaced, and remove incomplete ones."""
        for old in self.folder.glob("step-*.old"):
            if not old.with_suffix("").exists():
                os.replace(old, old.with_suffix(""))
        for path in self.folder.glob("step-*.*"):
            if path.suffix in (".part", ".old", ".gone"):
                shutil.rmtree(path)

    def load(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        step: int | None = None,
        verify: bool = True,
        **more: Any,
    ) -> int:
        """Load the last checkpoint, or the one of a step. No code from the checkpoint is run.

        Args:
            model, optimizer: What to load into. Gradients are dropped.
            step: The step to load; None loads the last one.
            verify: Whether every file must have the checksum it was written with. If a file of the last
                checkpoint has not, the one before it is loaded, with a `CheckpointWarning`. False also loads
                checkpoints of other programs, which have no checksums.
            **more: The dicts and tensors of `save`, filled in place.

        Returns:
            The step of the checkpoint; 0 if there is none.

        Raises:
            FileNotFoundError: There is no checkpoint of ``step``.
            ValueError: No checkpoint has the right checksums, or an entry of ``more`` cannot be filled.
            UntrustedCheckpointError: The checkpoint holds more than tensors and plain values.
        """
        from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict

        from sparring.heads.parallel.safe_reader import load

        for name, value in more.items():
            if not isinstance(value, (dict, Tensor)):
                raise ValueError(f"{name}: expected a dict or a tensor to fill, got {type(value).__name__}")
        collectives = Collectives()
        if collectives.rank == 0:
            self._clean_up()
        steps = collectives.broadcast_object(
            self.steps()
        )  # a shared folder may look different to other ranks
        if step is None and not steps:
            return 0
        if step is not None and step not in steps:
            available = ", ".join(map(str, steps)) or "none"
            raise FileNotFoundError(f"{self.folder}: no checkpoint of step {step}; available: {available}")
        candidates = steps if step is None else [step]
        step = self._last_verified(candidates, collectives.rank) if verify else candidates[-1]
        if optimizer is not None:
            # torch leaves out the state of an optimizer whose parameters have gradients
            optimizer.zero_grad(set_to_none=True)
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

    def _last_verified(self, steps: list[int], rank: int) -> int:
        """The last step whose files are as they were written; the same on all ranks."""
        problems: list[str] = []
        for step in reversed(steps):
            problem = verify_manifest(self.path(step))
            if problem is None:
                if problems and rank == 0:
                    message = f"{problems[0]}; training goes on from step {step}"
                    warnings.warn(message, CheckpointWarning, stacklevel=3)
                return step
            problems.append(f"{self.path(step)}: {problem}")
        raise ValueError(
            f"no checkpoint can be read: {'; '.join(problems)}; load another step, or use verify=False"
        )


def _state(model: nn.Module, optimizer: Optimizer | None, more: Mapping[str, Any]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    state = {"model": get_model_state_dict(model), **more}
    if optimizer is not None:
        state["optimizer"] = get_optimizer_state_dict(model, optimizer)
    return state


def write_manifest(folder: Path) -> None:
    """Write the checksums of a folder's files to its manifest. Each rank hashes a share of the files."""
    collectives = Collectives()
    names = collectives.broadcast_object([name for name in file_names(folder) if name != MANIFEST])
    own_names = names[collectives.rank :: collectives.size]
    shares = collectives.gather_objects({name: file_digest(folder / name) for name in own_names})
    if collectives.rank == 0:
        digests = {name: digest for share in shares for name, digest in share.items()}
        (folder / MANIFEST).write_text(_manifest_text(digests), encoding="utf-8")


def verify_manifest(folder: Path) -> str | None:
    """The problem of a folder, the same on all ranks; None if every file is as it was written."""
    collectives = Collectives()
    digests, problem = collectives.broadcast_object(
        _read_manifest(folder) if collectives.rank == 0 else ({}, None)
    )
    if problem is not None:
        return problem
    own_names = sorted(digests)[collectives.rank :: collectives.size]
    changed = changed_file(folder, {name: digests[name] for name in own_names})
    return next((problem for problem in collectives.gather_objects(changed) if problem is not None), None)


def _read_manifest(folder: Path) -> tuple[dict[str, str], str | None]:
    """The checksums by file name, and a problem."""
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
        digests = json.loads(text)["sha256"]
        damaged = text != _manifest_text(digests) or not all(isinstance(d, str) for d in digests.values())
    except FileNotFoundError:
        return {}, f"it has no {MANIFEST}, so nothing can be verified"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        damaged = True
    if damaged:
        return {}, f"{MANIFEST} is damaged"
    unlisted = [name for name in file_names(folder) if name != MANIFEST and name not in digests]
    return digests, f"{unlisted[0]} is not in its {MANIFEST}" if unlisted else None


def _manifest_text(digests: dict[str, str]) -> str:
    return json.dumps({"sha256": digests}, indent=1, sort_keys=True) + "\n"
