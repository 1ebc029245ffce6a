"""Suspects: the training samples whose labels look wrong, ranked by the history of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sparring.lab.errors import UserError
from sparring.lab.kinds import Kind
from sparring.lab.kinds.encoder import Labels, Sample
from sparring.lab.table import Row, Table, number, percent
from sparring.training.history import CONCEDED, DEFAULT_SCORE, UNSEEN, MarginHistory

# A label is a suspect where its score is above this. Other scores only rank.
THRESHOLDS = {"margin": 0.0, "aum": 0.0, "conceded": 0.5}


@dataclass(frozen=True)
class Suspect:
    """A training sample whose label looks wrong."""

    index: int  # among the training samples
    sample: Sample
    given: str  # the label in the data
    proposed: str  # the label that training preferred
    score: float  # larger is more suspicious
    conceded: float  # the share of looks at which it was conceded

    def line(self, kind: Kind, *, with_picture: bool = False) -> dict[str, Any]:
        """The suspect as plain data."""
        line: dict[str, Any] = {"index": self.index, "sample": kind.show(self.sample, self.index)[0]}
        line |= {"given": self.given, "proposed": self.proposed}
        line |= {"score": round(self.score, 4), "conceded": round(self.conceded, 4)}
        picture = kind.picture(self.sample) if with_picture else None
        return line if picture is None else {**line, "picture": picture}


def rank_suspects(
    history: MarginHistory,
    samples: Sequence[Sample],
    kind: Kind,
    labels: Labels,
    *,
    score: str = DEFAULT_SCORE,
    top: int | None = None,
) -> list[Suspect]:
    """The samples whose labels look wrong, the most suspicious first.

    Args:
        history: Recorded while a network was trained on ``samples``.
        samples: The training samples, in the order of training.
        kind, labels: Of the task.
        score: One of `sparring.training.history.SCORES`.
        top: How many; None: those whose score is above the threshold of `THRESHOLDS`.

    Raises:
        UserError: The score has no threshold, and ``top`` is None; or the samples are not those of the run.
    """
    if history.n_samples != len(samples):
        raise UserError(
            f"the history is of {history.n_samples} training samples, the data has {len(samples)}: other data"
        )
    scores = history.scores(score)
    order = [i for i in history.rank(score).tolist() if not math.isnan(scores[i])]
    if top is not None:
        order = order[:top]
    elif score in THRESHOLDS:
        order = [i for i in order if scores[i] > THRESHOLDS[score]]
    else:
        raise UserError(f'the score "{score}" only ranks: say how many suspects you want with --top')
    return list(_suspects(history, samples, kind, labels, scores, order))


def _suspects(
    history: MarginHistory,
    samples: Sequence[Sample],
    kind: Kind,
    labels: Labels,
    scores: Tensor,
    order: Sequence[int],
) -> Iterator[Suspect]:
    conceded = (history.state == CONCEDED).sum(0) / (history.state != UNSEEN).sum(0).clamp(min=1)
    place, last_rival = history.last_doubt()
    rival = history.proposed() if kind.one_label else last_rival
    for i in order:
        given, proposed = kind.doubt(samples[i], labels, int(rival[i]), int(place[i]))
        yield Suspect(i, samples[i], given, proposed, float(scores[i]), float(conceded[i]))


def suspects_table(suspects: Sequence[Suspect], kind: Kind, n_samples: int, shown: int) -> Table:
    """The first suspects as a table that a person can act on."""
    rows: list[Row] = [
        [
            str(suspect.index),
            kind.show(suspect.sample, suspect.index)[0],
            suspect.given,
            suspect.proposed,
            number(suspect.score),
            percent(suspect.conceded, 0),
        ]
        for suspect in suspects[:shown]
    ]
    columns = ["index", kind.fields[0], "given", "proposed", "score", "conceded %"]
    share = 100 * len(suspects) / max(n_samples, 1)
    notes = [
        f"{len(suspects)} of {n_samples} training labels look wrong ({share:.1f} %), "
        f"{min(shown, len(suspects))} are shown",
        "score: how far the proposed label was ahead on average over the epochs, from -1 to 1",
    ]
    return Table("Labels that look wrong", columns, rows, notes, n_text=4)
