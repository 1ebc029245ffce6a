"""A training loop on Accelerate: any device, mixed precision, one process or several.

    python examples/accelerate_loop.py
    ACCELERATE_USE_CPU=true torchrun --nproc-per-node 2 examples/accelerate_loop.py

The data are the handwritten digits of scikit-learn; nothing is downloaded.
"""

import argparse
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparring import AdaptiveAccumulation, ASSoftmaxLoss, skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=1797)
    args = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data[: args.samples] / 16, dtype=torch.float32)
    data = TensorDataset(x, torch.tensor(digits.target[: args.samples]))
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    accelerator = Accelerator()  # leave gradient_accumulation_steps at 1
    loader, model, optimizer = accelerator.prepare(
        DataLoader(data, batch_size=32, shuffle=True), net, torch.optim.AdamW(net.parameters(), lr=1e-3)
    )
    skip.compact(accelerator.unwrap_model(model))
    loss, accumulation = ASSoftmaxLoss(delta=0.3), AdaptiveAccumulation(lam=0.5, max_steps=4)
    for epoch in range(args.epochs):
        n_rows = n_won = 0
        for i, (inputs, target) in enumerate(loader, 1):
            last = accumulation.n_micro + 1 >= accumulation.steps or i == len(loader)
            with nullcontext() if last else accelerator.no_sync(model):  # gradients are summed once a window
                rows = loss.rows(model(inputs), target)
                counts = torch.stack([rows.valid.sum(), rows.won.sum()])
                n_all, n_masked = accelerator.reduce(counts).tolist()  # the same on all processes
                scale = accumulation.add(n_all=n_all, n_masked=n_masked)
                accelerator.backward(rows.sum() * scale * accelerator.num_processes)  # DDP takes the mean
            if last:
                accumulation.close(model.parameters())
                optimizer.step()
                optimizer.zero_grad()
            n_rows, n_won = n_rows + n_all, n_won + n_masked
        accelerator.print(f"epoch {epoch + 1}: {n_won / n_rows:4.0%} won, accumulation {accumulation.steps}")


if __name__ == "__main__":
    main()
