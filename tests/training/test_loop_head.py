"""The loop with a loss that contains the model's last layer: features instead of logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from sparring import ASSoftmaxLoss, LinearLoss, margins
from sparring.losses.delta import SettleDelta
from sparring.training.loop import Loop

X = torch.randn(48, 3, 6, generator=torch.Generator().manual_seed(0))  # three rows a sample
DATA = TensorDataset(X, X.argmax(-1).where(X[..., 0] > -1.0, -100))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.GELU())
        self.head = nn.Linear(16, 6)

    def forward(self, x: Tensor, features: bool = False) -> Tensor:
        hidden = self.body(x)
        return hidden if features else self.head(hidden)


def of_features(net: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    return net(batch[0], features=True), batch[1]


def of_logits(net: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    return net(batch[0]).movedim(-1, 1), batch[1]


def trained(fused: bool, **settings: Any) -> tuple[Loop, dict[str, Tensor]]:
    torch.manual_seed(0)
    net, loss = Net(), ASSoftmaxLoss(0.3)
    objective = LinearLoss.on(net.head, loss) if fused else loss
    settings = {"batch_size": 8, "epochs": 12, "lr": 0.03, **settings}
    loop = Loop(net, objective, DATA, forward=of_features if fused else of_logits, progress=False, **settings)
    loop.run()
    return loop, net.state_dict()


@pytest.mark.parametrize("settings", [{}, {"speed": "fast"}, {"skip": "two-pass", "accumulation": 2}])
def test_it_trains_the_same_network(settings: dict[str, Any]) -> None:
    """Samples that rest among them: margins come from the features, too."""
    (one, ours), (other, theirs) = trained(True, **settings), trained(False, **settings)
    assert (
        one.record.totals["n_backward"] == other.record.totals["n_backward"] < one.record.totals["n_forward"]
    )
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, atol=1e-5, rtol=1e-4)
    if one.scorecard is not None:
        assert torch.equal(one.scorecard.due, other.scorecard.due)
        margins = (one.scorecard.margin, other.scorecard.margin)
        torch.testing.assert_close(*margins, atol=1e-4, rtol=1e-4, equal_nan=True)


def test_skipping_is_exact() -> None:
    (one, skipped), (_, plain) = trained(True, skip="rows"), trained(True, skip="off")
    assert one.record.totals["n_backward"] < one.record.totals["n_forward"]
    for name, weight in plain.items():
        torch.testing.assert_close(skipped[name], weight, atol=1e-6, rtol=1e-5)


def test_delta_settles_and_the_layer_stays_the_models() -> None:
    net, loss = Net(), ASSoftmaxLoss(0.3)
    loop = Loop(net, LinearLoss.on(net.head, loss), DATA, speed="fast")
    assert isinstance(loop.objective, LinearLoss)
    assert isinstance(loop.objective.delta, SettleDelta)
    assert loop.objective.linear is net.head
    assert loss.delta == 0.3


def test_a_layer_that_nothing_would_train_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"not part of the model, so nothing would train it; .*LinearLoss.on"
    ):
        Loop(Net(), LinearLoss(16, 6), DATA)


@pytest.mark.parametrize("chunk_rows", [None, 5])
def test_margins_of_features_are_those_of_the_logits(chunk_rows: int | None) -> None:
    head = LinearLoss(6, 7, chunk_rows=chunk_rows)
    x, target = X[:4], DATA.tensors[1][:4]
    found = head.margins(x, target)
    assert found.shape == target.shape
    torch.testing.assert_close(found, margins(head.logits(x).movedim(-1, 1), target), equal_nan=True)
    many = LinearLoss(6, 7, loss="multilabel-as-softmax", chunk_rows=chunk_rows)
    labels = torch.randint(2, (4, 3, 7))
    torch.testing.assert_close(many.margins(x, labels), margins(many.logits(x), labels), equal_nan=True)
    assert many.margins(x[:0], labels[:0]).shape == (0, 3)
    assert many.label_margins(x[:0], labels[:0]).rival.shape == (0, 3)
