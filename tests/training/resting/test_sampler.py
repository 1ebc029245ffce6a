from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch.utils.data import DataLoader

from sparring.training import CHECK, TRAIN, Indexed, RevisitSampler, Scorecard


def _played(n: int, **settings: object) -> Scorecard:
    """Sample i was won in epoch 0 iff i is even."""
    card = Scorecard(n, **settings)
    index = torch.arange(n)
    card.update(index, index % 2 == 0, (index % 2 == 0).float(), 0.3)
    return card


def flat(lists: list[list]) -> list:
    return list(chain.from_iterable(lists))


def _epoch(sampler: RevisitSampler) -> list[list[int]]:
    return [list(batch) for batch in sampler]


def test_every_sample_once() -> None:
    sampler = RevisitSampler(Scorecard(23), 5, seed=3)
    first, second = _epoch(sampler), _epoch(sampler)
    for epoch in (first, second):
        assert sorted(flat(epoch)) == list(range(23))
        assert sorted(map(len, epoch)) == [3, 5, 5, 5, 5]
    assert first != second
    again = RevisitSampler(Scorecard(23), 5, seed=3)
    assert [_epoch(again), _epoch(again)] == [first, second]
    assert _epoch(RevisitSampler(Scorecard(23), 5, seed=4)) != first


def test_a_remainder_of_one_joins_the_batch_before() -> None:
    assert sorted(map(len, _epoch(RevisitSampler(Scorecard(11), 5)))) == [5, 6]
    assert sorted(map(len, _epoch(RevisitSampler(Scorecard(1), 5)))) == [1]


def test_those_who_rest_are_not_loaded_and_count_as_consumed() -> None:
    sampler = RevisitSampler(_played(20, max_rest=1, earn=1), 4)
    sampler.set_epoch(1)
    assert sorted(flat(_epoch(sampler))) == list(range(1, 20, 2))
    assert (len(sampler), sampler.n_planned) == (3, 5)
    assert [sampler.progress(i) for i in range(3)] == [7, 8, 10]  # of 5 planned batches an epoch


def test_an_epoch_in_which_all_rest() -> None:
    card = Scorecard(4, max_rest=1, earn=1)
    card.update(torch.arange(4), torch.ones(4, dtype=torch.bool), torch.ones(4))
    sampler = RevisitSampler(card, 2)
    sampler.set_epoch(1)
    assert len(sampler) == 0


def test_batches_are_of_one_kind() -> None:
    sampler = RevisitSampler(_played(40, check=True, max_rest=0), 4)
    sampler.set_epoch(1)
    for position, batch in enumerate(_epoch(sampler)):
        assert {i % 2 for i in batch} == ({1} if sampler.kind(position) == TRAIN else {0})
    assert [sampler.kind(i) for i in range(len(sampler))].count(
        CHECK
    ) == 2  # 20 of them, in batches of up to 16
    assert [sampler.kind(i) for i in range(len(sampler))].count(TRAIN) == 5


@pytest.mark.parametrize("n", [1, 7, 12])
def test_processes_share_an_epoch(n: int) -> None:
    samplers = [RevisitSampler(Scorecard(n), 2, seed=1, rank=rank, world_size=3) for rank in range(3)]
    parts = [_epoch(sampler) for sampler in samplers]
    assert len({len(part) for part in parts}) == 1
    assert set(flat(flat(parts))) == set(range(n))
    assert all(
        1 <= len(batch) <= 3 for part in parts for batch in part
    )  # a remainder of one each joins the batch before
    if n == 12:
        assert sorted(flat(flat(parts))) == list(range(n))


def test_similar_lengths_go_together() -> None:
    lengths = torch.randint(1, 100, (400,))
    sampler = RevisitSampler(Scorecard(400), 8, lengths=lengths)
    spread = [int(lengths[batch].max() - lengths[batch].min()) for batch in _epoch(sampler)]
    assert sum(spread) / len(spread) < 5
    assert sorted(flat(_epoch(sampler))) == list(range(400))


def test_goes_on_where_it_stopped() -> None:
    sampler, card = RevisitSampler(Scorecard(12), 2, seed=5), _played(12, max_rest=1, earn=1)
    whole = _epoch(sampler)
    stopped = RevisitSampler(Scorecard(12), 2, seed=5)
    stream = iter(stopped)
    begun = [next(stream) for _ in range(3)]
    resumed = RevisitSampler(card, 2, seed=5)
    resumed.load_state_dict(stopped.state_dict())
    assert (
        begun + _epoch(resumed) == whole
    )  # the plan is the stopped one's, though the scorecard has changed since
    resumed.load_state_dict(stopped.state_dict(position=1))  # workers had fetched two ahead
    assert _epoch(resumed) == whole[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_through_a_data_loader(workers: int) -> None:
    data = Indexed([{"x": torch.tensor(float(i)), "labels": i % 3} for i in range(10)])
    sampler = RevisitSampler(Scorecard(10), 4, seed=2)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=workers)
    batches = [batch["index"].tolist() for batch in loader]
    assert batches == _epoch(RevisitSampler(Scorecard(10), 4, seed=2))
    for batch in loader:
        assert torch.equal(batch["x"], batch["index"].float())


def test_samples_of_every_form_carry_their_index() -> None:
    assert Indexed([(1, 2)])[0] == (1, 2, 0)
    assert Indexed([[1, 2]])[0] == (1, 2, 0)
    assert Indexed(["a"])[0] == ("a", 0)
    assert Indexed([{"a": 1}])[0] == {"a": 1, "index": 0}
    with pytest.raises(TypeError, match="must have a length"):
        Indexed(iter([1]))


def test_errors() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        RevisitSampler(Scorecard(3), 0)
    with pytest.raises(ValueError, match="lengths has shape"):
        RevisitSampler(Scorecard(3), 1, lengths=[1, 2])
    with pytest.raises(ValueError, match="rank must lie"):
        RevisitSampler(Scorecard(3), 1, rank=2, world_size=2)
