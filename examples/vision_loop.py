"""Images in a plain loop, as timm's recipes train them: Mixup with softmax first, then AS-Softmax.

    python examples/vision_loop.py

Mixup makes class probabilities, which a margin cannot be measured on: SoftmaxLoss takes them. Recipes turn
Mixup off for the last epochs; from there on, AS-Softmax trains, without label smoothing, and won images have
no backward pass. The data are the digits of scikit-learn; nothing is downloaded.
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from transformers import ConvNextConfig, ConvNextForImageClassification

from sparring import ASSoftmaxLoss, SoftmaxLoss, skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=1400)
    args = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]  # (N, 1, 8, 8)
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x[: args.samples], y[: args.samples]), batch_size=32, shuffle=True)
    stages = {"num_stages": 2, "hidden_sizes": [32, 64], "depths": [1, 1], "patch_size": 2}
    model = ConvNextForImageClassification(ConvNextConfig(num_channels=1, num_labels=10, **stages))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    soft, hard = SoftmaxLoss(), ASSoftmaxLoss(delta=0.3)
    compaction = skip.compact(model)
    for epoch in range(args.epochs):
        mixes = epoch < args.epochs // 2
        for images, labels in loader:
            if mixes:
                share = torch.distributions.Beta(0.2, 0.2).sample()
                onehot = F.one_hot(labels, 10).float()
                images, target = (share * z + (1 - share) * z.flip(0) for z in (images, onehot))
                loss = soft(model(images).logits, target)
            else:
                loss = hard(model(images).logits, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    model.eval()
    print(f"accuracy {(model(x[1400:]).logits.argmax(1) == y[1400:]).float().mean():.1%}")
    print(f"backward for {compaction.stats.n_samples_backward} of {compaction.stats.n_samples} samples")


if __name__ == "__main__":
    main()
