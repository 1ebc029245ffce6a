"""AS-Softmax in a plain training loop, with AS-Speed and without a backward pass for won samples.

python examples/plain_torch.py

The data are the handwritten digits of scikit-learn; nothing is downloaded.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparring import AdaptiveAccumulation, ASSoftmaxLoss, skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=1400)
    args = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x[: args.samples], y[: args.samples]), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    loss = ASSoftmaxLoss(delta=0.3)  # instead of nn.CrossEntropyLoss()
    compaction = skip.compact(model)  # the backward pass runs on active samples only, and is exact
    accumulation = AdaptiveAccumulation(lam=0.5, max_steps=4)  # AS-Speed
    for epoch in range(args.epochs):
        model.train()
        n_won = 0
        for i, (inputs, target) in enumerate(loader, 1):
            rows = loss.rows(model(inputs), target)
            (rows.sum() * accumulation.add(rows)).backward()
            n_won += int(rows.won.sum())
            if accumulation.should_step or i == len(loader):
                accumulation.close(model.parameters())  # the gradient of the mean over the window
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean()
        print(f"epoch {epoch + 1}: accuracy {accuracy:.1%}, {n_won / len(loader.dataset):4.0%} won")
    stats = compaction.stats
    print(f"backward for {stats.n_samples_backward} of {stats.n_samples} samples")


if __name__ == "__main__":
    main()
