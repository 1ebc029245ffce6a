"""AS-Softmax in a loop of one's own, without a backward for what is won.

    python examples/plain_torch.py

Handwritten digits from scikit-learn; nothing is downloaded.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparring import AdaptiveAccumulation, ASSoftmaxLoss, skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--delta", type=float, default=0.3)
    args = parser.parse_args()

    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    train, test = train_test_split(range(len(y)), test_size=0.2, random_state=0)
    loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    loss = ASSoftmaxLoss(delta=args.delta)  # instead of nn.CrossEntropyLoss()
    compaction = skip.compact(model)  # backward on the survivors only: exact
    windows = AdaptiveAccumulation(lam=0.5, max_steps=4)  # AS-Speed
    for epoch in range(args.epochs):
        n_won = n_updates = 0
        for i, (inputs, target) in enumerate(loader, 1):
            rows = loss.rows(model(inputs), target)
            (rows.sum() * windows.add(rows)).backward()
            n_won += int(rows.won.sum())
            if windows.should_step or i == len(loader):
                windows.close(model.parameters())  # the mean over all rows of the window
                optimizer.step()
                optimizer.zero_grad()
                n_updates += 1
        with torch.no_grad():
            accuracy = (model(x[test]).argmax(1) == y[test]).float().mean()
        print(f"epoch {epoch + 1:2d}: {n_won / len(train):4.0%} won, {n_updates} updates, test accuracy {accuracy:.1%}")
    print(f"backward for {compaction.stats.n_samples_backward:,} of {compaction.stats.n_samples:,} samples")


if __name__ == "__main__":
    main()
