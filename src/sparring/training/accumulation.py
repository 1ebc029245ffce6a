"""AS-Speed: gradient accumulation that grows as more samples are won (Section 3.3, Eq. 19)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparring.losses.checks import check_count, check_positive
from sparring.losses.rows import RowLosses

READINGS = ("previous", "first")


class AdaptiveAccumulation:
    r"""How many micro-batches make one optimizer step.

        steps = λ · N_all / (N_all − N_masked)                               (Eq. 19)

    rounded, with the paper's three restrictions: it never falls, grows by at most 1 from window to window, and stays within
    ``max_steps``. N_masked counts won rows and N_all valid ones: ignored rows (padding) are in neither. With every row won
    it grows as far as it may; with no valid row it stays.

    ``decide="previous"`` (the default) takes the counts of the whole window before: the paper's text calls the number "a
    prediction of the successive batches". It is known before the window begins, which is what several processes and
    a Trainer need, and it rests on more rows. ``decide="first"`` takes those of a window's own first micro-batch, as
    the authors' script does.

    Each micro-batch runs its own backward, so memory does not grow with the window, and the gradient of a window is that of the
    mean over all its rows, whatever their number in each micro-batch and however short the last window:

    >>> accumulation = AdaptiveAccumulation(lam=1.0, max_steps=3)
    >>> for n_won in (0, 5, 7, 8, 8):                                # of 8 rows in each micro-batch
    ...     scale = accumulation.add(n_all=8, n_masked=n_won)        # (rows.sum() * scale).backward()
    ...     if accumulation.should_step:                             # or: it was the last micro-batch
    ...         print(f"step after {accumulation.n_micro}, gradients times {accumulation.close():g}")
    step after 1, gradients times 1
    step after 1, gradients times 1
    step after 2, gradients times 1
    >>> accumulation.steps, accumulation.n_micro, accumulation.close()
    (3, 1, 3.0)

    Numbers only, no tensors: with rows in hand call ``add(rows)``, under several processes ``add(n_all=…, n_masked=…)`` with
    the counts summed over them. ``close(model.parameters())`` multiplies the gradients by itself.
    """

    def __init__(self, lam: float = 0.5, max_steps: int = 5, *, decide: str = "previous") -> None:
        if decide not in READINGS:
            raise ValueError(f"decide must be one of {', '.join(READINGS)} (window); got {decide!r}")
        self.lam = check_positive("lam", lam, note="Eq. 19; the paper uses 0.5 to 1.5")
        self.max_steps = check_count("max_steps", max_steps, note="1 is no accumulation")
        self.decide = decide
        self.reset()

    def reset(self) -> None:
        """Before a run: windows begin at their first length again."""
        self.steps = 1  # length of the current window
        self._open()

    def _open(self) -> None:
        self.n_micro = 0  # micro-batches in the current window so far
        self.n_all = self.n_masked = 0  # their rows
        self.mass = self.unit = (
            0.0  # what the mean divides by: rows, or their class weights; unit: the first micro-batch's
        )

    @property
    def should_step(self) -> bool:
        """The window is full."""
        return self.n_micro >= self.steps

    def add(
        self, rows: RowLosses | None = None, *, n_all: int = 0, n_masked: int = 0, mass: float | None = None
    ) -> float:
        """One more micro-batch: its rows, or their counts. Returns what to multiply the *sum* of its losses by.

        ``mass`` is the sum of the valid rows' class weights, where there are class weights.
        """
        if rows is not None:
            n_all, n_masked = int(rows.valid.sum()), int(rows.won.sum())
            mass = None if rows.weight is None else float(rows.weight.sum())
        if not 0 <= n_masked <= n_all:
            raise ValueError(
                f"n_masked must lie between 0 and n_all, got n_masked={n_masked} and n_all={n_all}"
            )
        mass = float(n_all) if mass is None else mass
        if self.n_micro == 0:
            if self.decide == "first":
                self.steps = self.grown(n_all, n_masked)
            self.unit = mass or 1.0
        self.n_micro += 1
        self.n_all += n_all
        self.n_masked += n_masked
        self.mass += mass
        return 1.0 / (self.unit * self.steps)

    def close(self, parameters: Iterable[Any] | None = None) -> float:
        """End the window, full or not: before the optimizer step. Returns what the summed gradients are to be multiplied by to be
        those of the mean (1 for an even, full window); given the parameters, it does so."""
        factor = self.unit * self.steps / self.mass if self.mass else 1.0
        if parameters is not None and factor != 1.0:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)
        if self.decide == "previous":
            self.steps = self.grown(self.n_all, self.n_masked)
        self._open()
        return factor

    def grown(self, n_all: int, n_masked: int) -> int:
        """The length of the window after one of length ``steps``, by Eq. 19 and its restrictions."""
        if n_all == 0:
            return self.steps
        active = n_all - n_masked
        wanted = round(self.lam * n_all / active) if active else self.max_steps
        return min(max(self.steps, min(wanted, self.steps + 1)), self.max_steps)

    def state_dict(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("steps", "n_micro", "n_all", "n_masked", "mass", "unit")
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.state_dict():
            setattr(self, name, state[name])

    def __repr__(self) -> str:
        return f"AdaptiveAccumulation(lam={self.lam}, max_steps={self.max_steps}, decide={self.decide!r}): steps={self.steps}"


class ConstantAccumulation(AdaptiveAccumulation):
    """Ordinary accumulation over a fixed number of micro-batches, with the same exact mean.

    >>> ConstantAccumulation(4).steps
    4
    """

    def __init__(self, steps: int = 1) -> None:
        super().__init__(max_steps=check_count("steps", steps))

    def reset(self) -> None:
        super().reset()
        self.steps = self.max_steps

    def grown(self, n_all: int, n_masked: int) -> int:
        return self.max_steps

    def __repr__(self) -> str:
        return f"ConstantAccumulation({self.steps})"
