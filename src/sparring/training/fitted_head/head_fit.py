"""What fitting a head did, for the record of a run."""

from __future__ import annotations

import math
from typing import NamedTuple


class HeadFit(NamedTuple):
    """What `fit_head` did."""

    replaced: bool  # whether the layer was set; it is not where it was good before
    loss_before: float  # mean loss of held-out rows with the head as it was
    loss_after: float  # with the fitted one; infinite if its weights are large
    n_rows: int  # that were used, held-out ones included
    n_samples: int
    shrinkage: float
    temperature: float

    def __str__(self) -> str:
        if self.loss_after == math.inf:
            return "head kept: its inputs hardly differ, so a fit has large weights, as from scratch"
        change = f"held-out loss {self.loss_before:.3g} before, {self.loss_after:.3g} fitted"
        return f"head fitted to {self.n_rows:,} rows: {change}" if self.replaced else f"head kept: {change}"
