"""Transforms that need materialised logits, and features of ignored rows."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from sparring.heads.linear import LinearLoss
from tests.cases import CASES, batch, make
from tests.losses.test_transforms import HESSIANS, JACOBIANS

HEADS = [(name, settings) for name, settings in CASES if name != "am-softmax"]
every_head = pytest.mark.parametrize(
    ("name", "settings"), HEADS, ids=[f"{n}-{list(s.values())}" for n, s in HEADS]
)


def problem(name: str, settings: dict[str, Any], reduction: str) -> tuple[LinearLoss, Tensor, Tensor]:
    """A head, six rows of features and their targets; row 2 is ignored."""
    _, target = batch(name, n_rows=6, n_classes=5)
    head = LinearLoss(4, 5, loss=make(name, settings, reduction=reduction), dtype=torch.float64, chunk_rows=4)
    return head, 2 * torch.randn(6, 4, dtype=torch.float64), target


@every_head
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_every_jacobian_is_that_of_layer_and_loss(
    name: str, settings: dict[str, Any], reduction: str
) -> None:
    head, x, target = problem(name, settings, reduction)
    parts = [x, head.linear.weight.detach(), head.linear.bias.detach()]
    for i, part in enumerate(parts if reduction == "none" else parts[:1]):

        def fused(part: Tensor, i: int = i) -> Tensor:
            x, weight, bias = [*parts[:i], part, *parts[i + 1 :]]
            return torch.func.functional_call(
                head, {"linear.weight": weight, "linear.bias": bias}, (x, target)
            )

        def plain(part: Tensor, i: int = i) -> Tensor:
            return head.loss(F.linear(*[*parts[:i], part, *parts[i + 1 :]]), target)

        expected = jacobian(plain, part)
        for way, transform in JACOBIANS.items():
            torch.testing.assert_close(
                transform(fused, part), expected, msg=lambda text, way=way: f"{way}: {text}"
            )


@every_head
def test_every_hessian_is_that_of_layer_and_loss(name: str, settings: dict[str, Any]) -> None:
    head, x, target = problem(name, settings, "mean")
    expected = hessian(lambda x: head.loss(head.linear(x), target), x)
    for way, transform in HESSIANS.items():
        outputs = transform(lambda x: head(x, target), x)
        torch.testing.assert_close(outputs, expected, msg=lambda text, way=way: f"{way}: {text}")


@every_head
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_nan_in_the_features_of_an_ignored_row_reaches_no_gradient(
    name: str, settings: dict[str, Any], reduction: str
) -> None:
    head, x, target = problem(name, settings, reduction)
    outputs = []
    for poison in (0.0, torch.nan, torch.inf):
        features = x.clone()
        features[2] = poison
        features.requires_grad_()
        value = head(features, target).sum()
        gradients = torch.autograd.grad(value, (features, *head.parameters()), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in gradients), (features, *head.parameters()))
        batched = torch.autograd.grad(
            head(features, target).sum(), features, torch.ones(2), is_grads_batched=True
        )
        assert not gradients[0][2].any()
        assert not second[0][2].any()
        outputs.append([value, *gradients, *second, *batched])
    for clean, *poisoned in zip(*outputs, strict=True):
        for tensor in poisoned:
            torch.testing.assert_close(tensor, clean)
