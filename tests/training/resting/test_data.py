"""`sparring.resting`: a DataLoader that leaves out won samples, in a loop of one's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LinearLR

import sparring
from sparring import ASSoftmaxLoss, Scorecard, SoftmaxLoss, WarmupDelta, WeightedScorecard
from tests.training.toy import N, digits_like, net

EPOCHS = 8


def train(data: Any, *, epochs: int = EPOCHS, loss: Any = None) -> list[Tensor]:
    """A plain loop. Returns the first feature of the samples of each epoch, which tells them apart."""
    model = net(0.0)
    loss = loss or ASSoftmaxLoss(0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = LinearLR(optimizer, 1.0, 0.0, total_iters=EPOCHS * len(data))
    epochs_seen = []
    for _ in range(epochs):
        seen = [torch.empty(0)]
        for inputs, target in data:
            data.update(loss.rows(model(inputs), target)).backward()
            optimizer.step()
            optimizer.zero_grad()
            data.step(scheduler, getattr(loss, "delta", None))
            seen.append(inputs[:, 0])
        epochs_seen.append(torch.cat(seen))
    data.last_lr = scheduler.get_last_lr()[0]
    return epochs_seen


def test_won_samples_rest_and_schedules_end_where_they_should() -> None:
    data = sparring.resting(digits_like(), batch_size=8)
    loss = ASSoftmaxLoss(WarmupDelta(0.3, total_steps=EPOCHS * len(data), share=0.25))
    seen = train(data, loss=loss)
    sizes = [len(epoch) for epoch in seen]
    assert sizes[:2] == [N, N], "δ is 1 in the first quarter: nothing is won, and everything is loaded"
    assert min(sizes) < 0.7 * N
    assert data.n_samples == sum(sizes)
    assert data.last_lr == pytest.approx(0.0, abs=1e-9)
    assert loss.delta.n_steps == EPOCHS * len(data)
    every = digits_like().tensors[0][:, 0].sort().values
    for i in range(EPOCHS - 3):  # max_rest is 2
        assert torch.equal(torch.cat(seen[i : i + 3]).unique(), every)
    assert all(len(epoch.unique()) == len(epoch) for epoch in seen)


def test_every_sample_trains_at_the_end_and_without_rest() -> None:
    assert [len(epoch) for epoch in train(sparring.resting(digits_like(), 8, awake_from=6))][6:] == [N, N]
    assert [len(epoch) for epoch in train(sparring.resting(digits_like(), 8, max_rest=0))] == [N] * EPOCHS


def test_arguments_of_a_data_loader() -> None:
    """Workers and a collate function; without shuffling the order is that of the data set."""
    samples = [{"x": float(i), "y": i % 2} for i in range(10)]

    def collate(batch: list[dict[str, Any]]) -> Tensor:
        return torch.tensor([sample["x"] for sample in batch])

    data = sparring.resting(samples, 4, shuffle=False, collate_fn=collate, num_workers=1, drop_last=False)
    assert torch.cat(list(data)).tolist() == [sample["x"] for sample in samples]
    assert len(data) == 3


def test_an_epoch_that_is_left_early_ends_there() -> None:
    data = sparring.resting(digits_like(), batch_size=8)
    next(iter(data))
    assert data.epoch == 0
    assert sum(len(y) for _, y in data) == N
    assert data.epoch == 1


def test_a_restored_state_continues_in_the_middle_of_an_epoch() -> None:
    whole, restored = (sparring.resting(digits_like(), batch_size=8) for _ in range(2))
    train(whole, epochs=4)
    batches = iter(whole)
    for _ in range(2):
        next(batches)
    restored.load_state_dict(whole.state_dict())
    rest, again = list(batches), list(restored)
    assert len(rest) == len(again) > 0
    assert all(torch.equal(a[0], b[0]) for a, b in zip(rest, again, strict=True))
    assert whole.n_steps == restored.n_steps > 0


def test_tokens_rest_as_samples() -> None:
    """A sample with two rows is won if both are."""
    data = sparring.resting(digits_like(), batch_size=N, shuffle=False)
    next(iter(data))
    logits = torch.zeros(2 * N, 3)
    logits[: 2 * N - 1, 0] = 9.0  # the second row of the last sample is not won
    data.update(ASSoftmaxLoss(0.3).rows(logits, torch.zeros(2 * N, dtype=torch.long)))
    assert data.scorecard.won.tolist() == [True] * (N - 1) + [False]


def test_errors() -> None:
    with pytest.raises(ValueError, match="sampler: the scorecard decides which samples"):
        sparring.resting(digits_like(), 8, sampler=range(3))
    with pytest.raises(ValueError, match="check=True needs forward passes in eval mode"):
        sparring.resting(digits_like(), 8, scorecard=Scorecard(N, check=True))
    with pytest.raises(ValueError, match="the scorecard is for 3 samples, the data set has 96"):
        sparring.resting(digits_like(), 8, scorecard=Scorecard(3))
    with pytest.raises(TypeError, match="must have a length and items"):
        sparring.resting(iter([]), 8)
    data = sparring.resting(digits_like(), 8)
    rows = ASSoftmaxLoss().rows(torch.zeros(8, 3), torch.zeros(8, dtype=torch.long))
    with pytest.raises(RuntimeError, match="once for each batch"):
        data.update(rows)
    next(iter(data))
    data.update(rows)
    with pytest.raises(RuntimeError, match="once for each batch"):
        data.update(rows)


def test_samples_of_plain_softmax_rest_with_weights() -> None:
    data = sparring.resting(digits_like(), 16, scorecard=WeightedScorecard(N))
    model = net(dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    loss = SoftmaxLoss()
    for _ in range(8):
        for x, y in data:
            data.update(loss.rows(model(x), y, extras=("margin",))).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert data.n_samples < 0.8 * 8 * N
    assert int(data.scorecard.rested.max()) > 0
    x, y = next(iter(data))
    with pytest.raises(ValueError, match='extras=\\("margin",\\)'):
        data.update(loss.rows(model(x), y))
