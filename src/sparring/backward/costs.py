"""Measured costs of forward and backward passes, and the form of skipping that pays."""

from __future__ import annotations

WARM_UP = 3  # full passes to measure, after a first one that is not counted, before another form is tried
SMOOTHING = 0.2
GAIN = 0.98  # a form must promise at most this share of a full pass's time
NEAR = 1.15  # an unmeasured form is tried if its estimate is at most this many times the best one
FORGET = 0.998  # per batch, so that a form that did not pay is tried again some hundred batches later


class Costs:
    """Running means of measured seconds. A form without measurements is tried once if its estimate is good.

    A backward pass on a share s of the samples is estimated at (0.05 + s) of a full one. ``excess`` is the
    ratio of measured to estimated time: it is large for a model whose backward pass has to run in full.

    >>> costs = Costs()
    >>> for _ in range(4):
    ...     costs.add("off", 1.0, 2.0, share=0.4)
    ...     costs.add_share(0.4)
    >>> costs.choose(), round(costs.min_dropped(), 2)
    ('rows', 0.05)
    >>> for _ in range(9):
    ...     costs.add("rows", 1.0, 2.0, share=0.4, walked=True)  # no gain, as with BatchNorm
    >>> costs.choose()
    'two-pass'
    """

    def __init__(self, two_pass: bool = True) -> None:
        self.two_pass = two_pass
        self.share = 1.0  # recent share of active samples
        self.excess = {"rows": 1.0, "two-pass": 1.0}
        self._n: dict[str, int] = {}  # measurements, the first one of each kind not counted
        self._mean: dict[str, float] = {}

    def add(self, form: str, forward: float, backward: float, share: float, *, walked: bool = False) -> None:
        """Add the seconds of a batch. ``walked``: the backward pass ran on the active samples only."""
        if form == "two-pass":
            self._add_excess(form, (forward + backward) / self._two_pass_estimate(share))
            return
        self._add_mean("forward", forward)
        if walked:
            self._add_excess("rows", backward / self._rows_estimate(share))
        else:
            self._add_mean("backward", backward)

    def add_share(self, share: float) -> None:
        """Add the share of active samples of a batch."""
        self.share += SMOOTHING * (share - self.share)
        for form, excess in self.excess.items():
            self.excess[form] = 1 + (excess - 1) * FORGET

    def choose(self) -> str:
        """Choose ``"off"``, ``"rows"`` or ``"two-pass"`` for the next batch."""
        if self._n.get("backward", 0) < WARM_UP:
            return "off"
        full = self._mean["forward"] + self._mean["backward"]
        estimates = {"rows": self._mean["forward"] + self._rows_estimate(self.share) * self.excess["rows"]}
        if self.two_pass:
            estimates["two-pass"] = self._two_pass_estimate(self.share) * self.excess["two-pass"]
        best = min(estimates, key=lambda form: estimates[form])
        if estimates[best] >= GAIN * full:
            return "off"
        for form, seconds in estimates.items():
            if self._n.get(form, -1) < 1 and seconds < NEAR * estimates[best]:
                return form
        return best

    def min_dropped(self) -> float:
        """The share of inactive samples from which on skipping them is faster than a full backward pass."""
        return min(max(0.05, 1.05 - 1 / self.excess["rows"]), 1.0)

    def _rows_estimate(self, share: float) -> float:
        return self._mean["backward"] * (0.05 + share)

    def _two_pass_estimate(self, share: float) -> float:
        return self._mean["forward"] + share * (self._mean["forward"] + self._mean["backward"])

    def _add_mean(self, name: str, seconds: float) -> None:
        n = self._n[name] = self._n.get(name, -1) + 1
        if n > 0:
            mean = self._mean.get(name, seconds)
            self._mean[name] = mean + max(SMOOTHING, 1 / n) * (seconds - mean)

    def _add_excess(self, form: str, ratio: float) -> None:
        n = self._n[form] = self._n.get(form, -1) + 1
        if n > 0:
            weight = 1.0 if n == 1 else 2 * SMOOTHING
            self.excess[form] += weight * (ratio - self.excess[form])
