"""Save training time on won samples: a CNN on scikit-learn's digits, each way by itself and all together.

    python examples/speed.py
    python examples/speed.py --epochs 20 --seeds 3

The data comes with scikit-learn, nothing is downloaded. Contestants take turns, seed by seed; times are
ratios to softmax.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset

from sparring import make_loss
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.loop import train

CONTESTANTS: dict[str, Callable[[int], dict[str, Any]]] = {  # by the number of samples
    "softmax": lambda _: {"loss": make_loss("softmax"), "skip": "off"},
    "AS-Softmax": lambda _: {"skip": "off"},
    "+ AS-Speed": lambda _: {"skip": "off", "accumulation": AdaptiveAccumulation(lam=0.5, max_steps=4)},
    "+ skipping": lambda _: {"skip": "rows"},
    "+ skipping, rest": lambda n: {"skip": "rows", "scorecard": Scorecard(n)},
    "+ auto, rest": lambda n: {"skip": "auto", "scorecard": Scorecard(n)},
    "everything on": lambda _: {"speed": "fast"},
}
N_TRAIN = 1257


class Run(NamedTuple):
    accuracy: float
    seconds: float
    n_forward: float
    n_backward: float
    n_updates: float


def data(n: int) -> tuple[TensorDataset, TensorDataset]:
    digits = load_digits()
    parts = train_test_split(
        digits.images / 16, digits.target, test_size=0.3, random_state=0, stratify=digits.target
    )
    x, test_x, y, test_y = (torch.tensor(part) for part in parts)
    return TensorDataset(x[:n].float().unsqueeze(1), y[:n].long()), TensorDataset(
        test_x.float().unsqueeze(1), test_y.long()
    )


def network() -> nn.Module:
    return nn.Sequential(
        *(
            nn.Conv2d(1, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ),
        *(nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(2048, 10)),
    )


def run(name: str, seed: int, epochs: int, n: int) -> Run:
    torch.manual_seed(seed)
    model, (train_set, test_set) = network(), data(n)
    settings = {"loss": make_loss("as-softmax", delta=0.3), **CONTESTANTS[name](n)}
    record = train(model, data=train_set, batch_size=32, epochs=epochs, lr=1e-3, seed=seed, **settings)
    model.eval()
    with torch.no_grad():
        x, y = test_set.tensors
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    totals = record.totals
    return Run(accuracy, totals["seconds"], totals["n_forward"], totals["n_backward"], totals["n_updates"])


def show(runs: dict[str, list[Run]], n_looks: int, console: Console) -> None:
    table = Table(title="A CNN on digits: what each saving saves")
    for column in ("", "test accuracy %", "faster than softmax", "forwards", "backwards", "updates"):
        table.add_column(column, justify="right" if column else "left")
    for name, mine in runs.items():
        speed = statistics.median(
            base.seconds / own.seconds for base, own in zip(runs["softmax"], mine, strict=True)
        )
        spread = statistics.stdev(run.accuracy for run in mine) if len(mine) > 1 else 0.0
        table.add_row(
            name,
            f"{100 * statistics.mean(run.accuracy for run in mine):.2f} ± {100 * spread:.2f}",
            f"{speed:.2f}x",
            *(
                f"{100 * statistics.mean(count) / n_looks:.0f} %"
                for count in ([r.n_forward for r in mine], [r.n_backward for r in mine])
            ),
            f"{statistics.mean(run.n_updates for run in mine):.0f}",
        )
    console.print(table)
    console.print("forwards and backwards: samples, against one of each per sample and epoch", style="dim")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--samples", type=int, default=N_TRAIN, help="train on so many only")
    parser.add_argument(
        "--contestants", nargs="+", choices=list(CONTESTANTS), default=list(CONTESTANTS), metavar="NAME"
    )
    args = parser.parse_args()
    console = Console()
    names = list(dict.fromkeys(["softmax", *args.contestants]))
    runs: dict[str, list[Run]] = {name: [] for name in names}
    plan = [(name, seed) for seed in range(args.seeds) for name in names]
    for name, seed in track(plan, "training", console=console, disable=not console.is_terminal):
        runs[name].append(run(name, seed, args.epochs, args.samples))
    show(runs, args.epochs * args.samples, console)


if __name__ == "__main__":
    main()
