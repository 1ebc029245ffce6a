"""The speed benchmark at the size of a test, and its controls against their rules."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from sparring import SoftmaxLoss
from sparring.training import REST
from sparring.training.loop import Loop
from tests.training.toy import N, digits_like, net

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts beside each other, as `python benchmarks/speed.py` has them."""
    if not BENCHMARKS.exists():
        pytest.skip("no benchmarks beside the tests")
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    return importlib.import_module(name)


def test_random_draws_as_many_as_told_and_others_each_time() -> None:
    card = module("controls").RandomCard(N, [N, 20, 20], seed=1)
    loop = Loop(net(), SoftmaxLoss(), digits_like(), batch_size=8, epochs=3, speed="off", scorecard=card)
    record = loop.run()
    assert [entry["n_backward"] for entry in record.epochs] == [N, 20, 20]
    assert record.epochs[-1]["lr"] == 0.0
    drawn = []
    for epoch in (1, 2):
        card.begin(epoch)
        drawn.append(set((card.states() != REST).nonzero().squeeze(1).tolist()))
    assert drawn[0] != drawn[1]
    other = module("controls").RandomCard(N, [N, 20, 20], seed=2)
    other.begin(2)
    assert set((other.states() != REST).nonzero().squeeze(1).tolist()) != drawn[1]


def test_infobatch_prunes_half_of_the_easy_and_keeps_the_expected_loss() -> None:
    card = module("controls").InfoBatchCard(4000, n_epochs=8, seed=0)
    loss = torch.rand(4000, generator=torch.Generator().manual_seed(0))
    rows = SoftmaxLoss().rows(torch.zeros(4000, 3), torch.zeros(4000, dtype=torch.long))._replace(value=loss)
    card.begin(0)
    assert card.counts()["rest"] == 0  # nothing is known yet
    everybody = torch.arange(4000)
    assert torch.equal(card.weigh(everybody, rows).value, loss)
    card.begin(1)
    easy, resting = loss < loss.mean(), card.states() == REST
    assert not (resting & ~easy).any()
    assert 0.45 < resting[easy].float().mean() < 0.55
    kept = (~resting).nonzero().squeeze(1)
    weighed = card.weigh(kept, rows._replace(value=loss[kept])).value
    assert torch.equal(weighed[easy[kept]], 2 * loss[kept][easy[kept]])
    assert abs(weighed.sum() / loss.sum() - 1) < 0.03  # the expected gradient stays
    assert torch.equal(card.score, loss)  # the loss itself, not as it was weighed
    card.begin(7)  # the last eighth of eight epochs
    assert card.counts()["rest"] == 0
    assert bool((card.scale == 1).all())


def test_infobatch_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    def run(folder: Path, stop: int | None) -> dict[str, Any]:
        made = net()
        loop = Loop(
            made,
            SoftmaxLoss(),
            digits_like(),
            batch_size=8,
            epochs=6,
            speed="off",
            scorecard=module("controls").InfoBatchCard(N, 6, 0),
        )
        loop.folder = folder

        def log(entry: dict[str, Any]) -> None:
            if stop is not None and entry["step"] == stop:
                loop.stop()

        loop.log_step = log
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                loop.run()
        else:
            loop.run()
        return {**made.state_dict()}

    whole = run(tmp_path / "whole", None)
    run(tmp_path / "parts", 30)
    again = run(tmp_path / "parts", None)
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_the_benchmark_ends_with_rows_table_and_chart(tmp_path: Path) -> None:
    speed, contestants, report = module("speed"), module("speed_contestants"), module("speed_report")
    pytest.importorskip("altair")
    config = {"model": "tiny", "n_train": 120, "n_dev": 30, "n_test": 30, "epochs": 3, "batch_size": 16}
    names = ("softmax", "AS-Softmax", "everything on", "random", "fewer epochs", "InfoBatch")
    setting = contestants.Setting("digits", config, 2, names, once=("InfoBatch",))
    result = speed.run_task(setting, None, str(tmp_path / "runs"), 1, Console(quiet=True))
    rows = {row["contestant"]: row for row in result["rows"]}
    assert tuple(rows) == names
    assert rows["softmax"]["time"] == 1.0
    assert (
        rows["softmax"]["forwards"] == rows["softmax"]["backwards"] == rows["AS-Softmax"]["forwards"] == 1.0
    )
    assert [len(row["seeds"]) for row in result["rows"]] == [2, 2, 2, 2, 2, 1]
    assert [len(row["test"]["values"]) for row in result["rows"]] == [2, 2, 2, 2, 2, 1]
    assert rows["random"]["epochs"] == [3, 3]
    assert rows["random"]["backwards"] <= 1.0
    assert all(1 <= n <= 3 for n in rows["fewer epochs"]["epochs"])
    assert rows["InfoBatch"]["backwards"] <= 1.0
    assert "| control: random |" in report.table_of(result).markdown()
    assert len(report.table_of(result).rows) == len(names)
    report.chart(result, tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")
    json.dumps(result)
    again = speed.run_task(setting, None, str(tmp_path / "runs"), 1, Console(quiet=True))
    assert again == result  # from the run folders alone


def test_the_lists_are_sound() -> None:
    contestants = module("speed_contestants")
    for setting in (*contestants.TASKS.values(), contestants.QUICK):
        there = contestants.contestants_of(setting)
        assert {c.name for c in there} == set(setting.names) > set(setting.once)
        assert len({c.name for c in there}) == len(there)
        assert {"softmax", "everything on"} <= {c.name for c in there}
