"""The fitted head of a run that begins: a pass over its samples, which time and budget count."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from accelerate.utils import send_to_device

from sparring.heads.linear import LinearLoss
from sparring.losses.base import MultilabelLoss
from sparring.training.engine import Engine
from sparring.training.fitted_head.fit_head import HeadError, fit_head
from sparring.training.resting.sampler import CHECK_FACTOR, RevisitSampler

MOST_SAMPLES = 20_000  # that fit a head
# The preset keeps a head unless the fitted one has less than three quarters of its loss on held-out samples.
# With pre-trained encoders it has 0.07 (clinc_oos), 0.17 (conll2003), 0.48 (iflytek) and 0.67 (cifar100). On
# sst5, with 0.84, training from it gained nothing. With several labels per row the head is always kept: on
# reuters21578 (0.35) four epochs from a fitted one ended at a loss of 0.92 on dev, from a new one at 0.76,
# with the same F1.
KEEP_ABOVE = 0.75
# The preset keeps a head, too, if the fitted weights are large. With pre-trained encoders their scale is 5 to
# 24. With networks from scratch, whose random features hardly differ, it is 41 to 120: the first updates
# would throw the logits about, and training would lose up to six points (languages, fsdd).
MAX_SCALE = 32.0
PILOT = 0.1  # share of the pass after which it is looked whether that will be so


def fit_first(engine: Engine, n_done: int, *, required: bool = False) -> None:
    """Fit the head of a run that is about to begin. A collective call.

    The pass counts: in the time, the forward passes and the budget of the run.

    Args:
        engine: With a loader. Its parts say whether the head is fitted.
        n_done: Steps of the run so far: a resumed run has its head already.
        required: The user asks for it: raise where no head can be fitted, and take one that is better at all.
            Otherwise the record says what was done.
    """
    loader, record = engine.loader, engine.record
    if not engine.parts.fit_head or n_done or loader is None:
        return
    loss = engine.loss.loss if isinstance(engine.loss, LinearLoss) else engine.loss
    if isinstance(loss, MultilabelLoss) and not required:
        engine.say(["head kept: with several labels per row a fitted one is not reliably better"])
        return
    record.start_clock()
    head = engine.loss.linear if isinstance(engine.loss, LinearLoss) else None
    # On a CPU larger batches may be slower: EfficientNet took 2.6 times as long a sample in fourfold ones.
    factor = 1 if engine.device.type == "cpu" else CHECK_FACTOR
    batches = list(_first_look(loader.sampler, factor * loader.sampler.batch_size))
    data = (send_to_device(loader.fetch(indices).data, engine.device) for indices in batches)
    try:
        fit = fit_head(
            engine.net,
            data,
            head=head,
            forward=engine.forward,
            ignore_index=engine.loss.ignore_index,
            keep_above=1.0 if required else KEEP_ABOVE,
            max_scale=math.inf if required else MAX_SCALE,
            check_after=None if required else max(1, round(PILOT * len(batches))),
            stop_early=True,
            collectives=engine.collectives,
        )
    except HeadError as error:
        if required:
            raise
        engine.say([f"head not fitted: {error}"])
        return
    if fit.replaced:
        loader.scorecard.begin_with_fitted_head()
    engine.say([str(fit)])
    record.totals["n_forward"] += fit.n_samples
    if engine.budget is not None:
        engine.budget.add(fit.n_samples, 0)
        engine.budget.spent_before = engine.budget.spent
    record.add_time()


def _first_look(sampler: RevisitSampler, batch_size: int) -> Iterator[list[int]]:
    """Batches of this process, in random order, each of samples of similar length."""
    generator = torch.Generator().manual_seed(sampler.seed)
    indices = torch.randperm(sampler.scorecard.n_samples, generator=generator)[:MOST_SAMPLES]
    if sampler.lengths is not None:
        indices = indices[sampler.lengths[indices].argsort(stable=True)]
    batches = indices.split(batch_size * sampler.world_size)
    for i in torch.randperm(len(batches), generator=generator).tolist():
        # as many samples on each process; the first ones fill up
        batch = torch.cat([batches[i], batches[i][: -len(batches[i]) % sampler.world_size]])
        yield batch[sampler.rank :: sampler.world_size].tolist()
