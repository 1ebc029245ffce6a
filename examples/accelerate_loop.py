"""The same with Accelerate: any device, mixed precision, one process or many. Nothing of ours wraps the Accelerator.

    python examples/accelerate_loop.py
    accelerate launch --multi_gpu --num_processes 2 examples/accelerate_loop.py --task clinc_oos --model minilm --lr 5e-4

Several processes without a GPU: ACCELERATE_USE_CPU=true before the second. The default's data comes with pycountry and its network is
trained from scratch; nothing is downloaded.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from sparring import AdaptiveAccumulation, ASSoftmaxLoss, skip
from sparring.lab.datasets import Where, get_task


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

    torch.manual_seed(0)
    data = get_task(args.task).load(Where.default())
    model, tokenizer = data.build_model(args.model)  # any model and any batches do
    encoder = data.encoder(tokenizer, max_length=64)
    loader = DataLoader(
        encoder.encode(data.train[: args.samples]), batch_size=32, shuffle=True, collate_fn=encoder.collate
    )
    accelerator = Accelerator()  # leave gradient_accumulation_steps at 1: windows are ours
    loader, model, optimizer = accelerator.prepare(
        loader, model, torch.optim.AdamW(model.parameters(), lr=args.lr)
    )
    skip.compact(accelerator.unwrap_model(model))
    loss, windows = ASSoftmaxLoss(delta=0.3), AdaptiveAccumulation(lam=0.5, max_steps=4)
    for epoch in range(args.epochs):
        n_seen = n_won = 0
        for i, batch in enumerate(loader, 1):
            last = windows.n_micro + 1 >= windows.steps or i == len(loader)
            with (
                nullcontext() if last else accelerator.no_sync(model)
            ):  # gradients are exchanged once a window
                rows = loss.rows(model.train()(**batch).logits, batch["labels"])
                n_all, n_masked = accelerator.reduce(
                    torch.stack([rows.valid.sum(), rows.won.sum()])
                ).tolist()  # the same on all processes
                scale = (
                    windows.add(n_all=n_all, n_masked=n_masked) * accelerator.num_processes
                )  # DDP takes the mean over processes
                accelerator.backward(rows.sum() * scale)
            if last:
                windows.close(model.parameters())
                optimizer.step()
                optimizer.zero_grad()
            n_seen, n_won = n_seen + n_all, n_won + n_masked
        accelerator.print(f"epoch {epoch + 1}: {n_won / n_seen:4.0%} won, accumulation {windows.steps}")


if __name__ == "__main__":
    main()
