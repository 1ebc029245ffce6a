"""Where published data is looked for, and how missing splits are made."""

from pathlib import Path

import pytest

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.kinds import get_kind
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.published import NotedSplits, complete, find_file, load_published, split_off
from sparring.lab.task import Splits
from tests.lab.datasets.folders import jsonl, write


def samples(*texts: str) -> list[dict[str, str]]:
    return [{"text": text, "label": "a"} for text in texts]


MULTI_CLASS = get_kind("multi-class")
JSONL = {f"{name}.jsonl": jsonl(*samples(f"jsonl {name}")) for name in ("train", "dev", "test")}
PUBLISHED: Splits = {name: samples(f"published {name}") for name in ("train", "dev", "test")}


def original(folder: Path) -> Splits | None:
    return PUBLISHED if (folder / "original").exists() else None


class Hub(HubSource):
    def read(self) -> Splits:
        return {name: samples(f"hub {name}") for name in ("train", "dev", "test")}


HUB = Hub("some/set", {})


def test_jsonl_comes_first_then_the_publishers_files_then_the_hub(tmp_path: Path) -> None:
    def source() -> tuple[str, str]:
        data = load_published(Where(tmp_path), MULTI_CLASS, {"one": "", "two": ""}, original, HUB)
        return data.train[0]["text"], data.source

    (tmp_path / "one").mkdir()
    assert source() == ("hub train", "Hugging Face hub")
    write(tmp_path / "two", JSONL)
    assert source() == ("jsonl train", str(tmp_path / "two"))
    write(tmp_path / "one", {"original": ""})
    assert source() == ("published train", str(tmp_path / "one"))
    write(tmp_path / "one", JSONL)
    assert source() == ("jsonl train", str(tmp_path / "one"))


def test_a_stand_in_says_so_and_the_set_itself_does_not(tmp_path: Path) -> None:
    write(tmp_path / "small", JSONL)

    def notes() -> tuple[str, ...]:
        return load_published(Where(tmp_path), MULTI_CLASS, {"full": "", "small": "a part"}, original).notes

    assert notes() == ("small: a part",)
    write(tmp_path / "full", JSONL)
    assert notes() == ()


def test_notes_of_a_loader_are_kept(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    data = load_published(
        Where(tmp_path),
        MULTI_CLASS,
        {"one": ""},
        lambda _: NotedSplits({"train": samples(*"abcd")}, ("two left out",)),
    )
    assert data.notes == (
        "two left out",
        "no test set: 1 samples split off train",
        "no dev set: 1 samples split off train",
    )


def test_missing_data_says_where_it_was_looked_for_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_published(Where(tmp_path, hub=False), get_kind("pair"), {"one": "", "two": ""}, original, HUB)
    assert str(error.value) == (
        f"one: no data found (looked in: {tmp_path / 'one'} or {tmp_path / 'two'}); put its files there, "
        "or train.jsonl, dev.jsonl and test.jsonl with pair samples, or let it be read from the hub"
    )
    with pytest.raises(
        DataError,
        match=r"^rcv1: no data found \(looked in: no folder was given\); use data_dir or SPARRING_DATA$",
    ):
        get_task("rcv1").load(Where())


def test_a_bad_line_is_refused_with_its_place(tmp_path: Path) -> None:
    write(tmp_path / "sst5", {"train.jsonl": jsonl({"text": "a", "label": "b"}, {"text": "a"})})
    with pytest.raises(DataError, match=r"train\.jsonl:2: .*label missing"):
        get_task("sst5").load(Where(tmp_path, hub=False))


def test_find_file_takes_the_first_name_gzipped_or_not(tmp_path: Path) -> None:
    write(tmp_path, {"b.txt": "", "a.txt.gz": ""})
    assert find_file(tmp_path, "a.txt", "b.txt") == tmp_path / "a.txt.gz"
    assert find_file(tmp_path, "b.txt", "a.txt") == tmp_path / "b.txt"
    assert find_file(tmp_path, "c.txt") is None


def test_an_empty_part_or_no_train_set_is_refused() -> None:
    with pytest.raises(DataError, match="here: the dev set is empty"):
        complete(MULTI_CLASS, {"train": samples("a"), "dev": []}, "here")
    with pytest.raises(DataError, match="here: there is no train set"):
        complete(MULTI_CLASS, {"test": samples("a")}, "here")


def test_a_dev_set_without_a_test_set_becomes_it() -> None:
    train = samples(*map(str, range(30)))
    data = complete(MULTI_CLASS, {"train": train, "dev": samples("dev")}, "here")
    assert data.test == samples("dev")
    assert len(data.dev) == 3
    assert sorted(sample["text"] for sample in data.train + data.dev) == sorted(
        sample["text"] for sample in train
    )


def test_split_off_takes_a_share_or_the_most_allowed_and_always_the_same() -> None:
    numbers = samples(*map(str, range(100)))
    rest, off = split_off(numbers, 0.25)
    assert (len(rest), len(off)) == (75, 25)
    assert [*map(id, rest)] == [id(sample) for sample in numbers if sample not in off]
    assert off == split_off(numbers, 0.25)[1] != split_off(numbers, 0.25, seed=1)[1]
    assert len(split_off(numbers, 0.25, limit=10)[1]) == 10
    assert len(split_off(samples("a", "b"), 0.01)[1]) == 1
    assert len(split_off(samples(*"a" * 30000), 0.2, limit=None)[1]) == 6000
    with pytest.raises(DataError, match="1 samples are too few"):
        split_off(samples("a"), 0.5)
