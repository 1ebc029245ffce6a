"""The frontier benchmark at the size of a test, and the rivals against their rules."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring import SoftmaxLoss
from sparring.training import CHECK, REST, TRAIN
from sparring.training.loop import Loop
from tests.training.toy import N, digits_like, net

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts beside each other, as `python benchmarks/frontier.py` has them."""
    if not BENCHMARKS.exists():
        pytest.skip("no benchmarks beside the tests")
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    return importlib.import_module(name)


def rows_of(losses: torch.Tensor) -> Any:
    n = len(losses)
    return SoftmaxLoss().rows(torch.zeros(n, 3), torch.zeros(n, dtype=torch.long))._replace(value=losses)


def test_infobatch_prunes_half_of_the_easy_and_keeps_the_expected_loss() -> None:
    card = module("rivals").InfoBatch(4000)
    loss = torch.rand(4000, generator=torch.Generator().manual_seed(0))
    card.begin(0)
    assert card.counts()["rest"] == 0  # nothing is known yet
    assert torch.equal(card.weigh(torch.arange(4000), rows_of(loss)).value, loss)
    card.begin(1)
    easy, resting = loss < loss.mean(), card.states() == REST
    assert not (resting & ~easy).any()
    assert 0.45 < resting[easy].float().mean() < 0.55
    kept = (~resting).nonzero().squeeze(1)
    weighed = card.weigh(kept, rows_of(loss[kept])).value
    assert torch.equal(weighed[easy[kept]], 2 * loss[kept][easy[kept]])
    assert abs(weighed.sum() / loss.sum() - 1) < 0.03  # the expected gradient stays
    assert torch.equal(card.score, loss)  # the loss itself, not as it was weighed
    card.share_done = lambda: 0.9
    card.begin(7)
    assert card.counts()["rest"] == 0
    assert bool((card.scale == 1).all())


def test_kakurenbo_hides_the_lowest_losses_it_is_sure_of_and_looks_at_them() -> None:
    card = module("rivals").Kakurenbo(100, ratio=0.3)
    loss = torch.linspace(0.01, 3, 100)
    card.weigh(torch.arange(100), rows_of(loss))
    card.begin(1)
    hidden = (card.states() == CHECK).nonzero().squeeze(1)
    assert hidden.tolist() == [i for i in range(30) if torch.exp(-loss[i]) >= 0.7]
    assert card.factor == pytest.approx(1 / (1 - len(hidden) / 100))
    with torch.no_grad():  # a check: nothing trains after it
        assert not card.weigh(hidden, rows_of(loss[hidden])).active.any()
    card.share_done = lambda: 0.9
    card.begin(5)
    assert 0 < card.counts()["check"] <= 12


def test_early_stopping_stops_where_the_loss_no_longer_bends() -> None:
    card = module("rivals").EarlyStopping(3)
    for step in range(4):
        card.begin(step)
        assert card.counts()["check"] == (2 if step == 3 else 0)
        card.observe(torch.arange(3), torch.tensor([1.0, 2.0 - 0.5 * step, 2.0**-step]))


@pytest.mark.parametrize("name", ["RS2", "InfoBatch", "KAKURENBO", "IES"])
def test_a_rival_spends_the_budget_and_resumes_to_the_bit(name: str, tmp_path: Path) -> None:
    def run(folder: Path, stop: int | None) -> dict[str, torch.Tensor]:
        card = module("rivals").RIVALS[name](N)
        loop = Loop(
            net(), "softmax", digits_like(), batch_size=16, budget=6.0, forward_share=0.4, lr=0.05,
            speed="off", scorecard=card, folder=folder, save_every=4,
        )  # fmt: skip
        module("frontier_tasks").follow(loop, card)
        loop.log_step = lambda entry: loop.stop() if entry["step"] == stop else None
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                loop.run()
            return {}
        totals = loop.run().totals
        cost = 0.4 * totals["n_forward"] + 0.6 * totals["n_backward"]
        assert abs(cost / N - 6.0) <= 4 * 16 / N  # a batch to check has four times as many samples
        return loop.model.state_dict()

    whole = run(tmp_path / "whole", None)
    run(tmp_path / "parts", 13)
    parts = run(tmp_path / "parts", None)
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_the_benchmark_ends_with_table_json_and_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("altair")
    frontier, tasks = module("frontier"), module("frontier_tasks")
    plan = dict.fromkeys(("softmax", "fast", "KAKURENBO"), (1.0, 2.0)) | {"fast, as long": (2.0,)}
    small = tasks.Setting(
        "digits", "tiny", 1e-2, n_train=96, n_dev=30, n_test=40, batch_size=16, n_seeds=2, plan=plan
    )
    monkeypatch.setitem(tasks.SETTINGS, "digits", small)
    common = ["--tasks", "digits", "--budgets", "1", "2", "--out", str(tmp_path / "runs")]
    frontier.main(["tune", *common])
    frontier.main(["run", *common])
    monkeypatch.setattr(frontier, "FORMS", {"rest 4": {"rest": 4}})
    monkeypatch.setattr(frontier, "CHOOSING_SEEDS", (100,))
    frontier.main(["choose", *common, "--budgets", "2"])
    frontier.main(["show", *common, "--results", str(tmp_path / "results")])
    report = json.loads((tmp_path / "results" / "digits.json").read_text())
    assert 0.05 <= report["forward_share"] <= 1
    assert report["commit"]
    assert len(report["table"]["rows"]) == 7
    assert "rest 4" in (tmp_path / "results" / "digits.md").read_text()
    assert (tmp_path / "results" / "digits.svg").read_text().startswith("<svg")
    runs = {path.stem: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("run_*.json")}
    assert len(runs) == (3 * 2 + 1) * 2
    frontier.main(["run", *common])
    assert runs == {path.stem: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("run_*.json")}
    assert "fast" in capsys.readouterr().out


def test_states_are_those_of_a_scorecard() -> None:
    for rival in module("rivals").RIVALS.values():
        card = rival(50)
        card.begin(0)
        assert card.states().shape == (50,)
        assert set(card.states().tolist()) <= {TRAIN, CHECK, REST}
