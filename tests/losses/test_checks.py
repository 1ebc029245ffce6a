"""Bad input: an error of one line that says what was expected, what it got, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sparring
from sparring import functional

LOGITS, TARGET = torch.randn(8, 151), torch.randint(151, (8,))
LABELS = torch.randint(2, (8, 151))
loss = sparring.ASSoftmaxLoss()
multilabel = sparring.MultilabelASSoftmaxLoss()

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "delta": (
        lambda: sparring.ASSoftmaxLoss(delta=1.5),
        "delta must lie in [0, 1], got 1.5 (delta=1 is plain softmax)",
    ),
    "delta below": (
        lambda: sparring.MultilabelASSoftmaxLoss(-0.1),
        "delta must lie in [0, 1], got -0.1 (delta=1 is plain softmax)",
    ),
    "delta nan": (
        lambda: sparring.ASSoftmaxLoss(float("nan")),
        "delta must lie in [0, 1], got nan (delta=1 is plain softmax)",
    ),
    "delta in the function": (
        lambda: functional.as_softmax_loss(LOGITS, TARGET, delta=2),
        "delta must lie in [0, 1], got 2 (delta=1 is plain softmax)",
    ),
    "tau": (lambda: sparring.TSoftmaxLoss(0), "tau must be above 0, got 0"),
    "tau without end": (lambda: sparring.TSoftmaxLoss(float("inf")), "tau must be finite, got inf"),
    "ignore_index is a label": (
        lambda: functional.multilabel_softmax_loss(LOGITS, LABELS, ignore_index=1),
        "ignore_index must differ from the labels 0 and 1, got 1",
    ),
    "labels with a gradient": (
        lambda: multilabel(LOGITS, LABELS.float().requires_grad_()),
        "target requires a gradient, expected labels without one: target.detach()",
    ),
    "156 is no -100": (
        lambda: loss(LOGITS, torch.full((8,), 156, dtype=torch.uint8)),
        "target 156 is out of range for 151 classes: expected 0 to 150, or ignore_index=-100",
    ),
    "nor as a label": (
        lambda: multilabel(LOGITS, torch.full((8, 151), 156, dtype=torch.uint8)),
        "target holds 156, expected labels 0, 1 or ignore_index=-100",
    ),
    "epsilon": (
        lambda: sparring.LabelSmoothingLoss(1.0),
        "epsilon must be below 1, got 1: the target class would have weight 0",
    ),
    "k": (
        lambda: sparring.SparseSoftmaxLoss(0),
        "k must be a whole number of at least 1, got 0 (the number of logits to keep)",
    ),
    "scale": (lambda: sparring.AMSoftmaxLoss(scale=-1), "scale must be at least 0, got -1"),
    "q": (lambda: sparring.GCELoss(1.5), "q must lie in [0, 1], got 1.5 (q=1 is 1 − p_t)"),
    "q of 0": (
        lambda: functional.gce_loss(LOGITS, TARGET, q=0),
        "q must be above 0, got 0 (for q near 0 the loss is cross entropy: use softmax)",
    ),
    "gamma": (
        lambda: sparring.FocalLoss(float("inf")),
        "gamma must be finite, got inf (gamma=0 is plain softmax)",
    ),
    "beta": (
        lambda: sparring.SCELoss(beta=-1),
        "beta must be at least 0, got -1 (the factor of the reverse cross entropy)",
    ),
    "alpha and beta": (
        lambda: sparring.SCELoss(0, 0),
        "alpha and beta are both 0: one of them must be above 0",
    ),
    "margin": (lambda: sparring.ASLogitLoss(-2.0), "margin must be at least 0, got -2.0"),
    "reduction": (
        lambda: sparring.SoftmaxLoss(reduction="avg"),
        "reduction must be one of none, mean, sum; got 'avg'",
    ),
    "reduction in the function": (
        lambda: functional.softmax_loss(LOGITS, TARGET, reduction="avg"),
        "reduction must be one of none, mean, sum; got 'avg'",
    ),
    "label rows": (
        lambda: loss(LOGITS, LABELS),
        "target has shape (8, 151), expected (8,): one class index per row. "
        "For 0/1 label rows use MultilabelASSoftmaxLoss",
    ),
    "probabilities": (
        lambda: loss(LOGITS, LOGITS.softmax(1)),
        "target holds float32 values in the input's shape (8, 151), expected (8,) class indices. "
        "For class probabilities, as of Mixup, use SoftmaxLoss, TSoftmaxLoss, LabelSmoothingLoss or "
        "SparseSoftmaxLoss, or target.argmax(1); for 0/1 label rows "
        "MultilabelASSoftmaxLoss",
    ),
    "float target": (
        lambda: loss(LOGITS, TARGET.float()),
        "target is float32, expected integer class indices: target.long()",
    ),
    "bool target": (
        lambda: loss(LOGITS, TARGET > 3),
        "target is bool, expected integer class indices: target.long()",
    ),
    "too large": (
        lambda: loss(LOGITS, torch.full((8,), 151)),
        "target 151 is out of range for 151 classes: expected 0 to 150, or ignore_index=-100",
    ),
    "negative": (
        lambda: loss(LOGITS, torch.full((8,), -1)),
        "target -1 is out of range for 151 classes: expected 0 to 150, or ignore_index=-100",
    ),
    "short": (
        lambda: loss(LOGITS, TARGET[:5]),
        "target has shape (5,), expected (8,): one class index per row. Classes belong in dim 1 of the input",
    ),
    "classes last": (
        lambda: loss(torch.randn(4, 6, 5), torch.zeros(4, 6, dtype=torch.long)),
        "target has shape (4, 6), expected (4, 5): one class index per row. Classes belong in dim 1: "
        "logits.movedim(-1, 1), or logits.flatten(0, -2) with target.flatten()",
    ),
    "scalar": (
        lambda: loss(torch.tensor(1.0), torch.tensor(0)),
        "input is a scalar, expected logits of shape (C,), (N, C) or (N, C, d1, …)",
    ),
    "no classes": (
        lambda: loss(torch.randn(3, 0), torch.zeros(3, dtype=torch.long)),
        "input has shape (3, 0): no classes in dim 1",
    ),
    "integer logits": (lambda: loss(LABELS, TARGET), "input must be floating-point logits, got int64"),
    "weight": (
        lambda: sparring.ASSoftmaxLoss(weight=torch.ones(3))(LOGITS, TARGET),
        "weight has shape (3,), expected (151,): one weight per class",
    ),
    "class indices for multi-label": (
        lambda: multilabel(LOGITS, TARGET),
        "target has shape (8,), expected (8, 151): one 0/1 label per class. "
        "For class indices use ASSoftmaxLoss",
    ),
    "labels out of range": (
        lambda: multilabel(LOGITS, LABELS * 3),
        "target holds 3, expected labels 0, 1 or ignore_index=-100",
    ),
    "soft labels": (
        lambda: multilabel(LOGITS, LABELS * 0.9),
        "target holds 0.9, expected labels 0, 1 or ignore_index=-100",
    ),
    "probabilities of equation 7": (
        lambda: sparring.as_softmax(LOGITS, LABELS),
        "target has shape (8, 151), expected (8,): one class index per row. "
        "For 0/1 label rows use MultilabelASSoftmaxLoss",
    ),
    "name": (
        lambda: sparring.make_loss("as_softmax"),
        f'no loss named "as_softmax"; did you mean "as-softmax"? Known: {", ".join(sparring.list_losses())}',
    ),
    "name like nothing": (
        lambda: sparring.make_loss("hinge"),
        f'no loss named "hinge". Known: {", ".join(sparring.list_losses())}',
    ),
    "setting": (
        lambda: sparring.make_loss("as-softmax", k=3),
        '"as-softmax" has no setting k; it takes delta, weight, ignore_index, reduction, concede',
    ),
}

WRONG_TYPES: dict[str, tuple[Callable[[], Any], str]] = {
    "delta": (
        lambda: sparring.ASSoftmaxLoss("0.3"),
        "delta must be a number, got str '0.3' (delta=1 is plain softmax)",
    ),
    "delta bool": (lambda: sparring.ASSoftmaxLoss(True), "delta must be a number, got bool True"),
    "tau": (lambda: sparring.TSoftmaxLoss(None), "tau must be a number, got NoneType None"),
    "k": (
        lambda: sparring.SparseSoftmaxLoss(2.5),
        "k must be a whole number, got float 2.5 (the number of logits to keep)",
    ),
    "ignore_index": (
        lambda: functional.as_softmax_loss(LOGITS, TARGET, ignore_index=None),
        "ignore_index must be a whole number, got None: use -100 to ignore nothing",
    ),
    "ignore_index of labels": (
        lambda: functional.multilabel_softmax_loss(LOGITS, LABELS, ignore_index=2.5),
        "ignore_index must be a whole number, got 2.5: use -100 to ignore nothing",
    ),
    "target": (lambda: loss(LOGITS, [0] * 8), "target must be a Tensor of class indices, got list"),
    "input": (lambda: multilabel([0.0], LABELS), "input must be a Tensor of logits, got list"),
    "weight": (
        lambda: functional.softmax_loss(LOGITS, TARGET, weight=[1.0] * 151),
        "weight must be a Tensor with one number per class, got list",
    ),
}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_wrong_value(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mistake()
    assert "\n" not in message


@pytest.mark.parametrize(("mistake", "message"), WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
def test_wrong_type(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        mistake()


def test_values_are_not_looked_at_off_the_cpu() -> None:
    logits, target = torch.randn(4, 3, device="meta"), torch.full((4,), 9, device="meta")
    assert loss(logits, target).device.type == "meta"


def test_devices_must_agree() -> None:
    with pytest.raises(
        ValueError, match=r"input is on cpu and target on meta; move one: target\.to\(input\.device\)"
    ):
        loss(LOGITS, TARGET.to("meta"))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("ASSoftmax", "as-softmax"), ("entmax-15", "entmax15"), ("multilabel_softmax", "multilabel-softmax")],
)
def test_suggestions(typed: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f'did you mean "{meant}"'):
        sparring.make_loss(typed)


def test_registry_makes_what_it_lists() -> None:
    assert len(sparring.list_losses()) == 16
    for name in sparring.list_losses():
        assert sparring.make_loss(name).name == name
    instance = sparring.make_loss("as-softmax", delta=0.1, reduction="sum")
    assert isinstance(instance, sparring.ASSoftmaxLoss)
    assert (instance.delta, instance.reduction) == (0.1, "sum")
