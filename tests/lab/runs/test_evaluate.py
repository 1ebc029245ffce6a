"""Figures by hand: a network that says what it is told, on tokens of unequal sentences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import TokenClassifierOutput

from sparring.lab.datasets import Data
from sparring.lab.kinds import get_kind
from sparring.lab.models.tiny import character_tokenizer
from sparring.lab.runs.evaluate import N_BINS, Evaluator
from sparring.losses import make_loss

SAMPLES = [
    {"tokens": ["a", "b"], "tags": ["X", "Y"]},
    {"tokens": ["c"], "tags": ["X"]},
    {"tokens": ["d", "e", "f"], "tags": ["Y", "X", "X"]},
]
ROWS = {
    "a": (0.9, 0.1),
    "b": (0.8, 0.2),
    "c": (0.6, 0.4),
    "d": (0.3, 0.7),
    "e": (0.5, 0.5),
    "f": (0.95, 0.05),
}  # p(X), p(Y)


class Told(nn.Module):
    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(len(tokenizer), 2))
        for character, row in ROWS.items():
            self.table.data[tokenizer.convert_tokens_to_ids(character)] = torch.tensor(row).log()

    def forward(self, input_ids: Tensor, **_: Any) -> TokenClassifierOutput:
        return TokenClassifierOutput(logits=self.table[input_ids])


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_figures_by_hand(batch_size: int) -> None:
    """p_margin: a .8, b -.6, c .2, d .4, e 0, f .9. At δ = 0.3 a, d and f are won; losses of the others: -log p of the target."""
    data = Data(get_kind("token"), SAMPLES, SAMPLES, SAMPLES, "made")
    tokenizer = character_tokenizer(["abcdef "])
    evaluator = Evaluator(
        data.kind, data.encoder(tokenizer, 32), SAMPLES, make_loss("as-softmax", delta=0.3), batch_size
    )
    found = evaluator.outcome(Told(tokenizer))
    assert found.predicted == [["X", "X"], ["X"], ["Y", "X", "X"]]
    assert found.figures["accuracy"] == pytest.approx(5 / 6)
    losses = -torch.tensor([0.2, 0.6, 0.5]).log()
    assert found.figures["loss"] == pytest.approx(losses.sum().item() / 6)
    assert found.figures["won_share"] == pytest.approx(3 / 6)
    assert found.figures["margin"] == pytest.approx((0.8 - 0.6 + 0.2 + 0.4 + 0.0 + 0.9) / 6)
    assert found.margins == pytest.approx([-0.6, 0.2, 0.0], abs=1e-6)
    assert len(found.histogram) == N_BINS
    assert sum(found.histogram) == 6
    negative, positive = sum(found.histogram[:19]), sum(found.histogram[21:])
    assert (negative, positive) == (1, 4)


def test_calling_it_keeps_the_outcome() -> None:
    tokenizer = character_tokenizer(["abcdef "])
    kind = get_kind("token")
    encoder = kind.encoder(["X", "Y"], tokenizer, 32)
    evaluator = Evaluator(kind, encoder, SAMPLES, make_loss("softmax"))
    net = Told(tokenizer)
    figures = evaluator(net)
    assert evaluator.last is not None
    assert evaluator.last.figures == figures
    everything = -torch.tensor([0.9, 0.2, 0.6, 0.7, 0.5, 0.95]).log()
    assert figures["loss"] == pytest.approx(everything.mean().item())
