"""Run folders gathered: who is a contestant, in what order, under what name, and the rows."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

from sparring.lab.report import gather
from sparring.lab.runs import config
from sparring.lab.runs.compare import rows_of
from tests.lab.conftest import section


def test_softmax_comes_first_and_seeds_belong_together(digits: Path) -> None:
    found = section(digits)
    assert found.names == ["softmax", "as-softmax delta=0.1", "as-softmax delta=0.3"]
    assert [list(each.runs) for each in found.contestants] == [[0, 1, 2]] * 3
    assert (found.metric, found.part) == ("accuracy", "test")


def test_settings_that_tell_contestants_apart_are_those_that_change_a_result() -> None:
    names = [field.name for field in dataclasses.fields(config.Config)]
    assert [name for name in names if name not in gather.INCIDENTAL] == list(config.IDENTITY)
    assert gather.LOSS_SETTINGS == config.LOSS_SETTINGS


def test_rows_are_those_of_compare(digits: Path) -> None:
    found = section(digits)
    summaries = [summary for each in found.contestants for summary in each.summaries.values()]
    assert found.rows() == rows_of(summaries, "accuracy")


def test_a_control_with_the_config_of_softmax_is_a_contestant_of_its_own(
    digits: Path, tmp_path: Path
) -> None:
    for folder in (digits / "digits").glob("softmax-*"):
        shutil.copytree(folder, tmp_path / folder.name)
        shutil.copytree(folder, tmp_path / f"random-{folder.name}")
    assert section(tmp_path).names == ["softmax", "softmax [random]"]


def test_a_run_given_twice_counts_once(digits: Path) -> None:
    twice = gather.find([digits, digits / "digits"])
    assert len(twice) == 9
    assert [len(each.runs) for each in gather.sections(twice)[0].contestants] == [3, 3, 3]


def test_other_data_of_the_same_task_is_another_section(digits: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(next((digits / "digits").glob("softmax-*")), copy)
    for path in copy.rglob("data.json"):
        path.write_text(path.read_text().replace('"fingerprint": "', '"fingerprint": "0000'))
    names = [each.name for each in gather.sections(gather.find([digits, tmp_path]))]
    assert len(names) == 2
    assert re.fullmatch(r"digits \(data [0-9a-f]{8}\)", names[0])
    assert names[1].startswith("digits (data 0000")
