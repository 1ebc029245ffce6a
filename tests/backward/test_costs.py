"""The automatic gate's arithmetic, with a scripted clock: no times are measured here."""

from __future__ import annotations

import pytest

from sparring.backward.costs import Costs


def measured(kept: float, forward: float = 1.0, backward: float = 2.0, two_pass: bool = True) -> Costs:
    costs = Costs(two_pass)
    for _ in range(40):
        if costs.choose() == "off":
            costs.forward(forward)
            costs.backward(backward)
        costs.saw(kept)
    return costs


def play(costs: Costs, kept: float, walk: float, two: float, steps: int) -> list[str]:
    """What it chooses when a walk costs ``walk`` and a two-pass look with its backward ``two`` seconds."""
    chosen = []
    for _ in range(steps):
        form = costs.choose()
        chosen.append(form)
        if form == "rows":
            costs.forward(1.0)
            costs.walk(walk, kept)
        elif form == "two-pass":
            costs.two(two, kept)
        else:
            costs.forward(1.0)
            costs.backward(2.0)
        costs.saw(kept)
    return chosen


def test_measures_full_passes_before_it_tries_anything() -> None:
    costs = Costs()
    for _ in range(3):
        assert costs.choose() == "off"
        costs.forward(1.0)
        costs.backward(2.0)
        costs.saw(0.1)


@pytest.mark.parametrize(("kept", "form"), [(1.0, "off"), (0.97, "off"), (0.5, "rows"), (0.1, "rows")])
def test_chooses_by_what_was_won_of_late(kept: float, form: str) -> None:
    assert measured(kept).choose() == form


def test_a_walk_that_does_not_pay_is_left_and_tried_again_rarely() -> None:
    """Full steps cost 3.0; the walk none the less 2.1: 3 % more than a full backward's share allows."""
    chosen = play(measured(0.3, two_pass=False), 0.3, walk=2.1, two=9.0, steps=400)
    assert chosen.count("rows") < 20
    assert set(chosen[-50:]) <= {"off", "rows"}
    lost = chosen.count("rows") * 0.1 / (400 * 3.0)
    assert lost < 0.03


def test_two_passes_where_the_walk_does_not_help() -> None:
    chosen = play(measured(0.2), 0.2, walk=2.0, two=1.5, steps=60)
    assert chosen[-20:].count("two-pass") >= 18
    assert "two-pass" not in play(measured(0.2, two_pass=False), 0.2, walk=2.0, two=1.5, steps=60)


def test_the_cheaper_form_wins() -> None:
    assert play(measured(0.5), 0.5, walk=1.1, two=2.9, steps=60)[-10:] == ["rows"] * 10
    assert play(measured(0.1), 0.1, walk=0.9, two=1.1, steps=60)[-10:] == ["two-pass"] * 10
    assert (
        play(measured(0.2), 0.2, walk=0.5, two=1.2, steps=60)[-10:] == ["two-pass"] * 10
    )  # promises 1.6, walks 1.5: tried, and better


def test_the_share_from_which_a_walk_pays() -> None:
    costs = measured(0.3)
    assert costs.min_dropped() == pytest.approx(0.05)
    for _ in range(30):
        costs.walk(1.4, 0.3)  # twice what it should be
    assert costs.min_dropped() == pytest.approx(0.55, abs=0.01)
