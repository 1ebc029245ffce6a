"""Run by test_resume.py: a run with everything on, slow enough to be killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from sparring import ASSoftmaxLoss, WarmupDelta
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.loop import Loop
from tests.training.toy import N, digits_like, net


class Slow(Dataset[Any]):
    data = digits_like()

    def __init__(self, pause: float) -> None:
        self.pause = pause

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.pause)
        return self.data[index]


def main(folder: Path, out: Path, pause: float) -> None:
    torch.set_num_threads(1)
    model, card = net(), Scorecard(N, check=True, max_rest=2, earn=1)
    loss = ASSoftmaxLoss(WarmupDelta(0.3, total_steps=72, share=0.1))
    settings = {"batch_size": 8, "epochs": 6, "lr": 0.02, "accumulation": AdaptiveAccumulation(0.5, 4)}
    saving = {"folder": folder, "save_every": 2, "evaluate": lambda _: {"zero": 0.0}, "eval_every": 7}
    record = Loop(model, loss, Slow(pause), scorecard=card, **settings, **saving).run()
    state = {"model": model.state_dict(), "card": card.state_dict()}
    torch.save({**state, "epochs": record.epochs, "totals": record.totals}, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
