"""The same with Accelerate: any device, mixed precision, one process or many. Nothing of ours wraps the Accelerator.

    python examples/accelerate_loop.py
    accelerate launch --num_processes 2 --cpu examples/accelerate_loop.py

Handwritten digits from scikit-learn; nothing is downloaded.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparring import AdaptiveAccumulation, ASSoftmaxLoss, skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y))
    accelerator = Accelerator()  # leave gradient_accumulation_steps at 1: windows are ours
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    loader, model, optimizer = accelerator.prepare(
        DataLoader(data, batch_size=32, shuffle=True), model, torch.optim.AdamW(model.parameters(), lr=1e-3)
    )
    skip.compact(accelerator.unwrap_model(model))
    loss, windows = ASSoftmaxLoss(delta=0.3), AdaptiveAccumulation(lam=0.5, max_steps=4)
    for epoch in range(args.epochs):
        n_seen = n_won = 0
        for i, (inputs, target) in enumerate(loader, 1):
            last = windows.n_micro + 1 >= windows.steps or i == len(loader)
            with nullcontext() if last else accelerator.no_sync(model):  # gradients are exchanged once a window
                rows = loss.rows(model(inputs), target)
                n_all, n_masked = accelerator.reduce(torch.stack([rows.valid.sum(), rows.won.sum()])).tolist()  # the same on all processes
                scale = windows.add(n_all=n_all, n_masked=n_masked) * accelerator.num_processes  # DDP takes the mean over processes
                accelerator.backward(rows.sum() * scale)
            if last:
                windows.close(model.parameters())
                optimizer.step()
                optimizer.zero_grad()
            n_seen, n_won = n_seen + n_all, n_won + n_masked
        accelerator.print(f"epoch {epoch + 1:2d}: {n_won / n_seen:4.0%} won, accumulation {windows.steps}")


if __name__ == "__main__":
    main()
