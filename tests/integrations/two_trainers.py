"""Run by test_hf.py under torchrun: trains and tells what the processes ended with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from sparring.integrations.hf import SparringTrainer
from tests.integrations.tiny import Sentences, arguments, bert, weights


def main(folder: str, wanted: str) -> None:
    told = json.loads(wanted)
    args = arguments(
        folder,
        num_train_epochs=6,
        per_device_train_batch_size=2,
        save_strategy="steps",
        save_steps=20,
        **told.get("args", {}),
    )
    trainer = SparringTrainer(
        bert(**told.get("model", {})), args, train_dataset=Sentences(told.get("n", 54)), **told["own"]
    )
    trainer.train(resume_from_checkpoint=told.get("resume"))
    mine = weights(trainer.model)
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine)
    found = {
        "equal": torch.equal(*everybody),
        "step": trainer.state.global_step,
        "max_steps": trainer.state.max_steps,
        "lr": trainer.lr_scheduler.get_last_lr()[0],
        "n_backward": trainer.corner.counts()["n_backward"],
        "n_updates": trainer.corner.record.totals["n_updates"],
        "weights": mine.tolist(),
    }
    if dist.get_rank() == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
