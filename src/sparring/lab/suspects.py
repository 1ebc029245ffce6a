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


@dataclass(frozen=True)
class Suspect:
    """A training sample whose label looks wrong."""

    index: int  # among the training samples
    sample: Sample
    given: str  # the label in the data
    proposed: str  # the label that training preferred
    score: float  # larger is more suspicious
    lead: float  # how far its strongest rival was ahead on average, as a probability
    conceded: float  # the share of looks at which it was conceded
    line_number: int | None = None  # in the user's file

    def line(self, kind: Kind, *, with_picture: bool = False) -> dict[str, Any]:
        """The suspect as plain data."""
        line: dict[str, Any] = {"index": self.index}
        if self.line_number is not None:
            line["line"] = self.line_number
        line["sample"] = kind.show(self.sample, self.index)[0]
        line |= {"given": self.given, "proposed": self.proposed}
        line |= {name: round(getattr(self, name), 4) for name in ("score", "lead", "conceded")}
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
        top: How many; None: as many as there are samples that another class led on average.

    Raises:
        UserError: The samples are not those of the run.
    """
    if history.n_samples != len(samples):
        raise UserError(
            f"the history is of {history.n_samples} training samples, the data has {len(samples)}: other data"
        )
    scores = history.scores(score)
    order = [i for i in history.suspects(score, top).tolist() if not math.isnan(scores[i])]
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
    leads = history.scores("margin")
    place, last_rival = history.last_doubt()
    rival = history.proposed() if kind.one_label else last_rival
    for i in order:
        given, proposed = kind.doubt(samples[i], labels, int(rival[i]), int(place[i]))
        yield Suspect(i, samples[i], given, proposed, float(scores[i]), float(leads[i]), float(conceded[i]))


def suspects_table(suspects: Sequence[Suspect], kind: Kind, n_samples: int, shown: int) -> Table:
    """The first suspects as a table that a person can act on."""
    rows: list[Row] = [
        [
            str(suspect.index if suspect.line_number is None else suspect.line_number),
            kind.show(suspect.sample, suspect.index)[0],
            suspect.given,
            suspect.proposed,
            number(suspect.score),
            percent(suspect.lead, 0),
            percent(suspect.conceded, 0),
        ]
        for suspect in suspects[:shown]
    ]
    by_line = any(suspect.line_number is not None for suspect in suspects)
    columns = [
        "line" if by_line else "index",
        kind.fields[0],
        "given",
        "proposed",
        "score",
        "lead %",
        "conceded %",
    ]
    share = 100 * len(suspects) / max(n_samples, 1)
    notes = [
        f"{len(suspects)} of {n_samples} training labels look wrong ({share:.1f} %), "
        f"{min(shown, len(suspects))} are shown",
        "lead %: how far the proposed label was ahead of the given one, on average over the epochs",
    ]
    return Table("Labels that look wrong", columns, rows, notes, n_text=4)
