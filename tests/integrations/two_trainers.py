"""Run by test_hf.py on two ranks: trains and writes the results of the processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sparring.integrations.hf import SparringTrainer
from tests.integrations.tiny import Sentences, arguments, bert, weights


def run(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    usual = {
        "num_train_epochs": 4,
        "per_device_train_batch_size": 2,
        "save_strategy": "steps",
        "save_steps": 20,
    }
    args = arguments(folder, **{**usual, **settings.get("args", {})})
    model, data = bert(**settings.get("model", {})), Sentences(settings.get("n", 54))
    trainer = SparringTrainer(model, args, train_dataset=data, **settings["own"])
    folders = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    trainer.train(resume_from_checkpoint=str(folders[1]) if settings.get("resume") else None)
    local = weights(trainer.model)
    gathered = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, local)
    return {
        "equal": torch.equal(*gathered),
        "step": trainer.state.global_step,
        "max_steps": trainer.state.max_steps,
        "lr": trainer.lr_scheduler.get_last_lr()[0],
        "n_backward": trainer.engine.totals()["n_backward"],
        "n_updates": trainer.engine.record.totals["n_updates"],
        "weights": local.tolist(),
    }


def main(folder: Path, settings: dict[str, Any]) -> None:
    results = {name: run(folder, each) for name, each in settings.items()}
    if dist.get_rank() == 0:
        (folder / "results.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
