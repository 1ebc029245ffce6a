"""A Lightning module with AS-Softmax, AS-Speed and resting samples.

    python examples/lightning_module.py

Handwritten digits from scikit-learn; nothing is downloaded.
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from sparring.integrations.lightning import SparringModule


class Digits(SparringModule, lightning.LightningModule):
    """What is ours: the base class, its keywords, and ``self.resting`` as the loader."""

    def __init__(self, data: Any) -> None:
        super().__init__(loss="as-softmax", delta=0.3, speed="all", accumulation=4, max_grad_norm=1.0)
        self.data = data
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def train_dataloader(self) -> Any:
        return self.resting(self.data, batch_size=32)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    lightning.seed_everything(0)
    x, y = load_digits(return_X_y=True)
    train, dev = random_split(TensorDataset(torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)), [0.8, 0.2])
    trainer = lightning.Trainer(max_epochs=args.epochs, logger=False, enable_checkpointing=False, enable_model_summary=False)
    module = Digits(train)
    trainer.fit(module, val_dataloaders=DataLoader(dev, batch_size=256))
    print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
