"""Which of the places data is taken from, what completes it, and the real sets where they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.lab.datasets import DataError, Where, get_task, list_tasks
from sparring.lab.readers.published import Noted, complete, find_file, load_published, split_off
from sparring.lab.task import Splits
from tests.lab.data import REAL
from tests.lab.readers.folders import jsonl, write

# train, dev, test and classes, as the README beside the data says; dev is taken out of train where GLUE's own dev has to be the test set
COUNTS = {
    "sst5": (8544, 1101, 2210, 5),
    "clinc_oos": (15250, 3100, 5500, 151),
    "conll2003": (14041, 3250, 3453, 9),
    "sighan2015": (5825, 647, 1100, None),
    "ecspell": (2998, 600, 1500, None),
    "eurlex": (825, 110, 165, 127),
    "reuters21578": (7006, 764, 3019, 90),
    "wos": (700, 100, 200, 139),
    "iflytek": (3707, 690, 1749, 119),
    "sst2": (67349 - 5000, 5000, 872, 2),
    "cola": (8551 - 855, 855, 1043, 2),
    "rte": (2490 - 249, 249, 277, 2),
    "mrpc": (3668, 408, 1725, 2),
    "squad_qg": (10570, 1000, 10877, 0),
}
STAND_INS = {
    "eurlex": "eurlex_small: a selection of 1,100 acts with 127 EuroVoc descriptors, not LexGLUE's",
    "wos": "wos_1k: 1,000 of the 46,985 abstracts",
    "iflytek": "iflytek_fewclue: the labelled lines of FewCLUE, 3,707 for training",
    "sighan2015": "train without Wang271K: 6472 sentences",
    "rte": "no test labels: the published dev set is the test set",
    "squad_qg": "train is not the published one of 70,484 pairs: 10,570",
}
GLUE_LABELS = {
    "cola": ["acceptable", "unacceptable"],
    "mrpc": ["equivalent", "not_equivalent"],
    "rte": ["entailment", "not_entailment"],
    "sst2": ["negative", "positive"],
}


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no data in {REAL}")
@pytest.mark.parametrize("name", COUNTS)
def test_the_real_sets_have_the_counts_their_readme_says(name: str) -> None:
    data = get_task(name).load(Where(REAL, hub=False))
    *sizes, n_classes = COUNTS[name]
    assert [len(data.train), len(data.dev), len(data.test)] == sizes
    if n_classes is not None:
        assert len(data.labels) == n_classes
    if name in STAND_INS:
        assert data.notes[0] == STAND_INS[name]
    if name in GLUE_LABELS:
        assert data.labels == GLUE_LABELS[name]
    if name == "sst5":
        assert data.labels == ["negative", "neutral", "positive", "very negative", "very positive"]


def samples(*texts: str) -> list[dict[str, str]]:
    return [{"text": text, "label": "a"} for text in texts]


OURS = {f"{name}.jsonl": jsonl(*samples(f"ours {name}")) for name in ("train", "dev", "test")}
THEIRS: Splits = {name: samples(f"theirs {name}") for name in ("train", "dev", "test")}


def theirs(folder: Path) -> Splits | None:
    return THEIRS if (folder / "original").exists() else None


def hub() -> Splits:
    return {name: samples(f"hub {name}") for name in ("train", "dev", "test")}


def test_jsonl_comes_first_then_the_publishers_files_then_the_hub(tmp_path: Path) -> None:
    def found() -> tuple[str, str]:
        data = load_published(Where(tmp_path), "multi-class", ["one", "two"], theirs, hub)
        return data.train[0]["text"], data.source

    (tmp_path / "one").mkdir()
    assert found() == ("hub train", "Hugging Face hub")
    write(tmp_path / "two", OURS)
    assert found() == ("ours train", str(tmp_path / "two"))
    write(tmp_path / "one", {"original": ""})
    assert found() == ("theirs train", str(tmp_path / "one"))
    write(tmp_path / "one", OURS)
    assert found() == ("ours train", str(tmp_path / "one"))


def test_a_stand_in_says_so_and_the_set_itself_does_not(tmp_path: Path) -> None:
    write(tmp_path / "small", OURS)

    def notes() -> tuple[str, ...]:
        return load_published(
            Where(tmp_path), "multi-class", ["full", "small"], theirs, stand_ins={"small": "a part"}
        ).notes

    assert notes() == ("small: a part",)
    write(tmp_path / "full", OURS)
    assert notes() == ()


def test_notes_of_a_loader_are_kept(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    data = load_published(
        Where(tmp_path),
        "multi-class",
        ["one"],
        lambda _: Noted({"train": samples(*"abcd")}, ("two left out",)),
    )
    assert data.notes == (
        "two left out",
        "no test set: 1 samples split off train",
        "no dev set: 1 samples split off train",
    )


def test_missing_data_says_where_it_was_looked_for_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_published(Where(tmp_path, hub=False), "pair", ["one", "two"], theirs, hub)
    assert str(error.value) == (
        f"one: no data found (looked in: {tmp_path / 'one'} or {tmp_path / 'two'}); put its files there, "
        "or train.jsonl, dev.jsonl and test.jsonl with pair samples, or let it be read from the hub"
    )
    with pytest.raises(
        DataError,
        match=r"^rcv1: no data found \(looked in: no folder was given\); use --data-dir or SPARRING_DATA$",
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
        complete("multi-class", {"train": samples("a"), "dev": []}, "here")
    with pytest.raises(DataError, match="here: there is no train set"):
        complete("multi-class", {"test": samples("a")}, "here")


def test_a_dev_set_without_a_test_set_becomes_it() -> None:
    train = samples(*map(str, range(30)))
    data = complete("multi-class", {"train": train, "dev": samples("dev")}, "here")
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
    assert len(split_off(numbers, 0.25, most=10)[1]) == 10
    assert len(split_off(samples("a", "b"), 0.01)[1]) == 1
    assert len(split_off(samples(*"a" * 30000), 0.2, most=None)[1]) == 6000
    with pytest.raises(DataError, match="1 samples are too few"):
        split_off(samples("a"), 0.5)


def test_every_published_task_states_its_home_and_metric() -> None:
    published = {
        task.name: task for task in list_tasks() if task.name in {*COUNTS, "mnli", "qnli", "qqp", "rcv1"}
    }
    assert len(published) == 18
    assert all(task.home.startswith("http") and task.about for task in published.values())
    assert {name: task.metric for name, task in published.items() if task.kind.name == "multi-class"} == {
        **dict.fromkeys(("sst5", "clinc_oos", "iflytek", "sst2"), "accuracy"),
        "cola": "matthews",
    }
    assert {
        task.kind.name for name, task in published.items() if name in ("mnli", "mrpc", "qnli", "qqp", "rte")
    } == {"pair"}
    assert [name for name, task in published.items() if task.top_k] == ["wos"]
