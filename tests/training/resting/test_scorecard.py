from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparring.training import CHECK, REST, TRAIN, Scorecard

DELTA = 0.3


class Twin:
    """The rules for one sample, step by step."""

    def __init__(self, max_rest: int, spare: float, earn: int, narrow: int) -> None:
        self.max_rest, self.spare, self.earn, self.narrow = max_rest, spare, earn, narrow
        self.easy, self.due, self.won = 0, 0, False

    def state(self, epoch: int, check: bool) -> int:
        if epoch < self.due:
            return REST
        return CHECK if check and self.easy else TRAIN

    def look(self, epoch: int, margin: float) -> None:
        self.won = margin > DELTA
        if margin >= DELTA + self.spare and self.won:
            self.easy += 1
        else:
            self.easy = 0
        rest = min(max(self.easy - self.earn + 1, self.narrow if self.won else 0), self.max_rest)
        self.due = epoch + 1 + rest


@given(
    st.lists(
        st.lists(st.sampled_from([-0.5, 0.1, 0.3125, 0.375, 0.5, 0.9]), min_size=5, max_size=5),
        min_size=1,
        max_size=14,
    ),
    *(
        st.booleans(),
        st.integers(0, 4),
        st.sampled_from([0.0, 0.125, 0.5]),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
)
def test_states_follow_the_rules(
    script: list[list[float]], check: bool, max_rest: int, spare: float, earn: int, narrow: int
) -> None:
    """Margins are scripted: script[epoch][sample] is what a look would show."""
    card = Scorecard(5, check=check, max_rest=max_rest, spare=spare, earn=earn, narrow=narrow)
    twins = [Twin(max_rest, spare, earn, narrow) for _ in range(5)]
    last = [-1] * 5
    for epoch, row in enumerate(script):
        card.begin(epoch)
        states = card.states().tolist()
        assert states == [twin.state(epoch, check) for twin in twins]
        index = torch.tensor([i for i in range(5) if states[i] != REST], dtype=torch.long)
        margin = torch.tensor(row)[index]
        card.update(index, margin > DELTA, margin, DELTA)
        for i in index.tolist():
            twins[i].look(epoch, row[i])
            assert epoch - last[i] <= card.bound == max_rest + 1
            last[i] = epoch
            assert card.margin[i] == torch.tensor(row[i])
    assert all(len(script) - seen <= card.bound for seen in last)


def test_rest_grows_while_it_is_earned_and_collapses() -> None:
    card, looks = Scorecard(1, max_rest=3, spare=0.1, earn=1), []
    margins = {0: 0.9, 2: 0.9, 5: 0.9, 9: 0.9, 13: 0.35, 14: 0.9, 16: 0.0}
    for epoch in range(20):
        card.begin(epoch)
        if card.states()[0] != REST:
            looks.append(epoch)
            margin = torch.tensor([margins.get(epoch, 0.9)])
            card.update(torch.tensor([0]), margin > DELTA, margin, DELTA)
    assert looks == [0, 2, 5, 9, 13, 14, 16, 17, 19]
    assert card.counts() == {"train": 0, "check": 0, "rest": 1}


def test_nan_margins_never_rest() -> None:
    """A sample without a valid row has nothing to win."""
    card = Scorecard(1, max_rest=2, earn=1, narrow=1)
    card.update(torch.tensor([0]), torch.tensor([True]), torch.tensor([torch.nan]), DELTA)
    card.begin(1)
    assert card.states().tolist() == [TRAIN]


def test_state_survives_and_belongs_to_its_data() -> None:
    card = Scorecard(4, check=True)
    card.begin(3)
    card.update(torch.tensor([1, 3]), torch.tensor([True, False]), torch.tensor([0.9, 0.1]), DELTA)
    other = Scorecard(4, check=True)
    other.load_state_dict(card.state_dict())
    assert repr(other) == repr(card)
    tensors = [(name, value) for name, value in card.state_dict().items() if value is not None]
    for name, value in tensors:
        assert torch.equal(
            torch.as_tensor(other.state_dict()[name]).nan_to_num(9), torch.as_tensor(value).nan_to_num(9)
        )
    with pytest.raises(ValueError, match="other data"):
        Scorecard(5).load_state_dict(card.state_dict())


def test_errors() -> None:
    with pytest.raises(ValueError, match="made for this data set"):
        Scorecard(2).update(torch.tensor([2]), torch.tensor([True]), torch.tensor([0.5]))
    with pytest.raises(ValueError, match="must agree"):
        Scorecard(2).update(torch.tensor([0, 1]), torch.tensor([True]), torch.tensor([0.5]))
    with pytest.raises(ValueError, match="0 is no rest"):
        Scorecard(2, max_rest=-1)


def test_watching_shortens_rests_where_samples_come_back_lost() -> None:
    """Also where a failed check is noted before the sample trains; nothing is judged while δ is 1."""
    index, won = torch.arange(100), torch.ones(100, dtype=torch.bool)
    for n_looks, delta, longest in ((1, DELTA, 1), (2, DELTA, 1), (1, 1.0, 2)):
        card = Scorecard(100, max_rest=2, narrow=2, check=True, watch=True)
        card.begin(0)
        card.update(index, won, torch.full((100,), 0.9), DELTA)
        for epoch in (1, 2):
            card.begin(epoch)
            assert card.counts()["rest"] == 100
        card.begin(3)
        for _ in range(n_looks):
            card.update(index, ~won, torch.full((100,), -0.5), delta)
        assert card.returns(3) == ((100, 100) if delta < 1 else (0, 0))
        card.begin(4)
        assert card.longest_rest == longest


def test_watching_lets_nobody_rest_before_it_pays() -> None:
    card = Scorecard(100, max_rest=2, narrow=2, watch=True)
    card.begin(0)
    for n_won, n_resting in ((4, 0), (6, 6)):
        won = torch.arange(100) < n_won
        card.update(torch.arange(100), won, won.float(), DELTA)
        card.begin(1)
        assert card.counts()["rest"] == n_resting
        card.epoch = 0
    assert card.take_notes() == ["epoch 1: 6% of the samples are won and rest"]
    assert card.take_notes() == card.conclusion() == []
