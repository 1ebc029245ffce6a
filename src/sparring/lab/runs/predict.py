"""Predict with the best model of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sparring.lab.kinds import get_kind
from sparring.lab.runs.records import RunFolder, find_runs
from sparring.lab.task import UserError, plain
from sparring.lab.untrusted import check_text

BATCH = 32


def find_run(path: Path) -> RunFolder:
    """The run in a folder. If there are several below it, the one with the best metric on dev.

    Raises:
        UserError: There is no finished run, or the runs are on different data.
    """
    if not path.exists():
        raise UserError(f"{path}: no such folder; sparring run prints the folder of a run")
    runs = [run for run in find_runs(path) if run.model.exists()]
    if not runs:
        raise UserError(f"{path}: no finished run in it; the command that began one finishes it")
    data_sets = set()
    for run in runs:
        facts = run.read("data")
        data_sets.add((facts["task"], facts["kind"], facts["fingerprint"], run.summary()["metric"]))
    if len(data_sets) > 1:
        raise UserError(
            f"{path}: runs on different data; name one of the folders in it, such as {runs[0].path}"
        )
    return best_run(runs)


def best_run(runs: Sequence[RunFolder]) -> RunFolder:
    """The run with the best metric on dev."""
    return max(runs, key=lambda run: run.summary()["dev"][run.summary()["metric"]])


class Predictor:
    """The best model of a run. Code that comes with the model runs only with ``trust_remote_code``.

    Attributes:
        temperature: Divides the logits, so that probabilities are calibrated: fitted on dev by the run. None
            if the run has none; then ``why_not`` says why.

    Example:
        >>> predictor = Predictor(find_run(Path("runs/reviews")))  # doctest: +SKIP
        >>> predictor(["A fine film."])  # doctest: +SKIP
        [{'text': 'A fine film.', 'predicted': 'positive', 'probabilities': {...}}]
    """

    def __init__(self, run: RunFolder, *, trust_remote_code: bool = False) -> None:
        self.facts = run.read("data")
        self.kind = get_kind(self.facts["kind"])
        run.verify()
        self.net, self.processor = self.kind.load_model(run.model, trust_remote_code=trust_remote_code)
        self.net.eval()
        calibration = run.summary().get("calibration")
        self.temperature: float | None = calibration["temperature"] if calibration else None
        reason = "every sample of dev was right" if calibration else "it was not measured in this run"
        self.why_not = None if self.temperature else reason
        self.encoder = self.kind.encoder(self.facts["labels"], self.processor, top_k=self.facts["top_k"])

    @torch.no_grad()
    def __call__(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Predict.

        Args:
            texts: Texts, or paths of files for images and sounds.
            texts_b: The second texts of pairs.

        Returns:
            For each input its sample, what is ``predicted`` and, with one label per sample,
            ``probabilities`` and the ``temperature`` that calibrates them.
        """
        for number, text in enumerate([*texts, *(texts_b or ())], 1):
            check_text(text, f"text {number}")
        samples = self.kind.parse_inputs(texts, texts_b, self.facts["task"], self.processor)
        rows: list[dict[str, Any]] = []
        for start in range(0, len(samples), BATCH):
            part = samples[start : start + BATCH]
            features = self.encoder.encode(part)
            batch = self.encoder.collate(features)
            logits = None if self.kind.generates else self.net(**batch).logits
            predicted = self.encoder.predict(self.net, batch, logits, part, features)
            answers = [
                {**plain(sample), "predicted": value} for sample, value in zip(part, predicted, strict=True)
            ]
            if self.kind.one_label and logits is not None:
                for answer, row in zip(answers, logits / (self.temperature or 1.0), strict=True):
                    answer["probabilities"] = self.encoder.probabilities(row)
                    answer["temperature"] = self.temperature
            rows += answers
        return rows
