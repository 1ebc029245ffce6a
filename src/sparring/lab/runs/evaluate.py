"""A network's figures on one part of the data: quality, loss, margins, and what it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparring.backward.skipper import Look
from sparring.heads.linear import LinearLoss
from sparring.lab.kinds import Kind
from sparring.lab.kinds.encoder import Encoder
from sparring.lab.runs.schema import N_BINS
from sparring.lab.task import Sample
from sparring.losses import Loss


class Outcome(NamedTuple):
    figures: dict[str, float]  # the metrics of the kind, loss, won_share, margin
    predicted: list[Any]  # one for each sample
    margins: list[float]  # p_margin of each sample, the smallest of its rows; nan where it has none
    histogram: list[int]  # of the rows' margins


class Evaluator:
    """Scores networks on the same samples again and again, batches of similar length, nothing kept but labels and margins."""

    def __init__(
        self, kind: Kind, encoder: Encoder, samples: Sequence[Sample], loss: Loss, batch_size: int = 64
    ) -> None:
        self.kind = kind
        self.encoder, self.samples, self.loss, self.batch_size = encoder, samples, loss, batch_size
        self.features = encoder.encode(samples)
        lengths = encoder.lengths(self.features) or [0] * len(samples)
        self.order = sorted(range(len(samples)), key=lengths.__getitem__)
        self.last: Outcome | None = None

    def __call__(self, net: nn.Module) -> dict[str, float]:
        """For ``Loop(evaluate=…)``."""
        self.last = self.outcome(net)
        return self.last.figures

    @torch.no_grad()
    def outcome(self, net: nn.Module) -> Outcome:
        net.eval()
        judge, device = self.encoder.objective(net, self.loss), next(net.parameters()).device
        predicted: list[Any] = [None] * len(self.samples)
        smallest = [float("nan")] * len(self.samples)
        every: list[Tensor] = []
        total = mass = n_won = n_valid = 0.0
        for start in range(0, len(self.order), self.batch_size):
            chosen = self.order[start : start + self.batch_size]
            samples, features = [self.samples[i] for i in chosen], [self.features[i] for i in chosen]
            batch = {name: value.to(device) for name, value in self.encoder.collate(features).items()}
            given, target = self.encoder.forward(net, batch)
            given = given.float()
            rows = judge.rows(given, target)
            total, mass = (
                total + rows.sum().item(),
                mass + float(rows.valid.sum() if rows.weight is None else rows.weight.sum()),
            )
            n_won, n_valid = n_won + rows.won.sum().item(), n_valid + rows.valid.sum().item()
            margin = (
                Look(given, target, rows, len(chosen), judge if isinstance(judge, LinearLoss) else None)
                .margins()
                .cpu()
            )
            every.append(margin[~margin.isnan()])
            least = margin.nan_to_num(torch.inf).amin(1)
            guesses = self.encoder.predict(net, batch, given, samples, features)
            for i, guess, value in zip(chosen, guesses, least.tolist(), strict=True):
                predicted[i], smallest[i] = guess, value if value < torch.inf else float("nan")
        together = torch.cat(every) if every else torch.zeros(0)
        figures = self.kind.score(self.samples, predicted, self.encoder.labels)
        figures |= {"loss": total / (mass or 1), "won_share": n_won / (n_valid or 1)}
        figures["margin"] = together.mean().item() if len(together) else 0.0
        return Outcome(figures, predicted, smallest, torch.histc(together, N_BINS, -1, 1).int().tolist())
