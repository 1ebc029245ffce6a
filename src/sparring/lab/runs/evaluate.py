"""Evaluate a network on one split: metrics, loss, margins and predictions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparring.heads.linear import LinearLoss
from sparring.lab.calibration import MOST_VALUES, RowScores, fit_temperature
from sparring.lab.kinds import Kind
from sparring.lab.kinds.encoder import Encoder
from sparring.lab.runs.schema import N_BINS
from sparring.lab.task import Sample, plain
from sparring.losses import Loss
from sparring.losses.diagnostics import margins

N_PICTURES = 60  # the hardest samples are written with a picture


class Calibration:
    """Collects the rows of a split with one class each: scores before and after scaling, and logits.

    Args:
        temperature: The temperature to measure besides 1, if there is one.
        keep_logits: Keep logits and targets, so that a temperature can be fitted on them.
    """

    def __init__(self, temperature: float | None = None, *, keep_logits: bool = False) -> None:
        self.temperature = temperature
        self.keep_logits = keep_logits
        self.n_values = 0
        self.logits: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.before: list[RowScores] = []
        self.after: list[RowScores] = []

    def add(self, logits: Tensor, target: Tensor, ignore_index: int) -> None:
        """Add a batch: logits with the classes last, and targets."""
        valid = target != ignore_index
        logits, target = logits[valid], target[valid]
        self.before.append(RowScores.of(logits, target))
        if self.temperature is not None:
            self.after.append(RowScores.of(logits, target, self.temperature))
        if self.keep_logits and self.n_values < MOST_VALUES:
            self.n_values += logits.numel()
            self.logits.append(logits)
            self.targets.append(target)

    def fitted(self) -> float | None:
        """The temperature that fits the rows best; see `fit_temperature`."""
        return fit_temperature(torch.cat(self.logits), torch.cat(self.targets))

    def record(self, split: str) -> dict[str, Any] | None:
        """What ``summary.json`` holds; None without rows, or if a logit is not finite."""
        before, after = (
            RowScores.joined(parts).figures() if parts else None for parts in (self.before, self.after)
        )
        if before is None or not math.isfinite(before["nll"]):
            return None
        return {"temperature": self.temperature, "split": split, "before": before, "after": after}


class Evaluation(NamedTuple):
    """What a network achieves on a split."""

    figures: dict[str, float]  # the metrics of the kind, and loss, won_share, margin
    predicted: list[Any]  # one prediction per sample
    margins: list[float]  # p_margin of each sample, the smallest of its rows; nan if it has none
    histogram: list[int]  # of the margins of all rows

    def lines(self, samples: Sequence[Sample], kind: Kind) -> Iterator[dict[str, Any]]:
        """The samples with predictions and margins; the hardest also with a picture."""
        finite = [i for i, margin in enumerate(self.margins) if not math.isnan(margin)]
        hardest = set(sorted(finite, key=self.margins.__getitem__)[:N_PICTURES])
        for i, sample in enumerate(samples):
            line = {**plain(sample), "predicted": self.predicted[i], "margin": self.margins[i]}
            if i in hardest and (picture := kind.picture(sample)):
                line["picture"] = picture
            yield line


class Evaluator:
    """Evaluates networks on the same samples, in batches of similar length.

    Args:
        kind: The kind of the samples.
        encoder: Makes batches of the samples.
        samples: The split.
        loss: The loss whose value, won rows and margins are measured.
        batch_size: Samples per batch.
    """

    def __init__(
        self, kind: Kind, encoder: Encoder, samples: Sequence[Sample], loss: Loss, batch_size: int = 64
    ) -> None:
        self.kind = kind
        self.encoder = encoder
        self.samples = samples
        self.loss = loss
        self.features = encoder.encode(samples)
        lengths = encoder.lengths(self.features) or [0] * len(samples)
        order = sorted(range(len(samples)), key=lengths.__getitem__)
        self.batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        self.last: Evaluation | None = None

    def __call__(self, net: nn.Module) -> dict[str, float]:
        """Evaluate, and return the figures. The whole result is kept as ``last``."""
        self.last = self.outcome(net)
        return self.last.figures

    @torch.no_grad()
    def outcome(self, net: nn.Module, calibration: Calibration | None = None) -> Evaluation:
        """Evaluate. ``calibration`` collects the rows, for a kind that is `Kind.calibrated`."""
        net.eval()
        objective = self.encoder.objective(net, self.loss)
        margins_of = objective.margins if isinstance(objective, LinearLoss) else margins
        device = next(net.parameters()).device
        predicted: list[Any] = [None] * len(self.samples)
        smallest = [float("nan")] * len(self.samples)
        row_margins: list[Tensor] = [torch.zeros(0)]
        total = weight = n_won = n_valid = 0.0
        for indices in self.batches:
            samples = [self.samples[i] for i in indices]
            features = [self.features[i] for i in indices]
            batch = {name: value.to(device) for name, value in self.encoder.collate(features).items()}
            outputs, target = self.encoder.forward(net, batch)
            outputs = outputs.float()
            rows = objective.rows(outputs, target)
            total += rows.sum().item()
            weight += float(rows.valid.sum() if rows.weight is None else rows.weight.sum())
            n_won += rows.won.sum().item()
            n_valid += rows.valid.sum().item()
            margin = margins_of(outputs, target).reshape(len(indices), -1).cpu()  # nan where a row is ignored
            row_margins.append(margin[~margin.isnan()])
            logits = outputs.movedim(1, -1) if outputs.ndim > 2 else outputs
            if calibration is not None:
                calibration.add(logits, target, self.loss.ignore_index)
            predictions = self.encoder.predict(net, batch, logits, samples, features)
            least = margin.nan_to_num(torch.inf).amin(1).tolist()
            for i, prediction, value in zip(indices, predictions, least, strict=True):
                predicted[i] = prediction
                smallest[i] = value if value < torch.inf else float("nan")
        all_margins = torch.cat(row_margins)
        figures = self.kind.score(self.samples, predicted, self.encoder.labels)
        figures["loss"] = total / (weight or 1)
        figures["won_share"] = n_won / (n_valid or 1)
        figures["margin"] = all_margins.mean().item() if len(all_margins) else 0.0
        return Evaluation(
            figures, predicted, smallest, torch.histc(all_margins, N_BINS, -1, 1).int().tolist()
        )
