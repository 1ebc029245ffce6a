"""Two processes, real ones, started once, with gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.training.history import UNSEEN
from tests.processes import run_ranks
from tests.training.toy import N
from tests.training.two_processes import SETTINGS, trained


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process ended with."""
    folder: Path = tmp_path_factory.mktemp("processes")
    run_ranks(2, "tests.training.two_processes", folder)
    assert (folder / "batch-norm" / "checkpoint.pt").exists()
    return [torch.load(folder / f"results.{rank}") for rank in range(2)]


@pytest.mark.parametrize("name", SETTINGS)
def test_processes_end_with_equal_weights(results: list[dict[str, Any]], name: str) -> None:
    """Although at times every sample of one process is won and one of the other is not."""
    a, b = (result[name] for result in results)
    assert all(torch.equal(a["weights"][key], b["weights"][key]) for key in a["weights"])
    assert a["card"].pop("awake_from") == b["card"].pop("awake_from")
    for key, value in a["card"].items():
        assert torch.equal(
            torch.as_tensor(value).nan_to_num(9), torch.as_tensor(b["card"][key]).nan_to_num(9)
        )
    assert (a["steps"], a["n_updates"], a["delta"]) == (b["steps"], b["n_updates"], b["delta"])
    assert len(a["n_backward"]) == len(b["n_backward"])
    assert a["counts"] == b["counts"]
    for key, table in a["history"].items():
        assert torch.equal(table.nan_to_num(9), b["history"][key].nan_to_num(9))
    if name == "everything":
        assert any((x == 0) != (y == 0) for x, y in zip(a["n_backward"], b["n_backward"], strict=True))
        assert a["steps"] > 1


@pytest.mark.parametrize("name", ["micro", "concede"])
def test_two_processes_do_what_one_does(results: list[dict[str, Any]], name: str) -> None:
    """Half the batch each, without dropout: the same mean over the same window."""
    one, two = trained(name), results[0][name]
    for key, value in one["weights"].items():
        torch.testing.assert_close(two["weights"][key], value, rtol=1e-4, atol=1e-5)
    assert [counts[0] for counts in two["counts"]] == [N] * 5
    assert (two["history"]["state"] != UNSEEN).all(), "each process knows the looks of the other"
    for key in ("margin", "rival", "place"):
        torch.testing.assert_close(two["history"][key], one["history"][key], rtol=0.01, atol=0.01)
    assert [counts[2:] for counts in two["counts"]] == [counts[2:] for counts in one["counts"]]
    assert any(counts[3] for counts in two["counts"]) == (name == "concede")


def test_compaction_inside_distributed_data_parallel(results: list[dict[str, Any]]) -> None:
    a, b = (result["by-hand"] for result in results)
    for name, value in a["plain"].items():
        assert torch.equal(a["compacted"][name], b["compacted"][name])
        torch.testing.assert_close(a["compacted"][name], value)


def test_they_rest_together_in_a_loop_of_ones_own(results: list[dict[str, Any]]) -> None:
    """Both know all results, so their plans agree; each loads its half."""
    (sizes, card), (other_sizes, other_card) = (result["rested"] for result in results)
    assert sizes == other_sizes
    assert sizes[0] == N // 2
    assert min(sizes) < N // 2
    for name, value in card.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.nan_to_num(9), other_card[name].nan_to_num(9))


def test_they_resume_and_refuse_together(results: list[dict[str, Any]]) -> None:
    """From the same checkpoint, also where the last one is damaged; the first process warns."""
    expected = {"again": 0.0, "refused": True, "damaged": 0.0}
    assert [result["resumed"] for result in results] == [
        {**expected, "warnings": 1},
        {**expected, "warnings": 0},
    ]


def test_they_stop_together_at_divergence(results: list[dict[str, Any]]) -> None:
    first, second = (result["diverged"] for result in results)
    assert first == second
    assert first["sample"][1] == (17,)
    assert first["gradient"][0] == 6
