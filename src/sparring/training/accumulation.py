"""AS-Speed: gradient accumulation that grows as more samples are won (Section 3.3, Eq. 19)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparring.losses.checks import check_count, check_positive
from sparring.losses.rows import RowLosses

READINGS = ("previous", "first")


class AdaptiveAccumulation:
    r"""The number of micro-batches in one optimizer step.

        steps = λ · N_all / (N_all − N_masked)                               (Eq. 19)

    rounded, with the paper's three restrictions: it never falls, grows by at most 1 from window to window,
    and stays within ``max_steps``. N_masked counts won rows and N_all valid rows; ignored rows (padding) are
    in neither. If every row is won it grows as far as it may; without a valid row it stays.

    Each micro-batch runs its own backward pass, so memory does not grow with the window. The gradient of a
    window is that of the mean over all its rows, whatever their number in each micro-batch.

    Args:
        lam: λ in Eq. 19.
        max_steps: The largest number of micro-batches.
        decide: ``"previous"`` takes the counts of the whole window before, "a prediction of the successive
            batches" in the paper's words. It is known before the window begins, as a Trainer needs it.
            ``"first"`` takes those of a window's first micro-batch, as the authors' script does.

    Raises:
        ValueError: For a setting out of its range.

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

    With several processes pass counts that are summed over them.
    """

    def __init__(self, lam: float = 0.5, max_steps: int = 5, *, decide: str = "previous") -> None:
        if decide not in READINGS:
            raise ValueError(f"decide must be one of {', '.join(READINGS)} (window); got {decide!r}")
        self.lam = check_positive("lam", lam, note="Eq. 19; the paper uses 0.5 to 1.5")
        self.max_steps = check_count("max_steps", max_steps, note="1 is no accumulation")
        self.decide = decide
        self.reset()

    def reset(self) -> None:
        """Prepare for a run: start with the first window length."""
        self.steps = 1  # length of the current window
        self._open()

    def _open(self) -> None:
        self.n_micro = 0  # micro-batches in the current window so far
        self.n_all = self.n_masked = 0  # rows and won rows in the current window
        self.mass = 0.0  # the divisor of the mean: rows, or the sum of their class weights
        self.unit = 0.0  # the mass of the first micro-batch

    @property
    def should_step(self) -> bool:
        """Whether the window is full."""
        return self.n_micro >= self.steps

    def add(
        self, rows: RowLosses | None = None, *, n_all: int = 0, n_masked: int = 0, mass: float | None = None
    ) -> float:
        """Add a micro-batch: its rows, or their counts.

        Args:
            rows: The losses of the micro-batch.
            n_all, n_masked: Instead of ``rows``: the numbers of valid and of won rows.
            mass: The sum of the valid rows' class weights, if there are class weights.

        Returns:
            The factor for the *sum* of the losses, before the backward pass.
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
        """End the window, full or not, before the optimizer step.

        Returns:
            The factor that makes the summed gradients those of the mean: 1 for an even, full window. It is
            applied to the gradients of ``parameters``.
        """
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
        """The length of the next window, by Eq. 19 and its restrictions."""
        if n_all == 0:
            return self.steps
        active = n_all - n_masked
        wanted = round(self.lam * n_all / active) if active else self.max_steps
        return min(max(self.steps, min(wanted, self.steps + 1)), self.max_steps)

    def state_dict(self) -> dict[str, Any]:
        names = ("steps", "n_micro", "n_all", "n_masked", "mass", "unit")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.state_dict():
            setattr(self, name, state[name])

    def __repr__(self) -> str:
        settings = f"lam={self.lam}, max_steps={self.max_steps}, decide={self.decide!r}"
        return f"AdaptiveAccumulation({settings}): steps={self.steps}"


class ConstantAccumulation(AdaptiveAccumulation):
    """Accumulation over a fixed number of micro-batches, with the same exact mean.

    >>> ConstantAccumulation(4).steps
    4
    """

    def __init__(self, steps: int = 1) -> None:
        super().__init__(max_steps=check_count("steps", steps))

    @classmethod
    def of(cls, accumulation: AdaptiveAccumulation | int) -> AdaptiveAccumulation:
        """An accumulation as it is, or a fixed one for a number of micro-batches."""
        return cls(accumulation) if isinstance(accumulation, int) else accumulation

    def reset(self) -> None:
        super().reset()
        self.steps = self.max_steps

    def grown(self, n_all: int, n_masked: int) -> int:
        return self.max_steps

    def __repr__(self) -> str:
        return f"ConstantAccumulation({self.steps})"
