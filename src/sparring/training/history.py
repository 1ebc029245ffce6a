"""The history of every sample: its margin in each epoch, and whether it was won or conceded.

Wrong labels are learned late or never, so their margins stay low. `MarginHistory.scores` ranks by that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sparring.backward.skipper import ForwardResult
from sparring.files import atomic_write
from sparring.losses.checks import check_count
from sparring.losses.diagnostics import LabelMargins

UNSEEN = 0
ACTIVE = 1
WON = 2
CONCEDED = 3
DEFAULT_SCORE = "loss"  # it has the highest average precision: `docs/results/labels`

_LARGEST = torch.finfo(torch.float16).max
_NOWHERE = 2**31  # above all classes
_EMPTY = (torch.nan, torch.nan, -1, -1, UNSEEN)  # in the tables, where there is no look


def _table(name: str) -> Any:
    """A table of looks as an attribute that is complete whenever it is read."""

    def read(history: MarginHistory) -> Tensor:
        history._flush()
        return history._tables[name]

    def write(history: MarginHistory, table: Tensor) -> None:
        history._flush()
        history._tables[name] = table

    return property(read, write)


class MarginHistory:
    """Records one look at each sample in each epoch: 13 bytes a sample and epoch.

    Where a sample has several rows (tokens), the row with the smallest margin counts. Where it rests, the
    epoch has no look at it. Infinite margins are recorded as ±65504, the largest number in half precision.

    Args:
        n_samples: Size of the data set.

    Attributes:
        margin: (epochs, n_samples) logit of the target minus the largest other logit; NaN without a look.
            For multi-label samples, the smallest of a positive label minus the largest of a negative one.
        log_p: (epochs, n_samples) log-probability of the target, or of that positive label.
        rival: (epochs, n_samples) the class of the largest other logit; -1 without a look.
        place: (epochs, n_samples) the row within the sample (tokens), or the positive label (multi-label);
            -1 without a look.
        state: (epochs, n_samples) UNSEEN, ACTIVE, WON or CONCEDED.

    Example:
        >>> from sparring.losses.softmax import SoftmaxLoss
        >>> history = MarginHistory(2)
        >>> logits, target = torch.tensor([[3.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1])
        >>> for epoch in range(3):
        ...     rows = SoftmaxLoss(concede=0.5).rows(logits, target)
        ...     history.note(epoch, torch.arange(2), ForwardResult(logits, target, rows, 2))
        >>> history.rank().tolist(), history.proposed().tolist(), history.scores("conceded").tolist()
        ([1, 0], [1, 0], [0.0, 1.0])
    """

    _tensors = ("margin", "log_p", "rival", "place", "state")
    margin, log_p, rival, place, state = (_table(name) for name in _tensors)

    def __init__(self, n_samples: int) -> None:
        self.n_samples = check_count("n_samples", n_samples)
        types = (torch.float16, torch.float16, torch.int32, torch.int32, torch.uint8)
        self._tables = {
            n: torch.zeros(0, n_samples, dtype=t) for n, t in zip(self._tensors, types, strict=True)
        }
        self._pending: list[tuple[Tensor, ...]] = []  # looks that are not in the tables yet, of one epoch
        self._pending_epoch = 0
        self._is_pending = torch.zeros(n_samples, dtype=torch.bool)

    @classmethod
    def of(cls, history: MarginHistory | bool | None, n_samples: int) -> MarginHistory | None:
        """A history for a data set: the user's own, a new one for True, or none."""
        if not isinstance(history, MarginHistory):
            return cls(n_samples) if history else None
        if history.n_samples != n_samples:
            raise ValueError(f"the history is for {history.n_samples} samples, the data set has {n_samples}")
        return history

    @property
    def n_epochs(self) -> int:
        return len(self.state)

    def note(self, epoch: int, indices: Tensor, result: ForwardResult, ignore_index: int = -100) -> None:
        """Note the results of a forward pass; a second look in the same epoch replaces the first.

        Args:
            epoch: The epoch, from 0.
            indices: (N,) indices of the samples in the data set.
            result: Their logits, targets and row losses.
            ignore_index: The target of rows that are left out.
        """
        looks = result.label_margins(ignore_index)
        state = torch.where(result.active_samples(), ACTIVE, WON)
        if result.rows.conceded is not None:
            state[result.rows.conceded.view(result.n_samples, -1).any(1)] = CONCEDED
        multilabel = result.target.ndim > looks.margin.ndim
        place = looks.label if multilabel else torch.zeros_like(looks.label)
        if looks.margin.numel() != result.n_samples:  # several rows per sample: the smallest margin counts
            margin = looks.margin.reshape(result.n_samples, -1)
            worst = margin.nan_to_num(torch.inf).argmin(1, keepdim=True)  # +inf becomes finite
            looks = LabelMargins(*(x.reshape(result.n_samples, -1).gather(1, worst) for x in looks))
            place = worst
        indices = indices.cpu()
        if epoch != self._pending_epoch or bool(self._is_pending[indices].any()):
            self._flush()
        self._pending_epoch = epoch
        self._is_pending[indices] = True
        values = (looks.margin, looks.log_p, looks.rival, place, state)
        self._pending.append((indices, *(value.flatten() for value in values)))

    def _flush(self) -> None:
        """Write the pending looks into the tables: once for many batches, which is cheaper."""
        if not self._pending:
            return
        indices, *values = (torch.cat(column).cpu() for column in zip(*self._pending, strict=True))
        self._pending = []
        self._is_pending[indices] = False
        self._extend(self._pending_epoch + 1)
        unknown = values[0].isnan()
        for table, value, empty in zip(self._tables.values(), values, _EMPTY, strict=True):
            known = value.clamp(-_LARGEST, _LARGEST) if table.is_floating_point() else value
            look = known.masked_fill(unknown, empty).to(table.dtype)
            table[self._pending_epoch].index_copy_(0, indices, look)

    def forget(self) -> None:
        """Drop all looks before another run."""
        self.load_state_dict(MarginHistory(self.n_samples).state_dict())

    def _extend(self, n_epochs: int) -> None:
        n_new = max(0, n_epochs - len(self._tables["state"]))
        for (name, table), empty in zip(self._tables.items(), _EMPTY, strict=True):
            self._tables[name] = torch.cat([table, table.new_full((n_new, self.n_samples), empty)])

    # ------------------------------------------------------------ which labels are wrong

    def scores(self, score: str = DEFAULT_SCORE) -> Tensor:
        """(n_samples,) how suspicious each label is; NaN for samples without a look.

        Args:
            score: "loss": the mean cross entropy over the epochs. "margin": minus the mean margin of
                probabilities. "aum": minus the mean margin of logits (Pleiss et al. 2020). "conceded": the
                share of looks at which it was conceded. "forgetting": how often it was right and then wrong
                again, and the number of looks for a sample that was never right (Toneva et al. 2019).

        Raises:
            ValueError: For an unknown score.
        """
        if score not in SCORES:
            raise ValueError(f"score must be one of {', '.join(SCORES)}; got {score!r}")
        return SCORES[score](self)

    def rank(self, score: str = DEFAULT_SCORE) -> Tensor:
        """Indices of the samples, the most suspicious label first."""
        return self.scores(score).nan_to_num(-torch.inf).argsort(descending=True, stable=True)

    def suspects(self, score: str = DEFAULT_SCORE, top: int | None = None) -> Tensor:
        """Indices of the samples whose labels look wrong, the most suspicious first.

        Args:
            score: Ranks the samples, see `scores`.
            top: How many. None: as many as there are samples that another class led on average.
        """
        if top is None:
            top = int((self.scores("margin") > 0).sum())
        return self.rank(score)[:top]

    def proposed(self) -> Tensor:
        """(n_samples,) the class that was the strongest rival most often; -1 for samples without a look."""
        if not self.n_epochs:
            return torch.full((self.n_samples,), -1)
        # An epoch without a look gets a number that no other epoch has. Of equally frequent numbers, `mode`
        # returns the smallest, so a class precedes these numbers.
        alone = _NOWHERE + torch.arange(self.n_epochs)[:, None]
        most_frequent = torch.where(self.rival < 0, alone, self.rival).mode(0).values
        return torch.where(most_frequent < _NOWHERE, most_frequent, -1)

    def last_doubt(self) -> tuple[Tensor, Tensor]:
        """(n_samples,) the place and the strongest rival at the last look at each sample; -1 without one."""
        if not self.n_epochs:
            return self.proposed(), self.proposed()
        seen = self.state != UNSEEN
        last = (seen.int() * torch.arange(1, self.n_epochs + 1)[:, None]).argmax(0, keepdim=True)
        return self.place.gather(0, last).squeeze(0), self.rival.gather(0, last).squeeze(0)

    # ------------------------------------------------------------ state

    def save(self, path: Path) -> None:
        """Write an .npz file, beside it first and then renamed."""
        import numpy as np

        with atomic_write(path) as part, part.open("wb") as file:
            np.savez_compressed(file, **{name: getattr(self, name).numpy() for name in self._tensors})

    @classmethod
    def load(cls, path: Path) -> MarginHistory:
        """Read what `save` wrote. Nothing in the file is executed.

        Raises:
            ValueError: The file is damaged or holds something else.
        """
        import numpy as np

        try:
            # numpy leaves a file open that it opened itself and cannot read
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in cls._tensors}
        except Exception as error:  # damaged bytes can make zipfile, zlib or numpy raise anything
            raise ValueError(f"{path}: cannot be read as a history of margins ({error})") from None
        shape = tensors["state"].shape
        history = cls(shape[1] if len(shape) == 2 and shape[1] else 1)
        for name, tensor in tensors.items():
            expected: Tensor = getattr(history, name)
            if tensor.dtype != expected.dtype or tensor.shape != shape or tensor.ndim != 2:
                raise ValueError(f"{path}: {name} must be ({expected.dtype}, epochs by samples)")
        if bool((tensors["state"] > CONCEDED).any()):
            raise ValueError(f"{path}: a state must lie between {UNSEEN} and {CONCEDED}")
        history.load_state_dict(tensors)
        return history

    def sync(self, epoch: int) -> None:
        """Exchange the looks of an epoch between processes. A collective call for the end of an epoch."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        self._extend(epoch + 1)
        parts: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(parts, {name: getattr(self, name)[epoch] for name in self._tensors})
        for part in reversed(parts):  # where several processes saw a sample, the lowest rank counts
            seen = part["state"] != UNSEEN
            for name in self._tensors:
                getattr(self, name)[epoch, seen] = part[name][seen]

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).clone() for name in self._tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["state"].shape[1] != self.n_samples:
            raise ValueError(
                f"{self.n_samples} samples, but {state['state'].shape[1]} in the saved history: other data"
            )
        for name in self._tensors:
            setattr(self, name, state[name].clone())

    def __repr__(self) -> str:
        return f"MarginHistory({self.n_samples}): {self.n_epochs} epochs"


def _probability_margin(history: MarginHistory) -> Tensor:
    log_p: Tensor = history.log_p.float()
    p = log_p.exp()
    rival = torch.minimum((log_p - history.margin.float()).exp(), 1 - p)  # log p in half precision may be off
    return -(p - rival).nanmean(0)


def _conceded(history: MarginHistory) -> Tensor:
    state: Tensor = history.state
    return (state == CONCEDED).sum(0) / (state != UNSEEN).sum(0)


def _forgetting(history: MarginHistory) -> Tensor:
    events = torch.zeros(history.n_samples)
    n_looks = torch.zeros(history.n_samples)
    was_right = torch.zeros(history.n_samples, dtype=torch.bool)
    ever_right = was_right.clone()
    for margin in history.margin:
        right = margin > 0
        seen = ~margin.isnan()
        events += seen & was_right & ~right
        was_right = torch.where(seen, right, was_right)
        ever_right |= right
        n_looks += seen
    events = torch.where(ever_right, events, n_looks)
    return events.masked_fill(n_looks == 0, torch.nan)


SCORES: dict[str, Callable[[MarginHistory], Tensor]] = {
    "loss": lambda history: -history.log_p.float().nanmean(0),
    "margin": _probability_margin,
    "aum": lambda history: -history.margin.float().nanmean(0),
    "conceded": _conceded,
    "forgetting": _forgetting,
}
