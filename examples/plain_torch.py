"""AS-Softmax in a loop of one's own, without a backward for what is won: which language is it?

    python examples/plain_torch.py
    python examples/plain_torch.py --task clinc_oos --model minilm --lr 5e-4      # an encoder that installs as a wheel

The default's data comes with pycountry and its network is trained from scratch; nothing is downloaded.
"""

from __future__ import annotations

import argparse

import torch
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
        "epochs": 6,
        "samples": 4000,
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    args = parser.parse_args()

    torch.manual_seed(0)
    data = get_task(args.task).load(Where.default())
    model, tokenizer = data.build_model(args.model)  # any model and any batches do
    encoder = data.encoder(tokenizer, max_length=64)
    train, dev = encoder.encode(data.train[: args.samples]), encoder.encode(data.dev[: args.samples])
    loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=encoder.collate)
    looks = DataLoader(dev, batch_size=128, collate_fn=encoder.collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    loss = ASSoftmaxLoss(delta=0.3)  # instead of nn.CrossEntropyLoss()
    compaction = skip.compact(model)  # backward on the survivors only: exact
    windows = AdaptiveAccumulation(lam=0.5, max_steps=4)  # AS-Speed
    for epoch in range(args.epochs):
        n_won = 0
        for i, batch in enumerate(loader, 1):
            rows = loss.rows(model.train()(**batch).logits, batch["labels"])
            (rows.sum() * windows.add(rows)).backward()
            n_won += int(rows.won.sum())
            if windows.should_step or i == len(loader):
                windows.close(model.parameters())  # the mean over all rows of the window
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            right = sum(
                int((model.eval()(**batch).logits.argmax(1) == batch["labels"]).sum()) for batch in looks
            )
        print(
            f"epoch {epoch + 1}: {n_won / len(train):4.0%} won, accumulation {windows.steps}, dev accuracy {right / len(dev):.1%}"
        )
    print(f"backward for {compaction.stats.n_samples_backward:,} of {compaction.stats.n_samples:,} samples")


if __name__ == "__main__":
    main()
