"""A Lightning module with AS-Softmax, AS-Speed and resting samples.

    python examples/lightning_module.py
    python examples/lightning_module.py --task clinc_oos --model minilm --lr 5e-4      # an encoder that installs as a wheel

The default's data comes with pycountry and its network is trained from scratch; nothing is downloaded.
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

from sparring.integrations.lightning import SparringModule
from sparring.lab.datasets import Where, get_task


class Classifier(
    SparringModule, lightning.LightningModule
):  # ours: the base, its keywords, and self.resting as the loader
    def __init__(self, net: torch.nn.Module, lr: float, samples: list[Any], collate: Any) -> None:
        super().__init__(loss="as-softmax", delta=0.3, speed="all", accumulation=4, max_grad_norm=1.0)
        self.net, self.lr, self.samples, self.collate = net, lr, samples, collate

    def forward(self, **batch: Any) -> Any:
        return self.net(**batch)

    def train_dataloader(self) -> Any:
        return self.resting(self.samples, batch_size=32, collate_fn=self.collate)

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        self.log(
            "accuracy", (self(**batch).logits.argmax(1) == batch["labels"]).float().mean(), prog_bar=True
        )

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {
        "task": "languages",
        "model": "tiny",
        "lr": 3e-3,
        "epochs": 4,
        "samples": 4000,
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    args = parser.parse_args()

    lightning.seed_everything(0)
    data = get_task(args.task).load(Where.default())
    net, tokenizer = data.build_model(args.model)  # any module does
    encoder = data.encoder(tokenizer, max_length=64)
    train, dev = (encoder.encode(part[: args.samples]) for part in (data.train, data.dev))
    trainer = lightning.Trainer(
        max_epochs=args.epochs, logger=False, enable_checkpointing=False, enable_model_summary=False
    )
    trainer.fit(
        Classifier(net, args.lr, train, encoder.collate),
        val_dataloaders=DataLoader(dev, 128, collate_fn=encoder.collate),
    )
    print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
