"""Run by test_replicas.py on two ranks: trains, resumes and diverges, and saves the results."""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

from sparring import ASSoftmaxLoss, DivergenceError, SoftmaxLoss, resting, skip
from sparring.files import CheckpointWarning
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.engine import Engine
from sparring.training.loop import Loop
from sparring.training.resume import ResumeError
from tests.training.test_divergence import broken, loop, poisoned
from tests.training.toy import N, digits_like, gap, net, run

COUNTS = ("n_forward", "n_backward", "n_won", "n_conceded")
SETTINGS: dict[str, dict[str, Any]] = {
    "everything": {
        "scorecard": Scorecard(N, max_rest=2),
        "accumulation": AdaptiveAccumulation(0.5, 4),
        "epochs": 8,
        "history": True,
    },
    "checks": {
        "scorecard": Scorecard(N, check=True, max_rest=1),
        "accumulation": AdaptiveAccumulation(decide="first"),
    },
    "fast": {"speed": "fast", "epochs": 8},
    "budget": {"speed": "fast", "budget": 8.0, "history": True},  # the share is measured on one process
    "budget of checks": {
        "scorecard": Scorecard(N, check=True, watch=True),
        "budget": 6.0,
        "settle": 0.2,
        "accumulation": AdaptiveAccumulation(0.5, 3),
    },
    "auto": {"skip": "auto", "scorecard": Scorecard(N)},
    "micro": {"skip": "micro", "accumulation": 3, "history": True},
    "concede": {"loss": SoftmaxLoss(concede=0.2), "history": True},
    "batch-norm": {"epochs": 2},
}


def trained(name: str, folder: Path | None = None) -> dict[str, Any]:
    """What a process ends with; without processes, the same with batches of twice the size."""
    accelerator = Accelerator()
    usual = {
        "epochs": 5,
        "batch_size": 8 // accelerator.num_processes,
        "lr": 0.02,
        "accelerator": accelerator,
    }
    settings = {**usual, **SETTINGS[name]}
    loss = settings.pop("loss", ASSoftmaxLoss(0.3))
    model = net(0.0 if name in ("micro", "concede", "batch-norm") else 0.1)
    if name == "batch-norm":
        model.insert(1, nn.BatchNorm1d(24))
        settings["folder"] = folder
    if accelerator.process_index:
        nn.init.zeros_(model[0].weight)  # the weights of the first process count
    n_backward: list[int] = []
    train_on = Engine.train_on

    def spy(engine: Engine, batches: Any) -> None:
        before = engine.record.totals["n_backward"]
        train_on(engine, batches)
        n_backward.append(int(engine.record.totals["n_backward"] - before))

    training = Loop(model, loss, digits_like(), **settings)
    Engine.train_on = spy  # type: ignore[method-assign]
    record = training.run()
    Engine.train_on = train_on  # type: ignore[method-assign]
    if name == "batch-norm":  # started again it finds itself finished, on every process
        again = copy.deepcopy(model)
        nn.init.zeros_(again[0].weight)
        Loop(again, loss, digits_like(), **settings).run()
        assert gap(again.state_dict(), model.state_dict()) == 0
    return {
        "weights": model.state_dict(),
        "card": training.sampler.scorecard.state_dict(),
        "n_backward": n_backward,
        "steps": training.engine.accumulation.steps,
        "n_updates": record.totals["n_updates"],
        "counts": [tuple(entry[count] for count in COUNTS) for entry in record.epochs],
        "delta": training.engine.delta,
        "history": training.margins.state_dict() if training.margins is not None else {},
    }


def by_hand(compacted: bool) -> dict[str, torch.Tensor]:
    """A plain loop over DistributedDataParallel; one process wins everything in every other batch."""
    model = net(0.0)
    parallel = nn.parallel.DistributedDataParallel(model)
    compaction = skip.compact(parallel) if compacted else None
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    x, y = digits_like().tensors
    for step in range(6):
        part = slice(8 * step + 4 * dist.get_rank(), 8 * step + 4 * dist.get_rank() + 4)
        rows = ASSoftmaxLoss(0.1).rows(parallel(x[part]), y[part])
        won = step % 2 == 0 and dist.get_rank() == 1
        (rows.mean() * (0.0 if won else 1.0)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert compaction is None or dist.get_rank() == 0 or compaction.stats.n_skipping >= 3
    return model.state_dict()


def rested() -> tuple[list[int], dict[str, Any]]:
    """The samples that each epoch of `sparring.resting` loads here, and the scorecard, in a plain loop."""
    data = resting(digits_like(), batch_size=4)
    parallel = nn.parallel.DistributedDataParallel(net(0.0))
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=0.02)
    sizes = []
    for _ in range(6):
        before = data.n_samples
        for x, y in data:
            data.update(ASSoftmaxLoss(0.3).rows(parallel(x), y)).backward()
            optimizer.step()
            optimizer.zero_grad()
        sizes.append(data.n_samples - before)
    data.scorecard.sync()
    return sizes, data.scorecard.state_dict()


def resumed(folder: Path) -> dict[str, Any]:
    """A run is resumed, refused with another learning rate, and resumed after damage."""
    whole, _ = run(folder=folder, epochs=2)
    results: dict[str, Any] = {"again": gap(whole, run(folder=folder, epochs=2)[0])}
    try:
        run(folder=folder, epochs=2, lr=0.5)
    except ResumeError as error:
        results["refused"] = "lr 0.02 (now 0.5)" in str(error)
    dist.barrier()
    if dist.get_rank() == 0:
        path = folder / "checkpoint.pt"
        path.write_bytes(path.read_bytes()[:-1])
    dist.barrier()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results["damaged"] = gap(whole, run(folder=folder, epochs=2)[0])
    results["warnings"] = sum(issubclass(warning.category, CheckpointWarning) for warning in caught)
    return results


def diverged(name: str) -> tuple[Any, ...]:
    """The step and the samples of a DivergenceError that only one process has the cause of."""
    training = loop(data=broken(17)) if name == "sample" else loop(poisoned(range(5, 6)))
    if name == "gradient" and dist.get_rank() == 0:
        training.model[1].calls = range(0)
    try:
        training.run()
    except DivergenceError as error:
        dist.barrier()  # no process is left waiting in a collective call
        return error.step, error.samples, error.last_loss
    return ()


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    rank = Accelerator().process_index
    torch.manual_seed(rank)
    results: dict[str, Any] = {name: trained(name, folder / "batch-norm") for name in SETTINGS}
    results["by-hand"] = {name: by_hand(name == "compacted") for name in ("plain", "compacted")}
    results["rested"] = rested()
    results["resumed"] = resumed(folder / "run")
    results["diverged"] = {name: diverged(name) for name in ("sample", "gradient")}
    torch.save(results, folder / f"results.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
