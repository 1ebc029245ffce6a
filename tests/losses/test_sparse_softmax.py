from __future__ import annotations

import math

import torch

import sparring


def test_target_outside_the_k_largest_still_pays() -> None:
    logits = torch.tensor([[3.0, 2.0, -1.0]], requires_grad=True)
    loss = sparring.SparseSoftmaxLoss(k=2)
    value = loss(logits, torch.tensor([2]))
    torch.testing.assert_close(value, torch.tensor(math.log(math.exp(3) + math.exp(2)) + 1))
    (grad,) = torch.autograd.grad(value, logits)
    assert grad[0, 2] == -1, "its own term is not in the sum"


def test_k_one_is_won_when_the_target_leads() -> None:
    loss = sparring.SparseSoftmaxLoss(k=1)
    rows = loss.rows(torch.tensor([[3.0, 2.0], [2.0, 3.0]]), torch.tensor([0, 0]))
    assert rows.won.tolist() == [True, False]
    assert rows.value.tolist() == [0.0, 1.0]
