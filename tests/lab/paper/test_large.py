"""Tables 3, 5 and 6 of the Sparse-Softmax paper: several forms of one task, each with its own softmax."""

from __future__ import annotations

from typing import Any

import pytest

from sparring import cli
from sparring.lab.datasets import get_task
from sparring.lab.models import wheels
from sparring.lab.paper import claims, scales, tables
from sparring.lab.paper.results import Results
from sparring.lab.paper.studies import STUDIES, base_config, entries_of
from tests.lab.paper.test_studies import cell, one

METHODS = ("Softmax", "Sparse-Softmax", "AS-Softmax", "AS-Softmax, --speed all")


def image(method: str, form: str, seed: int, accuracy: float, seconds: float = 10.0) -> dict[str, Any]:
    return one(f"{method}, {form}", seed, task="cifar100", test={"accuracy": accuracy}, cpu_seconds=seconds)


def images(*gaps: float) -> Results:
    """Sparse-Softmax is ahead by so much from scratch, and by so much pre-trained."""
    records = []
    for form, gap in zip(("from scratch", "pre-trained"), gaps, strict=True):
        for seed in range(3):
            records += [
                image("Softmax", form, seed, 0.5 + seed / 100, 10.0 if form == "from scratch" else 40.0)
            ]
            records += [image("Sparse-Softmax", form, seed, 0.5 + seed / 100 + gap + seed / 1000, 12.0)]
            records += [image("AS-Softmax, --speed all", form, seed, 0.5, 5.0)]
    return Results("sparse table6", records, {"cifar100": "small scale: …"})


def test_images_have_a_column_for_each_form_with_the_papers_beside() -> None:
    sheet, took = tables.sparse_table6(images(0.01, 0.02))
    assert sheet.columns == [
        "cifar100 accuracy, from scratch",
        "paper",
        "cifar100 accuracy, pre-trained",
        "paper",
    ]
    assert sheet.rows()[0] == ["Softmax", "51.00 ± 1.00", "76.20", "51.00 ± 1.00", "77.10"]
    assert sheet.rows()[1] == ["Sparse-Softmax", "52.10 ± 1.10", "73.70", "53.10 ± 1.10", "77.80"]
    assert sheet.rows()[2][0] == "AS-Softmax, --speed all"
    assert took.rows()[1:] == [
        ["Sparse-Softmax", "+20%", "-70%"],
        ["AS-Softmax, --speed all", "-50%", "-88%"],
    ]


@pytest.mark.parametrize(
    ("gaps", "verdicts"),
    [
        ((-0.02, 0.02), [claims.YES, claims.YES]),
        ((0.02, -0.02), [claims.NO, claims.NO]),
        ((0.0, 0.0), [claims.OPEN] * 2),
    ],
)
def test_whether_it_hurts_from_scratch_and_helps_pre_trained(
    gaps: tuple[float, float], verdicts: list[str]
) -> None:
    assert [found.verdict for found in claims.findings(images(*gaps))] == verdicts


def test_questions_have_four_figures() -> None:
    scores = {"bleu_1": 0.4, "bleu_2": 0.3, "bleu_3": 0.2, "bleu_4": 0.1}
    made = Results(
        "sparse table3",
        [one("Softmax", s, task="squad_qg", metric="bleu_4", test=scores) for s in (0, 1)],
        {"squad_qg": ""},
    )
    sheet, _ = tables.sparse_table3(made)
    assert [c.words() for c in sheet.cells] == [
        ("40.00 ± 0.00", "51.49"), ("30.00 ± 0.00", "36.19"), ("20.00 ± 0.00", "27.33"), ("10.00 ± 0.00", "21.20"),
    ]  # fmt: skip


def test_summaries_are_searched_with_one_beam_and_five() -> None:
    test = {"rouge_1": 0.3, "rouge_2": 0.1}
    records = [
        one(f"Sparse-Softmax, beam={n}", 0, task="gigaword", metric="rouge_1", test=test) for n in (1, 5)
    ]
    records = [
        *(one(f"Softmax, beam={n}", 0, task="gigaword", metric="rouge_1", test=test) for n in (1, 5)),
        *records,
    ]
    sheet, _ = tables.sparse_table5(Results("sparse table5", records, {"gigaword": ""}))
    assert (
        cell(
            sheet._replace(cells=[c for c in sheet.cells if c.column.endswith("1, beam=5")]), "Sparse-Softmax"
        ).published
        == 33.10
    )
    assert list(scales.beams(get_task("gigaword"), "small")) == ["beam=1", "beam=5"]
    assert scales.beams(get_task("languages"), "small") == {"": {}}


def test_methods_keep_twenty() -> None:
    config, task, data = base_config("languages", "small", {})
    entries = entries_of(STUDIES["sparse table6"], config, task, data, 1, "from scratch")
    assert [entry.method for entry in entries] == [f"{name}, from scratch" for name in METHODS]
    assert entries[1].plan.config.k == 20


def test_a_network_that_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(wheels.WHEELS, "minilm", wheels.Wheel("some-package==1", "no_such_module"))
    monkeypatch.setattr("sparring.lab.paper.rerun._time", lambda *_: "a moment")
    assert cli.main(["paper", "sparse", "table6", "--tasks", "languages", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "languages, pre-trained: left out (the model minilm comes in a package" in said.err
    assert "AS-Softmax, from scratch" in said.out
    assert "Softmax, pre-trained" not in said.out


def test_a_network_of_ones_own_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sparring.lab.paper.rerun._time", lambda *_: "a moment")
    assert (
        cli.main(["paper", "sparse", "table6", "--tasks", "digits", "--model", "convnext", "--dry-run"]) == 0
    )
    out = capsys.readouterr().out
    assert "Softmax, convnext" in out
    assert "Softmax, from scratch" not in out


def test_full_scale_is_the_papers() -> None:
    assert {"epochs": 200, "batch_size": 62}.items() <= scales.networks(get_task("cifar100"), "full")[
        "pre-trained"
    ].items()
    assert {"epochs": 10, "lr": 2e-5, "max_length": 464}.items() <= scales.config_of(
        get_task("squad_qg"), "full"
    ).items()
