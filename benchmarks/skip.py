"""Time of a training step that skips the backward of won samples, relative to a full step.

    python benchmarks/skip.py             encoder, CNNs and LSTM at all shares, then skip="auto": ten minutes
    python benchmarks/skip.py --quick     the encoder at 0, 75 and 90 % won samples: about a minute

The encoder is a Hugging Face BERT of 6 layers, 384 wide, on 32 x 32 tokens with dropout. The CNN has three
convolutions on 64 images of 32 x 32. A step is forward, AS-Softmax and backward, without an optimizer. A bias
of the classifier, which dropout cannot change, decides which samples are won. The forms of skipping
alternate, the minimum over repeats counts, and a ratio is the time of a full step over that of the form. Next
to it is the largest difference of a gradient entry from the full backward, relative to the largest entry. Two
passes draw other dropout masks, so the last column has their difference without dropout.

Steps with skip="auto", its trials included, alternate with full steps. The ratio is that of their total
times.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from report import ROOT, provenance, write
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from sparring import ASSoftmaxLoss
from sparring.backward.skipper import ForwardResult, Skipper
from sparring.training.batches import forward, select_samples

SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
FORMS = ("off", "rows", "two-pass")
N_CLASSES = 150
RESULT = ROOT / "docs" / "results" / "skip" / "skip.json"
LOSS = ASSoftmaxLoss(delta=0.3)

Batch = tuple[Tensor, ...]


class Encoder(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        sizes = {
            "hidden_size": 384,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "intermediate_size": 1536,
        }
        self.bert = BertForSequenceClassification(
            BertConfig(
                **sizes,
                num_labels=N_CLASSES,
                hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=dropout,
            )
        )
        self.head = self.bert.classifier

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.bert(input_ids=ids, attention_mask=mask).logits  # type: ignore[no-any-return]


class Cnn(nn.Module):
    def __init__(self, dropout: float, norm: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 32), (32, 64), (64, 128)):
            layers += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.BatchNorm2d(after) if norm else nn.Identity(),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(dropout))
        self.head = nn.Linear(2048, N_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class Lstm(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, 256)
        self.lstm = nn.LSTM(256, 256, 2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(256, N_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(ids))[0][:, -1])  # type: ignore[no-any-return]


def images(n: int) -> Batch:
    return (torch.randn(n, 3, 32, 32),)


def tokens(n: int, mask: bool) -> Batch:
    ids = torch.randint(1, 5000, (n, 32))
    lengths = torch.randint(8, 33, (n, 1))
    return (ids, (torch.arange(32) < lengths).long()) if mask else (ids,)


MODELS: dict[str, tuple[Callable[[float], nn.Module], Callable[[], Batch]]] = {
    "encoder": (Encoder, lambda: tokens(32, mask=True)),
    "cnn": (Cnn, lambda: images(64)),
    "cnn, BatchNorm": (lambda dropout: Cnn(dropout, norm=True), lambda: images(64)),
    "lstm": (Lstm, lambda: tokens(32, mask=False)),
}


def make(name: str, won: float, dropout: float = 0.1) -> tuple[nn.Module, Batch]:
    torch.manual_seed(0)
    build, data = MODELS[name]
    model, inputs = build(dropout).train(), data()
    with torch.no_grad():
        model.head.bias[0] = 20.0  # type: ignore[union-attr, index, operator]
    n = len(inputs[0])
    target = torch.randint(1, N_CLASSES, (n,))
    target[torch.randperm(n)[: round(won * n)]] = 0  # the class that is predicted for all samples
    return model, (*inputs, target)


def step(skipper: Skipper, batch: Batch) -> float:
    skipper.model.zero_grad()
    torch.manual_seed(1)

    def compute(part: Batch) -> ForwardResult:
        logits, target = forward(skipper.model, part)
        return ForwardResult(logits, target, LOSS.rows(logits, target), len(target))

    start = time.perf_counter()
    done = skipper.forward(
        compute, batch, lambda part, samples: select_samples(part, samples, len(batch[-1]))
    )
    skipper.backward(done, 1 / len(batch[-1]))
    return time.perf_counter() - start


def gradients(form: str, model: nn.Module, batch: Batch) -> list[Tensor]:
    skipper = Skipper(model, form)
    step(skipper, batch)
    skipper.close()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def difference(form: str, name: str, won: float, dropout: float) -> float:
    model, batch = make(name, won, dropout)
    expected = gradients("off", model, batch)
    grads = gradients(form, model, batch)
    largest = max(float(grad.abs().max()) for grad in expected)
    return max(float((a - b).abs().max()) for a, b in zip(expected, grads, strict=True)) / (largest or 1.0)


def measure(name: str, shares: tuple[float, ...], repeats: int, console: Console) -> list[dict[str, Any]]:
    results = []
    for won in shares:
        console.print(f"  {name}, {won:.0%} won", style="dim")
        model, batch = make(name, won)
        forms = [form for form in FORMS if form != "two-pass" or "BatchNorm" not in name]
        best = dict.fromkeys(forms, float("inf"))
        for _ in range(repeats):
            for form in forms:
                skipper = Skipper(model, form)
                best[form] = min(best[form], step(skipper, batch))
                skipper.close()
        for form in forms:
            results.append(
                {
                    "model": name,
                    "won": won,
                    "form": form,
                    "ms": round(best[form] * 1e3, 2),
                    "speedup": round(best["off"] / best[form], 3),
                    "difference": difference(form, name, won, 0.1),
                    "difference_without_dropout": difference(form, name, won, 0.0),
                }
            )
    return results


def measure_auto(
    name: str, shares: tuple[float, ...], n_steps: int, console: Console
) -> list[dict[str, Any]]:
    results = []
    for won in shares:
        console.print(f"  auto: {name}, {won:.0%} won", style="dim")
        model, batch = make(name, won)
        twin, _ = make(name, won)
        full = Skipper(twin, "off")
        auto = Skipper(model, "auto")
        forms = []
        seconds = {"off": [step(full, batch)], "auto": [step(auto, batch)]}
        for _ in range(n_steps):
            seconds["off"].append(step(full, batch))
            seconds["auto"].append(step(auto, batch))
            forms.append(auto.costs.choose())  # type: ignore[union-attr]
        auto.close()
        # the slowest tenth was disturbed by other processes
        totals = {form: sum(sorted(times[1:])[: int(0.9 * n_steps)]) for form, times in seconds.items()}
        results.append(
            {
                "model": name,
                "won": won,
                "speedup": round(totals["off"] / totals["auto"], 3),
                "last_form": forms[-1],
            }
        )
    return results


def show(report: dict[str, Any], console: Console) -> None:
    for name in dict.fromkeys(r["model"] for r in report["steps"]):
        table = Table(title=f"{name}: time of a full step over that of a form; largest gradient difference")
        for column in ("won", "full", "rows", "difference", "two-pass", "difference", "no dropout"):
            table.add_column(column, justify="right")
        for won in dict.fromkeys(r["won"] for r in report["steps"]):
            forms = {r["form"]: r for r in report["steps"] if r["model"] == name and r["won"] == won}
            cells = [f"{won:.0%}", f"{forms['off']['ms']:.0f} ms"]
            for form in ("rows", "two-pass"):
                result = forms.get(form)
                cells += (
                    [f"{result['speedup']:.2f}x", f"{result['difference']:.0e}"]
                    if result
                    else ["refused", ""]
                )
            without_dropout = forms.get("two-pass", {}).get("difference_without_dropout")
            table.add_row(*cells, "" if without_dropout is None else f"{without_dropout:.0e}")
        console.print(table)
    if report["auto"]:
        table = Table(title='skip="auto": time of full steps over that of its steps, trials included')
        for column in ("model", "won", "speedup", "last form"):
            table.add_column(column)
        for r in report["auto"]:
            table.add_row(r["model"], f"{r['won']:.0%}", f"{r['speedup']:.2f}x", r["last_form"])
        console.print(table)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the encoder at 0, 75 and 90 %% won only")
    parser.add_argument("--repeats", type=int, default=12, help="steps of each form (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--out", type=Path, default=RESULT, help="the JSON file to write (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    console = Console()
    report = provenance(__file__, argv, args.threads) | {"steps": [], "auto": []}
    shares = (0.0, 0.75, 0.9) if args.quick else SHARES
    for name in ["encoder"] if args.quick else ["encoder", "cnn", "cnn, BatchNorm", "lstm"]:
        report["steps"] += measure(name, shares, args.repeats, console)
    if not args.quick:
        for name in MODELS:
            report["auto"] += measure_auto(name, (0.0, 0.5, 0.9), 24 if name == "encoder" else 60, console)
    show(report, console)
    write(report, args.out)
    console.print(f"written to {args.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
