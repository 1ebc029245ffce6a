from __future__ import annotations

import math

import pytest
import torch

import sparring
from sparring import AdaptiveDelta, ConstantDelta, CosineDelta, LinearDelta, RowLosses, WarmupDelta
from sparring.losses.delta import DeltaSchedule


def values(delta: DeltaSchedule, n: int) -> list[float]:
    """δ as the first n training steps see it."""
    result = []
    for _ in range(n):
        result.append(delta.value)
        delta.step()
    return result


def won(share: float, n: int = 100) -> RowLosses:
    active = torch.arange(n) >= share * n
    return RowLosses(active.float(), torch.ones(n, dtype=torch.bool), active)


def test_constant() -> None:
    assert values(ConstantDelta(0.2), 3) == [0.2] * 3


@pytest.mark.parametrize(("share", "n_warm"), [(0.0, 0), (0.15, 3), (0.25, 5), (1.0, 20)])
def test_warmup_is_softmax_for_the_first_share(share: float, n_warm: int) -> None:
    assert values(WarmupDelta(0.3, total_steps=20, share=share), 20) == [1.0] * n_warm + [0.3] * (20 - n_warm)


def test_warmup_then_another_schedule() -> None:
    delta = WarmupDelta(LinearDelta(0.8, 0.4, total_steps=4), total_steps=8, share=0.25)
    assert values(delta, 8) == pytest.approx([1, 1, 0.8, 0.7, 0.6, 0.5, 0.4, 0.4])


def test_linear_and_cosine_share_their_ends_and_middle() -> None:
    linear, cosine = (values(cls(1.0, 0.2, total_steps=8), 12) for cls in (LinearDelta, CosineDelta))
    assert linear[:3] == pytest.approx([1.0, 0.9, 0.8])
    assert linear[8:] == cosine[8:] == [0.2] * 4
    assert linear[4] == pytest.approx(cosine[4])
    assert cosine[1] == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 8)) / 2)


def test_adaptive_moves_towards_its_share() -> None:
    delta = AdaptiveDelta(0.3, won=0.5, rate=0.1, low=0.1, high=0.6)
    assert delta.step(won(0.9)) == pytest.approx(0.34), "much is won: ask for more"
    assert delta.step(won(0.1)) == pytest.approx(0.30), "little is won: ask for less"
    assert delta.step(won(0.5)) == pytest.approx(0.30)
    for _ in range(50):
        delta.step(won(1.0))
    assert delta.value == 0.6
    for _ in range(50):
        delta.step(0.0)
    assert delta.value == 0.1


def test_adaptive_holds_the_share_of_a_real_margin_distribution() -> None:
    torch.manual_seed(0)
    margins = torch.rand(400)  # a row is won when its margin exceeds δ: half of them at δ = 0.5
    delta = AdaptiveDelta(0.1, won=0.3, rate=0.05)
    for _ in range(300):
        delta.step(float((margins > delta.value).float().mean()))
    assert delta.value == pytest.approx(margins.quantile(0.7).item(), abs=0.02)


def test_adaptive_needs_rows() -> None:
    delta = AdaptiveDelta()
    with pytest.raises(
        ValueError, match=r"AdaptiveDelta\.step needs the row losses of the step, got None: rows = loss\.rows"
    ):
        delta.step()
    none = torch.zeros(3, dtype=torch.bool)
    assert delta.step(RowLosses(torch.zeros(3), none, none)) == 0.3, "a batch without valid rows says nothing"
    with pytest.raises(ValueError, match="won share must lie in"):
        delta.step(3.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConstantDelta(0.2),
        lambda: WarmupDelta(LinearDelta(total_steps=9), total_steps=20),
        lambda: CosineDelta(total_steps=9),
        lambda: AdaptiveDelta(won=0.7),
        lambda: WarmupDelta(AdaptiveDelta(), total_steps=10, share=0.2),
    ],
)
def test_state_survives_a_checkpoint_of_the_loss(make: type[DeltaSchedule], tmp_path: object) -> None:
    first = sparring.ASSoftmaxLoss(make())
    for i in range(5):
        first.delta.step(i / 5)  # type: ignore[union-attr]
    file = f"{tmp_path}/loss.pt"
    torch.save(first.state_dict(), file)
    second = sparring.ASSoftmaxLoss(make())
    second.load_state_dict(torch.load(file, weights_only=True))
    for i in range(5):
        assert first.delta.value == second.delta.value  # type: ignore[union-attr]
        assert first.delta.step(i / 9) == second.delta.step(i / 9)  # type: ignore[union-attr]


def test_a_loss_reads_its_schedule() -> None:
    logits, target = torch.randn(50, 6) * 3, torch.randint(6, (50,))
    delta = WarmupDelta(0.3, total_steps=2, share=0.5)
    for loss in (sparring.ASSoftmaxLoss(delta), sparring.make_loss("as-softmax", delta=delta)):
        assert "WarmupDelta" in repr(loss)
    assert torch.equal(loss(logits, target), sparring.SoftmaxLoss()(logits, target))
    delta.step()
    assert torch.equal(loss(logits, target), sparring.ASSoftmaxLoss(0.3)(logits, target))
    assert torch.equal(sparring.functional.as_softmax_loss(logits, target, delta=delta), loss(logits, target))
    labels = (torch.rand(50, 6) < 0.3).long()
    multilabel = sparring.MultilabelASSoftmaxLoss(delta)
    assert torch.equal(multilabel(logits, labels), sparring.MultilabelASSoftmaxLoss(0.3)(logits, labels))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearDelta(2.0, total_steps=3), r"start must lie in \[0, 1\], got 2.0"),
        (lambda: LinearDelta(total_steps=0), "total_steps must be a whole number of at least 1, got 0"),
        (lambda: WarmupDelta(total_steps=9, share=2), r"share must lie in \[0, 1\], got 2"),
        (lambda: AdaptiveDelta(0.01), r"start must lie in \[0.05, 0.9\], got 0.01 \(between low and high\)"),
        (lambda: AdaptiveDelta(low=0.5, high=0.4), r"high must lie in \[0.5, 1\], got 0.4 \(at least low\)"),
    ],
)
def test_bad_settings(make: type[DeltaSchedule], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
