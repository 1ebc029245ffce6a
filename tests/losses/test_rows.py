from __future__ import annotations

import pytest
import torch

from sparring import RowLosses


def rows(weight: list[float] | None = None) -> RowLosses:
    return RowLosses(
        value=torch.tensor([2.0, 0.0, 0.0, 1.0]),
        valid=torch.tensor([True, True, False, True]),
        active=torch.tensor([True, False, False, True]),
        weight=None if weight is None else torch.tensor(weight),
    )


def test_shares_and_reductions() -> None:
    r = rows()
    assert r.won.tolist() == [False, True, False, False]
    assert r.won_share().item() == pytest.approx(1 / 3)
    assert r.mean().item() == 1
    assert r.sum().item() == 3
    assert torch.equal(r.reduce("none"), r.value)


def test_weights() -> None:
    r = rows([1.0, 2.0, 100.0, 3.0])  # a weight in an ignored row does not count
    assert r.sum().item() == 5
    assert r.mean().item() == pytest.approx(5 / 6)
    assert r.reduce("none").tolist() == [2, 0, 0, 3]


def test_is_a_plain_tuple_of_six() -> None:
    value, valid, active, weight, conceded, extras = rows()
    assert weight is None
    assert conceded is None
    assert extras is None
    assert value.shape == valid.shape == active.shape == (4,)


def test_nothing_valid() -> None:
    none = torch.zeros(3, dtype=torch.bool)
    r = RowLosses(torch.zeros(3), none, none)
    assert r.won_share().item() == r.mean().item() == 0


def test_unknown_reduction() -> None:
    with pytest.raises(ValueError, match="reduction must be one of none, mean, sum; got 'avg'"):
        rows().reduce("avg")
