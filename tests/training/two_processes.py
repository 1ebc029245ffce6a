"""Run by test_replicas.py under torchrun: trains with everything on and tells what each process ended with."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

from sparring import ASSoftmaxLoss
from sparring.backward import skipper as skip
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.engine import Engine
from sparring.training.loop import Loop
from tests.training.toy import N, digits_like, net

train_on = Engine.train_on


def by_hand(compacted: bool) -> dict[str, torch.Tensor]:
    """Somebody's own loop over DistributedDataParallel; one process wins everything in every other batch."""
    model = net(0.0)
    parallel = nn.parallel.DistributedDataParallel(model)
    compaction = skip.compact(parallel) if compacted else None
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    x, y = digits_like().tensors
    for step in range(6):
        part = slice(8 * step + 4 * dist.get_rank(), 8 * step + 4 * dist.get_rank() + 4)
        logits = parallel(x[part])
        rows = ASSoftmaxLoss(0.1).rows(logits, y[part])
        won = step % 2 == 0 and dist.get_rank() == 1
        (rows.mean() * (0.0 if won else 1.0)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert compaction is None or dist.get_rank() == 0 or compaction.stats.n_skipping >= 3
    return model.state_dict()


def main(out: str, folder: str | None = None) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    results: dict[str, Any] = {}
    for name, dropout, settings in (
        (
            "everything",
            0.1,
            {
                "scorecard": Scorecard(N, max_rest=2, earn=1),
                "accumulation": AdaptiveAccumulation(0.5, 4),
                "epochs": 8,
            },
        ),
        (
            "checks",
            0.1,
            {
                "scorecard": Scorecard(N, check=True, max_rest=1),
                "accumulation": AdaptiveAccumulation(decide="first"),
            },
        ),
        ("all", 0.1, {"speed": "all", "epochs": 8}),
        ("auto", 0.1, {"skip": "auto", "scorecard": Scorecard(N, earn=1)}),
        ("micro", 0.0, {"skip": "micro", "accumulation": 3}),
        ("batch-norm", 0.0, {"folder": folder, "epochs": 2}),
    ):
        model = net(dropout)
        if name == "batch-norm":
            model.insert(1, nn.BatchNorm1d(24))
        if Accelerator().process_index:
            nn.init.zeros_(model[0].weight)  # the first process's weights count
        accelerator = Accelerator()
        settings = {
            "epochs": 5,
            "batch_size": 8 // accelerator.num_processes,
            "lr": 0.02,
            "accelerator": accelerator,
        } | settings
        loop = Loop(model, ASSoftmaxLoss(0.3), digits_like(), **settings)
        lost: list[int] = []

        def spy(engine: Engine, batches: Any, lost: list[int] = lost) -> None:
            before = engine.record.totals["n_backward"]
            train_on(engine, batches)
            lost.append(int(engine.record.totals["n_backward"] - before))

        Engine.train_on = spy  # type: ignore[method-assign]
        record = loop.run()
        if name == "batch-norm":  # started again it finds itself finished, on every process
            again = copy.deepcopy(model)
            nn.init.zeros_(again[0].weight)
            Loop(again, ASSoftmaxLoss(0.3), digits_like(), **settings).run()
            assert all(
                torch.equal(value, model.state_dict()[key]) for key, value in again.state_dict().items()
            )
        results[name] = {
            "weights": model.state_dict(),
            "card": loop.sampler.scorecard.state_dict(),
            "lost": lost,
            "steps": loop.engine.accumulation.steps,
            "n_updates": record.totals["n_updates"],
            "counts": [(entry["n_forward"], entry["n_backward"], entry["n_won"]) for entry in record.epochs],
            "delta": loop.engine.delta,
        }
    if dist.is_initialized() and dist.get_world_size() > 1:
        results["by-hand"] = {name: by_hand(name == "compacted") for name in ("plain", "compacted")}
    rank = Accelerator().process_index
    torch.save(results, f"{out}.{rank}")


if __name__ == "__main__":
    main(*sys.argv[1:])
