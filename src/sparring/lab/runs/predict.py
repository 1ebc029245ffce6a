"""A finished run put to use: texts, or files with images or sounds in; labels or texts out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sparring.lab.kinds.encode import encoder_for
from sparring.lab.kinds.generation import GenerationEncoder
from sparring.lab.models import build as models
from sparring.lab.readers.arrays import read_image
from sparring.lab.readers.wav import read_wav
from sparring.lab.runs.records import RunFolder, find_runs
from sparring.lab.task import TO_TEXT, Sample, UserError, plain
from sparring.lab.untrusted import check_text, reason

BATCH = 32


def find_run(path: Path) -> RunFolder:
    """The run in a folder; of several below it, the one that was best on dev."""
    if not path.exists():
        raise UserError(f"{path}: no such folder; sparring run prints the folder of a run")
    runs = [run for run in find_runs(path) if run.model.exists()]
    if not runs:
        raise UserError(f"{path}: no finished run in it; the command that began one finishes it")
    facts = [run.read("data") for run in runs]
    if (
        len(
            {
                (fact["task"], fact["kind"], fact["fingerprint"], run.summary()["metric"])
                for fact, run in zip(facts, runs, strict=True)
            }
        )
        > 1
    ):
        raise UserError(
            f"{path}: runs on different data; name one of the folders below it, such as {runs[0].path}"
        )
    return max(runs, key=lambda run: run.summary()["dev"][run.summary()["metric"]])


class Predictor:
    """The best model of a run. Code that it brings along is run with ``trust_remote_code`` only, whatever the run's files say."""

    def __init__(self, run: RunFolder, *, trust_remote_code: bool = False) -> None:
        self.facts = run.read("data")
        self.kind = self.facts["kind"]
        run.verify()
        self.net, self.reader = models.load(run.model, self.kind, trust_remote_code=trust_remote_code)
        self.net.eval()
        length = getattr(self.reader, "model_max_length", 0)
        self.encoder = encoder_for(self.kind, self.facts["labels"], self.reader, length, self.facts["top_k"])

    @torch.no_grad()
    def __call__(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """For each text (or path, for images and sounds) what is predicted and, where it has one label, how likely each is."""
        for number, text in enumerate([*texts, *(texts_b or ())], 1):
            check_text(text, f"text {number}")
        samples = self._samples(texts, texts_b)
        found: list[dict[str, Any]] = []
        for start in range(0, len(samples), BATCH):
            part = samples[start : start + BATCH]
            features = self.encoder.encode(part)
            batch = self.encoder.collate(features)
            if isinstance(self.encoder, GenerationEncoder):
                texts = self.encoder.generate(self.net, batch)
                found += [{**sample, "predicted": text} for sample, text in zip(part, texts, strict=True)]
                continue
            logits = self.net(**batch).logits
            for sample, guess, row in zip(
                part, self.encoder.decode(logits, part, features), logits, strict=True
            ):
                found.append({**plain(sample), "predicted": guess, **self._likely(row)})
        return found

    def _samples(self, texts: Sequence[str], texts_b: Sequence[str] | None) -> list[Sample]:
        if (self.kind == "pair") != (texts_b is not None):
            task = self.facts["task"]
            raise UserError(
                f"{task} is about pairs of texts: give the second with --pair"
                if self.kind == "pair"
                else f"{task} takes one text, not a pair"
            )
        if texts_b is not None:
            return [{"text": one, "text_b": other} for one, other in zip(texts, texts_b, strict=True)]
        if self.kind in ("image", "audio"):
            return [self._read(Path(text).expanduser()) for text in texts]
        if self.kind == "token":
            return [{"tokens": text.split()} for text in texts]
        return [{"source" if self.kind in TO_TEXT else "text": text} for text in texts]

    def _read(self, path: Path) -> Sample:
        if not path.is_file():
            raise UserError(
                f"{path}: no such file; {self.facts['task']} is about {self.kind} files, so predict takes their paths"
            )
        try:
            sample = read_image(path, self.reader.height) if self.kind == "image" else read_wav(path)
        except UserError:
            raise
        except Exception as error:  # whatever a damaged file makes a decoder raise
            raise UserError(f"{path}: not to be read as {self.kind}: {reason(error)}") from None
        return {**sample, "file": str(path)}

    def _likely(self, logits: torch.Tensor, n: int = 5) -> dict[str, Any]:
        """The likeliest labels with their probabilities, for one label a text."""
        if self.kind not in ("multi-class", "pair", "image", "audio"):
            return {}
        best = torch.softmax(logits.float(), -1).topk(min(n, len(self.encoder.labels)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return {"probabilities": {self.encoder.labels[i]: round(p, 4) for i, p in pairs}}
