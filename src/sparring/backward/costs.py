"""What forward and backward cost on this model, and which form of skipping pays at the share won of late."""

from __future__ import annotations

WARM_UP = 3  # full passes measured (after a first one that is not) before anything else is tried
SMOOTHING = 0.2
GAIN = 0.98  # a form must promise at least this part of a full pass's time
NEAR = 1.15  # a form not measured yet is tried if it promises to be no further off: scoring may be cheaper than a forward
FORGET = 0.998  # per pass, so that a form that did not pay is tried again some hundred passes later


class Costs:
    """Running means of measured seconds. Without measurements of its own a form is given the benefit of the doubt, once.

    A walk over a share s of the samples should cost (0.05 + s) of a full backward. ``excess`` is how much more it did:
    a model that must be run in full has a large one.

    >>> costs = Costs()
    >>> for _ in range(4):
    ...     costs.forward(1.0)
    ...     costs.backward(2.0)
    ...     costs.saw(kept=0.4)
    >>> costs.choose(), round(costs.min_dropped(), 2)
    ('rows', 0.05)
    >>> for _ in range(9):
    ...     costs.walk(2.0, kept=0.4)  # no gain at all: BatchNorm, say
    >>> costs.choose()
    'two-pass'
    """

    def __init__(self, two_pass: bool = True) -> None:
        self.two_pass = two_pass
        self.kept = 1.0  # share of samples that needed a backward of late
        self.excess = 1.0  # of walks over what they should cost
        self.excess_two = 1.0  # of two-pass looks
        self._n: dict[str, int] = {}
        self._mean: dict[str, float] = {}

    def _record(self, what: str, seconds: float) -> None:
        n = self._n[what] = self._n.get(what, -1) + 1
        if n > 0:  # the first of each kind warms caches up
            old = self._mean.get(what, seconds)
            self._mean[what] = old + max(SMOOTHING, 1 / n) * (seconds - old)

    def forward(self, seconds: float) -> None:
        self._record("forward", seconds)

    def backward(self, seconds: float) -> None:
        self._record("backward", seconds)

    def walk(self, seconds: float, kept: float) -> None:
        """A backward on a share of the samples."""
        self.excess = self._excess("rows", self.excess, seconds / self._walk(kept))

    def two(self, seconds: float, kept: float) -> None:
        """A two-pass look and its backward."""
        self.excess_two = self._excess("two-pass", self.excess_two, seconds / self._two(kept))

    def _excess(self, form: str, old: float, measured: float) -> float:
        """The first measurement warms up, the second counts whole, later ones smoothed."""
        n = self._n[form] = self._n.get(form, -1) + 1
        return old if n == 0 else measured if n == 1 else old + 2 * SMOOTHING * (measured - old)

    def saw(self, kept: float) -> None:
        """The share of a batch that needed a backward."""
        self.kept += SMOOTHING * (kept - self.kept)
        self.excess, self.excess_two = 1 + (self.excess - 1) * FORGET, 1 + (self.excess_two - 1) * FORGET

    def _walk(self, kept: float) -> float:
        return self._mean["backward"] * (0.05 + kept)

    def _two(self, kept: float) -> float:
        return self._mean["forward"] + kept * (self._mean["forward"] + self._mean["backward"])

    def choose(self) -> str:
        """``"off"``, ``"rows"`` or ``"two-pass"`` for the next batch."""
        if self._n.get("backward", 0) < WARM_UP:
            return "off"
        full = self._mean["forward"] + self._mean["backward"]
        promises = {"rows": self._mean["forward"] + self._walk(self.kept) * self.excess}
        if self.two_pass:
            promises["two-pass"] = self._two(self.kept) * self.excess_two
        best = min(promises, key=lambda name: promises[name])
        if promises[best] >= GAIN * full:
            return "off"
        untried = [
            name
            for name, seconds in promises.items()
            if self._n.get(name, -1) < 1 and seconds < NEAR * promises[best]
        ]
        return untried[0] if untried else best

    def min_dropped(self) -> float:
        """The share of zero rows from which on a walk beats a full backward."""
        return min(max(0.05, 1.05 - 1 / self.excess), 1.0)
