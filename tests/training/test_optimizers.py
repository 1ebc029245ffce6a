from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import nn

from sparring.training.optimizers import adamw, find_schedule


class Tuned(nn.Module):
    faster: ClassVar[dict[str, float]] = {"top": 100.0}

    def __init__(self) -> None:
        super().__init__()
        self.body, self.top, self.topmost = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(2, 2)


def test_layers_that_learn_faster_have_a_rate_of_their_own() -> None:
    model = Tuned()
    model.body.bias.requires_grad_(False)
    optimizer = adamw(model, 1e-4, weight_decay=0.1)
    assert [
        (group["lr"], len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups
    ] == [
        (1e-4, 3, 0.1),
        (1e-2, 2, 0.1),
    ]
    find_schedule("linear")(optimizer, 10)
    assert {group["lr"] for group in optimizer.param_groups} == {
        1e-4,
        1e-2,
    }  # one step of warm-up: at the top at once


def test_other_models_have_one_rate() -> None:
    (group,) = adamw(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), 1e-3).param_groups
    assert (group["lr"], len(group["params"])) == (1e-3, 4)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_rates_rise_for_a_tenth_of_the_steps(name: str) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 1.0)
    schedule = find_schedule(name)(optimizer, 20)
    rates = []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[:2] == [0.5, 1.0]
    assert (rates[-1] < 0.1) == (name != "constant")
