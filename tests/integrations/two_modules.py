"""Run by test_lightning.py: trains on two processes and tells what they ended with."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import lightning
import torch
import torch.distributed as dist

from tests.integrations.test_lightning import Ours
from tests.integrations.tiny import weights


def main(folder: str, wanted: str) -> None:
    warnings.filterwarnings("ignore")
    module = Ours(**json.loads(wanted))
    quiet = ("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary")
    settings = {"max_epochs": 4, "accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    trainer = lightning.Trainer(**settings, **dict.fromkeys(quiet, False))
    trainer.fit(module)
    mine = weights(module.net)
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine)
    if trainer.global_rank == 0:
        found = {
            "equal": torch.equal(*everybody),
            "n_updates": trainer.global_step,
            "n_backward": module.engine.record.totals["n_backward"],
            "lr": trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0],
        }
        (Path(folder) / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
