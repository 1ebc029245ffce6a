"""NaN and infinities in a class-parallel head are those of the unsharded one; an ignored row reaches no gradient."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import jacobian

from sparring import ClassParallelHead
from tests.heads.parallel import nonfinite
from tests.heads.parallel.launch import run


def test_in_one_process() -> None:
    nonfinite.main()


def test_on_three_ranks() -> None:
    assert "nonfinite: as the unsharded head" in run(3, "tests.heads.parallel.nonfinite")


def test_batched_gradients_are_refused() -> None:
    head, target = ClassParallelHead(4, 9, reduction="none"), torch.arange(3)
    with pytest.raises(RuntimeError, match=r"has no batched gradients .* one gradient after the other"):
        jacobian(lambda x: head(x, target), torch.randn(3, 4), vectorize=True)
    assert jacobian(lambda x: head(x, target), torch.randn(3, 4)).shape == (3, 3, 4)
