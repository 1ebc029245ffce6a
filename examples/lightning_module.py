"""A Lightning module with AS-Softmax, AS-Speed and resting samples.

python examples/lightning_module.py

The data are the handwritten digits of scikit-learn; nothing is downloaded.
"""

import argparse
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sparring.integrations.lightning import SparringModule


class Classifier(SparringModule, lightning.LightningModule):
    def __init__(self, data: TensorDataset) -> None:
        super().__init__(loss="as-softmax", delta=0.3, speed="fast", accumulation=4, max_grad_norm=1.0)
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
        self.data = data

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def train_dataloader(self) -> Any:
        return self.resting(self.data, batch_size=32)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("accuracy", (self(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=1400)
    args = parser.parse_args()

    lightning.seed_everything(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    module = Classifier(TensorDataset(x[: args.samples], y[: args.samples]))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=args.epochs, **quiet)
    trainer.fit(module, val_dataloaders=DataLoader(TensorDataset(x[1400:], y[1400:]), 128))
    print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
