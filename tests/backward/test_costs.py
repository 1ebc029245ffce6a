"""The choice of the automatic form, with scripted seconds: nothing is measured here."""

from __future__ import annotations

import pytest

from sparring.backward.costs import Costs


def measured(share: float, two_pass: bool = True) -> Costs:
    """A forward pass takes 1 second, a full backward pass 2."""
    costs = Costs(two_pass)
    for _ in range(40):
        if costs.choose() == "off":
            costs.add("off", 1.0, 2.0, share)
        costs.add_share(share)
    return costs


def play(costs: Costs, share: float, rows: float, two_pass: float, steps: int) -> list[str]:
    """The choices when a partial backward pass takes ``rows`` and a two-pass step ``two_pass`` seconds."""
    choices = []
    for _ in range(steps):
        form = costs.choose()
        choices.append(form)
        seconds = {"off": (1.0, 2.0), "rows": (1.0, rows), "two-pass": (two_pass, 0.0)}[form]
        costs.add(form, *seconds, share, walked=form == "rows")
        costs.add_share(share)
    return choices


def test_measures_full_passes_before_it_tries_anything() -> None:
    costs = Costs()
    for _ in range(3):
        assert costs.choose() == "off"
        costs.add("off", 1.0, 2.0, 0.1)
        costs.add_share(0.1)


@pytest.mark.parametrize(("share", "form"), [(1.0, "off"), (0.97, "off"), (0.5, "rows"), (0.1, "rows")])
def test_chooses_by_the_recent_share(share: float, form: str) -> None:
    assert measured(share).choose() == form


def test_a_form_that_does_not_pay_is_tried_again_rarely() -> None:
    """A full step takes 3.0 seconds, and one with a partial backward pass 3.1."""
    choices = play(measured(0.3, two_pass=False), 0.3, rows=2.1, two_pass=9.0, steps=400)
    assert choices.count("rows") < 20
    assert set(choices[-50:]) <= {"off", "rows"}


def test_two_passes_where_rows_do_not_help() -> None:
    assert play(measured(0.2), 0.2, rows=2.0, two_pass=1.5, steps=60)[-20:].count("two-pass") >= 18
    assert "two-pass" not in play(measured(0.2, two_pass=False), 0.2, rows=2.0, two_pass=1.5, steps=60)


@pytest.mark.parametrize(
    ("share", "rows", "two_pass", "form"),
    [
        (0.5, 1.1, 2.9, "rows"),
        (0.1, 0.9, 1.1, "two-pass"),
        (0.2, 0.5, 1.2, "two-pass"),  # estimated at 1.6 against 1.5, tried, and better
    ],
)
def test_the_cheaper_form_is_chosen(share: float, rows: float, two_pass: float, form: str) -> None:
    assert play(measured(share), share, rows, two_pass, steps=60)[-10:] == [form] * 10


def test_the_share_from_which_a_partial_backward_pass_pays() -> None:
    costs = measured(0.3)
    assert costs.min_dropped() == pytest.approx(0.05)
    for _ in range(30):
        costs.add("rows", 1.0, 1.4, 0.3, walked=True)  # twice the estimate
    assert costs.min_dropped() == pytest.approx(0.55, abs=0.01)
