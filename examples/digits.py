"""Softmax and AS-Softmax on scikit-learn's handwritten digits: accuracy, time, and how much is won.

    python examples/digits.py
    python examples/digits.py --losses softmax as-softmax sparse-softmax entmax15 --seeds 5

The data comes with scikit-learn, nothing is downloaded. The loop is plain PyTorch; only the loss changes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import sparring


class Data(NamedTuple):
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


class Result(NamedTuple):
    accuracy: float  # on the test set, after the last epoch
    seconds: float
    won: list[float]  # share of training rows won, per epoch


def load() -> Data:
    digits = load_digits()
    x, test_x, y, test_y = train_test_split(
        digits.data / 16, digits.target, test_size=0.3, random_state=0, stratify=digits.target
    )
    return Data(
        *(
            torch.tensor(part, dtype=torch.float32 if i % 2 == 0 else torch.long)
            for i, part in enumerate((x, y, test_x, test_y))
        )
    )


def train(data: Data, loss: sparring.Loss, seed: int, epochs: int, batch_size: int = 32) -> Result:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    won = []
    start = time.perf_counter()
    for _ in range(epochs):
        model.train()
        n_won = 0
        for batch in torch.randperm(len(data.train_y)).split(batch_size):
            rows = loss.rows(model(data.train_x[batch]), data.train_y[batch])
            optimizer.zero_grad()
            rows.mean().backward()
            optimizer.step()
            n_won += int(rows.won.sum())
        won.append(n_won / len(data.train_y))
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        accuracy = (model(data.test_x).argmax(1) == data.test_y).float().mean().item()
    return Result(accuracy, seconds, won)


def show(results: dict[str, list[Result]], console: Console, epochs: int) -> None:
    table = Table(
        title=f"Digits: 1,257 training images, {epochs} epochs, {len(next(iter(results.values())))} seeds"
    )
    for column in (
        "loss",
        "test accuracy %",
        "seconds a run",
        "won, first epoch",
        "won, half-way",
        "won, last epoch",
    ):
        table.add_column(column, justify="left" if column == "loss" else "right")
    for name, runs in results.items():
        accuracies = [100 * run.accuracy for run in runs]
        spread = statistics.stdev(accuracies) if len(runs) > 1 else 0.0
        shares = [statistics.mean(run.won[i] for run in runs) for i in (0, epochs // 2, -1)]
        table.add_row(
            name,
            f"{statistics.mean(accuracies):.2f} ± {spread:.2f}",
            f"{statistics.median(run.seconds for run in runs):.2f}",
            *(f"{100 * share:.0f} %" for share in shares),
        )
    console.print(table)
    console.print(
        "A won row has loss and gradient exactly 0: its backward could be left out without changing a weight."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name in sparring.list_losses() if not name.startswith("multilabel")]
    parser.add_argument(
        "--losses",
        nargs="+",
        default=["softmax", "as-softmax"],
        choices=names,
        metavar="NAME",
        help=f"of {', '.join(names)}",
    )
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        help="runs a loss; they alternate, so that a noisy machine is noisy for all",
    )
    args = parser.parse_args()
    if args.epochs < 1 or args.seeds < 1:
        parser.error("--epochs and --seeds must be at least 1")
    torch.set_num_threads(1)  # the model is small: more threads only wait for each other
    console = Console()
    data = load()
    results: dict[str, list[Result]] = {name: [] for name in args.losses}
    for seed in track(range(args.seeds), description="training", console=console):
        for name in args.losses:
            results[name].append(train(data, sparring.make_loss(name), seed, args.epochs))
    show(results, console, args.epochs)


if __name__ == "__main__":
    main()
