"""A model, the optimizer, Mixup and the schedule of timm in a plain loop, without its training script.

    python examples/timm_loop.py

Mixup and label smoothing make class probabilities, which SoftmaxLoss takes and AS-Softmax does not. After
``mixup_off`` the targets are labels: AS-Softmax trains, and won images have no backward pass. timm needs a
torchvision that fits torch. The data are the digits of scikit-learn.
"""

import argparse

import timm
import torch
from sklearn.datasets import load_digits
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch.utils.data import DataLoader, TensorDataset

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
    dataset = TensorDataset(x[: args.samples], y[: args.samples])
    loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)  # Mixup needs pairs
    sizes = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 64, "depth": 2, "num_heads": 4}
    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=10, **sizes
    )  # pretrained=True with a network
    optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=args.epochs, warmup_t=1, warmup_lr_init=1e-4)
    mixup = Mixup(mixup_alpha=0.2, label_smoothing=0.1, num_classes=10)
    mixup_off = args.epochs // 2
    soft, hard = SoftmaxLoss(), ASSoftmaxLoss(delta=0.3)
    compaction = skip.compact(model)
    for epoch in range(args.epochs):
        schedule.step(epoch)
        model.train()
        for images, labels in loader:
            if epoch < mixup_off:
                images, target = mixup(images, labels)
                loss = soft(model(images), target)
            else:
                loss = hard(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    print(f"accuracy {(model(x[1400:]).argmax(1) == y[1400:]).float().mean():.1%}")
    print(f"backward for {compaction.stats.n_samples_backward} of {compaction.stats.n_samples} samples")


if __name__ == "__main__":
    main()
