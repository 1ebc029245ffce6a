"""The scorecard: the last margin of each sample, and whether it trains, is checked or rests in an epoch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sparring.backward.skipper import ForwardResult, has_batch_norm
from sparring.losses.checks import check_count, check_range
from sparring.losses.rows import RowLosses

TRAIN = 0
CHECK = 1
REST = 2
NEVER = -1
DEFAULT_REST = 2  # epochs
MIN_RESTING = 0.05  # share of the samples; with fewer at rest, an epoch saves nothing that is worth it
MAX_LOST = 0.3  # share of the samples that come back from a rest


class Scorecard:
    """Decides from the last results of each sample what an epoch does with it.

    - It *trains*: a forward pass, and a backward pass unless the forward pass shows that it is won.
    - It is *checked* (with ``check``): a forward pass without gradients in eval mode, for a sample that was
      last won with ``spare`` margin. If it is lost, it trains soon after. A check costs less than training,
      but it changes the run: without dropout more samples are won.
    - It *rests*: it is not even loaded. A sample that was won with ``spare`` margin above δ in ``earn``
      results in a row rests one epoch, then two, and so on up to ``max_rest``. A win by less rests ``narrow``
      epochs and starts the count again. A loss ends all rest.

    So every sample is seen within ``bound`` = max_rest + 1 epochs. From the epoch ``awake_from`` on, every
    sample trains: training settles.

    Args:
        n_samples: Size of the data set.
        check: Whether to check samples.
        max_rest: Most epochs of rest in a row; 0 is no rest.
        spare: Margin above δ that earns rest.
        earn: Wins with ``spare`` margin in a row before the first rest.
        narrow: Epochs of rest after a win by less.
        watch: Whether the scorecard watches itself. No sample rests in an epoch in which fewer than
            ``MIN_RESTING`` of all would. Rests become shorter by an epoch each time that more than
            ``MAX_LOST`` of the samples that come back from a rest are lost.

    Example:
        >>> card = Scorecard(3, max_rest=2, spare=0.1, earn=1)
        >>> for epoch in range(4):
        ...     card.begin(epoch)
        ...     print(card.states().tolist())
        ...     index = (card.states() != REST).nonzero().squeeze(1)
        ...     margin = torch.tensor([0.9, 0.35, 0.0])[index]
        ...     card.update(index, won=margin > 0.3, margin=margin, delta=0.3)
        [0, 0, 0]
        [2, 0, 0]
        [0, 0, 0]
        [2, 0, 0]
    """

    rules: tuple[str, ...] = ("check", "max_rest", "spare", "earn", "narrow", "watch")
    reason = "are won"  # why samples rest, for the notes
    _tensors = ("margin", "eased", "seen", "due", "rested", "won")
    _numbers = ("epoch", "awake_from", "longest_rest", "pays", "head_is_fitted", "_has_rested")

    def __init__(
        self,
        n_samples: int,
        *,
        check: bool = False,
        max_rest: int = DEFAULT_REST,
        spare: float = 0.1,
        earn: int = 1,
        narrow: int = 0,
        watch: bool = False,
    ) -> None:
        self.n_samples = check_count("n_samples", n_samples)
        self.check = check
        self.max_rest = int(check_range("max_rest", max_rest, 0, note="0 is no rest"))
        self.spare = check_range("spare", spare, 0, 1, note="margin above delta that earns rest")
        self.earn = check_count("earn", earn, note="wins with spare margin before the first rest")
        self.narrow = int(check_range("narrow", narrow, 0, note="epochs of rest after a narrow win"))
        self.watch = watch
        self.epoch = 0
        self.awake_from: int | None = None  # the epoch from which every sample trains
        self.longest_rest = self.max_rest  # of now: `watch` may lower it
        self.head_is_fitted = False  # `fit_head` has set the last layer before training
        self.pays = not watch  # whether resting saves enough in this epoch
        self._has_rested = False
        self._notes: list[str] = []
        self.margin = torch.full((n_samples,), torch.nan)  # last margin
        self.eased = torch.zeros(n_samples, dtype=torch.int32)  # wins with spare margin in a row
        self.seen = torch.full((n_samples,), NEVER, dtype=torch.int32)  # epoch of the last result
        self.due = torch.zeros(n_samples, dtype=torch.int32)  # epoch in which the rest is over
        self.rested = torch.zeros(n_samples, dtype=torch.int32)  # epochs of rest before the last result
        self.won = torch.zeros(n_samples, dtype=torch.bool)  # in the last result

    def check_for(self, n_samples: int, model: nn.Module) -> None:
        """Raise ValueError if it cannot be used with this data and this model."""
        if self.check and has_batch_norm(model):
            raise ValueError(
                "BatchNorm would take the statistics of samples that failed a check alone; use check=False"
            )
        if self.n_samples != n_samples:
            raise ValueError(f"the scorecard is for {self.n_samples} samples, the data set has {n_samples}")

    @property
    def rest_limit(self) -> int:
        """The most epochs of rest in a row in this training, before `watch` lowers it."""
        return self.max_rest

    @property
    def bound(self) -> int:
        """The number of epochs within which every sample is seen."""
        return self.max_rest + 1

    def begin(self, epoch: int) -> None:
        """Call it before the first batch of an epoch."""
        self.epoch = epoch
        if not self.watch or self._is_awake():
            return
        self.shorten_rests()
        share = int((self._due() > epoch).sum()) / self.n_samples
        self.pays = share >= MIN_RESTING
        if self.pays and not self._has_rested:
            self._notes.append(f"epoch {epoch}: {share:.0%} of the samples {self.reason} and rest")
        self._has_rested = self._has_rested or self.pays

    def shorten_rests(self) -> None:
        """Shorten all rests by an epoch, if too many of the samples that came back are lost."""
        n_back, n_lost = self.returns(self.epoch - 1)
        if n_back >= MIN_RESTING * self.n_samples and n_lost > MAX_LOST * n_back and self.longest_rest:
            self.longest_rest -= 1
            self._notes.append(
                f"epoch {self.epoch}: {n_lost / n_back:.0%} of the samples that came back from a rest were"
                f" lost; rests now last at most {self.longest_rest} epoch(s)"
            )

    def take_notes(self) -> list[str]:
        """What `watch` has decided since the last call, for the record of a run."""
        notes, self._notes = self._notes, []
        return notes

    def conclusion(self) -> list[str]:
        """What a reader should know at the end of a run."""
        if not self.watch or self._has_rested:
            return []
        return [f"no sample rested: in no epoch before training settled could {MIN_RESTING:.0%} of them"]

    def returns(self, epoch: int) -> tuple[int, int]:
        """How many samples came back from a rest in an epoch, and how many of these were lost at δ < 1."""
        back = (self.seen == epoch) & (self.rested > 0)
        return int(back.sum()), int((back & ~self.won).sum())

    def _is_awake(self) -> bool:
        return self.awake_from is not None and self.epoch >= self.awake_from

    def _due(self) -> Tensor:
        """The epochs in which rests are over, none longer than `longest_rest`."""
        return torch.minimum(self.due, self.seen + 1 + self.longest_rest)

    def forget(self) -> None:
        """Drop all results before another run. A scorecard without results stays as it is."""
        if bool((self.seen != NEVER).any()):
            fresh = Scorecard(self.n_samples, max_rest=self.max_rest, watch=self.watch)
            kept = {"awake_from": self.awake_from, "longest_rest": self.rest_limit}
            kept["head_is_fitted"] = self.head_is_fitted
            self.load_state_dict({**fresh.state_dict(), **kept})

    def plan_rests(self, n_epochs: float | None = None, n_batches: float | None = None) -> None:
        """Prepare for a training of so many epochs and batches; None: their number is not known."""
        self.longest_rest = self.rest_limit

    def begin_with_fitted_head(self) -> None:
        """Training begins with a last layer that `fit_head` has set."""
        self.head_is_fitted = True

    def states(self) -> Tensor:
        """(n_samples,) TRAIN, CHECK or REST in this epoch."""
        if self._is_awake():
            return torch.full((self.n_samples,), TRAIN)
        rest = (self._due() > self.epoch) & self.pays
        check = (self.eased > 0) & ~rest if self.check else torch.zeros_like(rest)
        return rest * REST + check * CHECK

    def note(
        self, index: Tensor, result: ForwardResult, delta: float = 0.0, ignore_index: int = -100
    ) -> None:
        """Note the results of a forward pass. The margin of a sample is the smallest of its valid rows."""
        smallest = result.margins(ignore_index).nan_to_num(torch.inf).amin(1)
        margin = smallest.masked_fill(smallest.isinf(), torch.nan)
        self.update(index, result.won_samples(), margin, delta)

    def weigh(self, index: Tensor, rows: RowLosses) -> RowLosses:
        """Weigh the losses of these samples. Subclasses that leave samples out can compensate for it here."""
        return rows

    def update(self, index: Tensor, won: Tensor, margin: Tensor, delta: float = 0.0) -> None:
        """Note results.

        Args:
            index: (N,) indices of the samples.
            won: (N,) bool.
            margin: (N,) probability of the target minus that of its strongest opponent.
            delta: The δ that decided on ``won``.

        Raises:
            ValueError: For shapes that differ, or an index outside of the data set.
        """
        index, won = index.cpu(), won.cpu()
        margin = margin.detach().float().cpu()
        if not index.shape == won.shape == margin.shape:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (index, won, margin))
            raise ValueError(f"index, won and margin must agree in shape, got {shapes}")
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < self.n_samples:
            raise ValueError(
                f"sample {int(index.max())} is not one of the scorecard's {self.n_samples}; is it made for"
                " this data set?"
            )
        eased = torch.where(won & (margin >= delta + self.spare), self.eased[index] + 1, 0)
        rest = self.rests(index, won, margin, eased)
        seen = self.seen[index]
        missed = (self.epoch - 1 - seen).masked_fill((seen == NEVER) | torch.tensor(delta >= 1), 0)
        again = seen == self.epoch  # a second look: it failed a check, and trains
        self.rested[index] = torch.where(again, self.rested[index], missed)
        self.won[index] = won & (self.won[index] | ~again)
        self.margin[index] = margin
        self.eased[index] = eased
        self.seen[index] = self.epoch
        self.due[index] = self.epoch + 1 + rest

    def rests(self, index: Tensor, won: Tensor, margin: Tensor, eased: Tensor) -> Tensor:
        """(N,) for how many epochs these samples rest now.

        Args:
            index, won, margin: See `update`.
            eased: (N,) wins with ``spare`` margin in a row.
        """
        narrow = self.narrow * (won & ~margin.isnan()).int()
        return torch.maximum(eased - self.earn + 1, narrow).clamp(0, self.max_rest)

    def counts(self) -> dict[str, int]:
        """How many samples train, are checked and rest in this epoch."""
        counts = torch.bincount(self.states(), minlength=3).tolist()
        return {"train": counts[TRAIN], "check": counts[CHECK], "rest": counts[REST]}

    def sync(self) -> None:
        """Exchange the results of this epoch between processes. A collective call for the end of an epoch."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, self.state_dict())
        for state in reversed(states):  # where several processes saw a sample, the lowest rank counts
            fresh = state["seen"] == self.epoch
            for name in self._tensors:
                getattr(self, name)[fresh] = state[name][fresh]

    def state_dict(self) -> dict[str, Any]:
        tensors = {name: getattr(self, name).clone() for name in self._tensors}
        return {name: getattr(self, name) for name in self._numbers} | tensors

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if len(state["margin"]) != self.n_samples:
            raise ValueError(
                f"{self.n_samples} samples, but {len(state['margin'])} in the saved scorecard: other data"
            )
        state = {"head_is_fitted": False, **state}  # which earlier versions did not keep
        for name in self._numbers:
            setattr(self, name, state[name])
        for name in self._tensors:
            getattr(self, name).copy_(state[name])

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={getattr(self, name)}" for name in self.rules)
        return f"{type(self).__name__}({self.n_samples}, {settings}): {self.counts()} in epoch {self.epoch}"
