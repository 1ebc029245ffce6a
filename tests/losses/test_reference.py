"""Every fast loss equals its slow twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import sparring
from tests import reference
from tests.cases import CASES, IDS, NAMES, batch, is_multilabel, make


def twin(name: str, settings: dict[str, Any], logits: Tensor, target: Tensor) -> Tensor:
    """Row by row through tests/reference.py; 0 where the row is ignored."""
    values = []
    for o, t in zip(logits.double().tolist(), target.tolist(), strict=True):
        ignored = all(x == -100 for x in t) if is_multilabel(name) else t == -100
        values.append(0.0 if ignored else reference.TWINS[name](o, t, **settings))
    return torch.tensor(values, dtype=torch.float64)


def test_every_loss_has_a_twin_and_a_case() -> None:
    assert sorted(NAMES) == sorted(reference.TWINS) == sparring.list_losses()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=["float32", "float64"]
)
@pytest.mark.parametrize(("name", "settings"), CASES, ids=IDS)
@pytest.mark.parametrize("spread", [0.5, 2.0, 8.0])
def test_equals_slow_twin(
    name: str, settings: dict[str, Any], spread: float, dtype: torch.dtype, tolerance: float
) -> None:
    logits, target = batch(name, n_rows=40, spread=spread, dtype=dtype)
    rows = make(name, settings).rows(logits, target)
    expected = twin(name, settings, logits, target)
    scale = expected.abs().clamp(min=1)  # 1e-6 absolute, relative for losses above 1
    assert ((rows.value.double() - expected).abs() / scale).max() <= tolerance


def _far_from_every_edge(o: list[float], gaps: list[float]) -> bool:
    """A mask may flip where a margin is met to the last digit; float32 and the twin need not agree there."""
    return all(abs(gap) > 1e-4 for gap in gaps)


numbers = st.floats(-30, 30, width=32)


@given(o=st.lists(numbers, min_size=1, max_size=9), data=st.data(), delta=st.floats(0, 1))
def test_as_softmax_any_row(o: list[float], data: st.DataObject, delta: float) -> None:
    t = data.draw(st.integers(0, len(o) - 1))
    p = reference.probabilities(o)
    assume(_far_from_every_edge(o, [p[t] - x - delta for i, x in enumerate(p) if i != t] + [p[t] - delta]))
    rows = sparring.ASSoftmaxLoss(delta).rows(torch.tensor([o]), torch.tensor([t]))
    assert rows.value.item() == pytest.approx(reference.as_softmax(o, t, delta), rel=1e-5, abs=1e-6)
    assert rows.active.item() == (len(reference.as_softmax_kept(o, t, delta)) > 1)


@given(o=st.lists(numbers, min_size=1, max_size=9), data=st.data(), margin=st.floats(0, 10))
def test_as_logit_any_row(o: list[float], data: st.DataObject, margin: float) -> None:
    t = data.draw(st.integers(0, len(o) - 1))
    assume(_far_from_every_edge(o, [o[t] - x - margin for i, x in enumerate(o) if i != t]))
    value = sparring.ASLogitLoss(margin)(torch.tensor(o), torch.tensor(t))
    assert value.item() == pytest.approx(reference.as_logit(o, t, margin), rel=1e-5, abs=1e-6)


@given(o=st.lists(numbers, min_size=1, max_size=9), data=st.data(), k=st.integers(1, 12))
def test_sparse_softmax_any_row(o: list[float], data: st.DataObject, k: int) -> None:
    t = data.draw(st.integers(0, len(o) - 1))
    value = sparring.SparseSoftmaxLoss(k)(torch.tensor(o), torch.tensor(t))
    assert value.item() == pytest.approx(reference.sparse_softmax(o, t, k), rel=1e-5, abs=1e-6)


@given(o=st.lists(numbers, min_size=1, max_size=9), data=st.data(), delta=st.floats(0, 1))
def test_multilabel_as_softmax_any_row(o: list[float], data: st.DataObject, delta: float) -> None:
    labels = data.draw(st.lists(st.sampled_from([0, 1, -100]), min_size=len(o), max_size=len(o)))
    members = [i for i, label in enumerate(labels) if label != -100]
    p = reference.probabilities([o[i] for i in members])
    pairs = [
        (a, b)
        for a, i in zip(p, members, strict=True)
        for b, j in zip(p, members, strict=True)
        if labels[i] == 1 and labels[j] == 0
    ]
    assume(_far_from_every_edge(o, [a - b - delta for a, b in pairs]))
    rows = sparring.MultilabelASSoftmaxLoss(delta).rows(torch.tensor([o]), torch.tensor([labels]))
    assert rows.value.item() == pytest.approx(
        reference.multilabel_as_softmax(o, labels, delta), rel=1e-5, abs=1e-6
    )
    assert rows.active.item() == any(reference.multilabel_as_softmax_kept(o, labels, delta))
    assert rows.valid.item() == bool(members)
