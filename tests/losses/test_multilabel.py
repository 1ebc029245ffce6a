"""Edge cases of the multi-label losses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import sparring
from tests.cases import NAMES, is_multilabel

MULTILABEL = [
    sparring.MultilabelSoftmaxLoss(),
    sparring.MultilabelTSoftmaxLoss(),
    sparring.MultilabelSparseSoftmaxLoss(k=2),
    sparring.MultilabelASSoftmaxLoss(),
]
every_loss = pytest.mark.parametrize("loss", MULTILABEL, ids=lambda loss: loss.name)


@every_loss
def test_an_ignored_class_has_no_effect(loss: sparring.Loss) -> None:
    logits, target = torch.randn(20, 6) * 2, (torch.rand(20, 6) < 0.4).float()
    target[:, 2] = -100
    others = [0, 1, 3, 4, 5]
    logits[:, 2] = 60  # would take all the probability
    rows, without = loss.rows(logits, target), loss.rows(logits[:, others], target[:, others])
    for a, b in zip(rows[:3], without[:3], strict=True):
        torch.testing.assert_close(a, b)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32, torch.bool])
def test_label_dtypes_and_shapes(loss: sparring.Loss, dtype: torch.dtype) -> None:
    logits, target = torch.randn(2, 3, 4, 6), (torch.rand(2, 3, 4, 6) < 0.4).to(dtype)
    none = type(loss)(reduction="none")(logits, target)
    assert none.shape == (2, 3, 4)
    torch.testing.assert_close(type(loss)()(logits, target), none.mean())
    assert type(loss)(reduction="none")(logits[0, 0, 0], target[0, 0, 0]).shape == ()


def test_one_positive_at_logit_zero_is_softmax() -> None:
    # with the other class's logit at 0, log(1 + e^x) is the two-class cross entropy
    x = torch.randn(9, 1)
    expected = F.cross_entropy(
        torch.cat([torch.zeros(9, 1), x], 1), torch.zeros(9, dtype=torch.long), reduction="none"
    )
    torch.testing.assert_close(
        sparring.MultilabelSoftmaxLoss(reduction="none")(x, torch.zeros(9, 1)), expected
    )


def test_rows_without_a_margin_discard_nothing() -> None:
    logits = torch.tensor([[5.0, -5.0, -5.0]]).repeat(2, 1)
    for labels in ([[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]]):
        target = torch.tensor(labels).repeat(2, 1)
        rows = sparring.MultilabelASSoftmaxLoss(0.05).rows(logits, target)
        torch.testing.assert_close(
            rows.value, sparring.MultilabelSoftmaxLoss(reduction="none")(logits, target)
        )
        assert rows.active.all()


def test_won_when_the_weakest_positive_leads_the_strongest_negative() -> None:
    p = torch.tensor([[0.45, 0.45, 0.06, 0.04], [0.6, 0.2, 0.15, 0.05]])
    target = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]])
    rows = sparring.MultilabelASSoftmaxLoss(delta=0.3).rows(p.log(), target)
    assert rows.won.tolist() == [True, False]
    # row 2: 0.6 leads 0.15 by more than 0.3 and is out; 0.2 leads no negative by as much: all else stays
    o = p[1].log()
    expected = torch.log1p(o[2].exp() + o[3].exp()) + torch.log1p((-o[1]).exp())
    torch.testing.assert_close(rows.value[1], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("p", "delta"), [([0.5, 0.3, 0.2], 0.2), ([0.65, 0.35], 0.3), ([0.4, 0.35, 0.25], 0.05)]
)
def test_margin_is_strict(p: list[float], delta: float, dtype: torch.dtype) -> None:
    logits, target = (
        torch.tensor([p], dtype=torch.float64).log().to(dtype),
        torch.tensor([[1] + [0] * (len(p) - 1)]),
    )
    assert sparring.MultilabelASSoftmaxLoss(delta).rows(logits, target).active.item()
    assert not sparring.MultilabelASSoftmaxLoss(delta - 2e-6).rows(logits, target).active.item()


def test_a_large_logit_does_not_overflow() -> None:
    logits = torch.tensor([[100.0, -100.0, 3.0]], requires_grad=True)
    for loss in MULTILABEL:
        value = loss(logits, torch.tensor([[0, 1, 0]]))
        assert value.isfinite()
        assert torch.autograd.grad(value, logits)[0].isfinite().all()


def test_sparse_keeps_the_hardest_terms() -> None:
    logits, target = torch.tensor([[1.0, 3.0, 2.0, -1.0, 0.5]]), torch.tensor([[0, 0, 0, 1, 1]])
    value = sparring.MultilabelSparseSoftmaxLoss(k=1)(logits, target)
    torch.testing.assert_close(value, F.softplus(torch.tensor(3.0)) + F.softplus(torch.tensor(1.0)))


def test_ignore_index_may_not_be_a_label() -> None:
    with pytest.raises(ValueError, match="ignore_index must differ from the labels 0 and 1, got 1"):
        sparring.MultilabelSoftmaxLoss(ignore_index=1)


@every_loss
@pytest.mark.parametrize("ignore_index", [-100, 2, 255])
def test_ignore_index_is_honoured_in_every_form(loss: sparring.Loss, ignore_index: int) -> None:
    logits = torch.randn(8, 6)
    target = (torch.rand(8, 6) < 0.4).long()
    target[:, 2] = ignore_index
    expected = type(loss)(reduction="none")(logits, target.where(target != ignore_index, -100))
    module = type(loss)(reduction="none", ignore_index=ignore_index)
    function = getattr(sparring.functional, f"{loss.name.replace('-', '_')}_loss")
    rows = module.row_function(logits, target, ignore_index=ignore_index, **module.settings())
    assert torch.equal(module(logits, target), expected)
    assert torch.equal(function(logits, target, ignore_index, "none"), expected)
    assert torch.equal(rows.value, expected)


@every_loss
@pytest.mark.parametrize("label", [2, 255, -1, 0.5, torch.nan])
def test_an_undefined_label_makes_its_row_nan_where_values_are_not_read(
    loss: sparring.Loss, label: float
) -> None:
    """On CPU the module raises ValueError. Off CPU, in vmap and when compiled, the row is NaN."""
    logits = torch.randn(3, 6, requires_grad=True)
    target = (torch.rand(3, 6) < 0.4).float()
    target[0] = -100
    target[1, 4] = label
    with pytest.raises(ValueError, match="expected labels 0, 1 or ignore_index=-100"):
        loss(logits, target)
    none = type(loss)(reduction="none")
    rows = none.row_function(logits, target, **none.settings())
    assert rows.value.isnan().tolist() == [False, True, False]
    assert rows.valid.tolist() == [False, True, True]
    assert rows.active[1]
    (grad,) = torch.autograd.grad(rows.value.sum(), logits)
    assert grad.isnan().any(1).tolist() == [False, True, False]
    assert torch.func.vmap(none.__call__)(logits.detach(), target).isnan().tolist() == [False, True, False]


def test_an_undefined_label_makes_its_row_nan_when_compiled() -> None:
    loss = torch.compile(sparring.MultilabelASSoftmaxLoss(reduction="none"), backend="eager", fullgraph=True)
    assert loss(torch.randn(2, 3), torch.tensor([[1, 0, 2], [1, 0, 0]])).isnan().tolist() == [True, False]
    torch._dynamo.reset()


@pytest.mark.parametrize("name", [name for name in NAMES if is_multilabel(name)])
def test_a_positive_label_of_weight_three_counts_as_three_labels(name: str) -> None:
    """Classes that are repeated with the same logit; the margin, which sees p, is left alone with δ = 1."""
    settings = {"delta": 1.0} if "as" in name.split("-") else {"k": 100} if "sparse" in name else {}
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor(
        [[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, -100, 0], [1, 0, 1, 0]]
    )
    weighted = sparring.make_loss(name, **settings, pos_weight=torch.tensor([3.0, 1.0, 2.0, 0.0]))
    copies = torch.tensor([0, 0, 0, 1, 2, 2, 3])
    repeated = target[:, copies].clone()
    first = torch.tensor([True, False, False, True, True, False, True])
    repeated[:, ~first] = torch.where(repeated[:, ~first] == 1, 1, -100)  # a negative label stays one label
    repeated[:, -1] = torch.where(repeated[:, -1] == 1, -100, repeated[:, -1])  # weight 0
    expected = sparring.make_loss(name, **settings, reduction="none")(logits[:, copies], repeated)
    actual = weighted.rows(logits, target).value
    torch.testing.assert_close(actual, expected)
    upstream = torch.rand(6, dtype=torch.float64)
    gradients = (torch.autograd.grad(x, logits, upstream, retain_graph=True)[0] for x in (actual, expected))
    torch.testing.assert_close(*gradients)


def test_pos_weight_in_a_fused_head_and_its_errors() -> None:
    weight = torch.tensor([2.0, 0.5, 1.0, 4.0])
    loss = sparring.MultilabelASSoftmaxLoss(0.1, pos_weight=weight)
    head = sparring.LinearLoss(3, 4, loss=loss, chunk_rows=2)
    features, target = torch.randn(5, 3), (torch.rand(5, 4) < 0.4).long()
    torch.testing.assert_close(head(features, target), loss(head.logits(features), target))
    assert "pos_weight" not in repr(loss)
    ones = sparring.MultilabelASSoftmaxLoss(0.1, pos_weight=torch.ones(4))
    logits = torch.randn(5, 4)
    torch.testing.assert_close(ones(logits, target), sparring.MultilabelASSoftmaxLoss(0.1)(logits, target))
    with pytest.raises(ValueError, match="pos_weight has 4 numbers, expected one for each of 3"):
        loss(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"at least 0 per class, got .* minimum -1"):
        sparring.MultilabelSoftmaxLoss(pos_weight=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="one weight per class"):
        sparring.LinearLoss(3, 5, loss=loss)
    with pytest.raises(ValueError, match="no class-parallel form: its labels are a matrix"):
        sparring.ClassParallelHead(3, 4, loss=loss)
