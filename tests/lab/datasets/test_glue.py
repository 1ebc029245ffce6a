from pathlib import Path

import pytest

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.datasets.text.glue import TASKS
from tests.lab.datasets.folders import tsv, write

BY_NAME = {task.name: task for task in TASKS}
MSR = "Quality|#1 ID|#2 ID|#1 String|#2 String"
QQP = tsv(
    "id|qid1|qid2|question1|question2|is_duplicate",
    "1|2|3|A?|B?|1",
    "4|5|6|broken in",
    "two|0",
    "7|8|9|C?|D?|0",
)
FILES = {
    "mnli": {
        "train.tsv": tsv(
            "index|promptID|sentence1|sentence2|label1|gold_label",
            '0|31|He said "no.|He spoke.|neutral|entailment',
        ),
        "dev_matched.tsv": tsv("index|sentence1|sentence2|gold_label", "0|A|B|contradiction"),
        "test_matched.tsv": tsv("index|sentence1|sentence2", "0|A|B"),
    },
    "mrpc": {
        "msr_paraphrase_train.txt": "\ufeff" + tsv(MSR, '1|7|8|"A|A".').replace("\n", "\r\n"),
        "msr_paraphrase_test.txt": tsv(MSR, "0|1|2|C|D"),
    },
    "qnli": {
        "train.tsv": tsv("index|question|sentence|label", "0|Who?|He.|entailment"),
        "dev.tsv": tsv("index|question|sentence|label", "0|When?|He.|not_entailment"),
    },
    "qqp": {"train.tsv": QQP},
    "rte": {"train.tsv": tsv("index|sentence1|sentence2|label", "0|A|B|not_entailment")},
    "sst2": {
        "train.tsv": tsv("sentence|label", "hide new secrets |0", '" a good one|1'),
        "test.tsv": tsv("index|sentence", "0|x"),
    },
    "cola": {
        "train.tsv": tsv("gj04|1||Our friends left.", "gj04|0|*|Left friends our."),
        "test.tsv": tsv("index|sentence", "0|x"),
    },
}
SAMPLES = {
    "mnli": {"train": ['He said "no.|He spoke.|entailment'], "dev": ["A|B|contradiction"]},
    "mrpc": {"train": ['"A|A".|equivalent'], "test": ["C|D|not_equivalent"]},
    "qnli": {"train": ["Who?|He.|entailment"], "dev": ["When?|He.|not_entailment"]},
    "qqp": {"train": ["A?|B?|duplicate", "C?|D?|not_duplicate"]},
    "rte": {"train": ["A|B|not_entailment"]},
    "sst2": {"train": ["hide new secrets|negative", '" a good one|positive']},
    "cola": {"train": ["Our friends left.|acceptable", "Left friends our.|unacceptable"]},
}


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_quotation_marks_have_no_meaning_and_hidden_tests_are_not_read(name: str, tmp_path: Path) -> None:
    assert BY_NAME[name].read(tmp_path) is None
    result = BY_NAME[name].read(write(tmp_path, FILES[name]))
    assert result is not None
    samples = {
        split: [
            "|".join(sample[field] for field in ("text", "text_b", "label") if field in sample)
            for sample in part
        ]
        for split, part in result.splits.items()
    }
    assert samples == SAMPLES[name]


def test_broken_lines_of_qqp_are_counted_and_dev_is_the_test_set(tmp_path: Path) -> None:
    write(tmp_path / "glue_data" / "QQP", {"train.tsv": QQP, "dev.tsv": QQP})
    data = get_task("qqp").load(Where(tmp_path, hub=False))
    assert [sample["label"] for sample in data.test] == ["duplicate", "not_duplicate"]
    assert data.notes == (
        "4 broken lines left out",
        "no test labels: the published dev set is the test set",
        "no dev set: 1 samples split off train",
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "rte",
            tsv("index|sentence1|sentence2|label", "0|A|B|C|rte"),
            "train.tsv:2: expected 4 columns .*, got 5",
        ),
        ("sst2", tsv("text|label", "a|1"), "train.tsv:1: expected the columns sentence, got text, label"),
        ("cola", tsv("gj04|1||A.", "gj04|2||B."), 'train.tsv:2: expected label to be 0 or 1, got "2"'),
        ("mnli", tsv("sentence1|sentence2|gold_label", "A|B|-"), 'tsv:2: .* entailment or .*, got "-"'),
    ],
)
def test_other_lines_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        BY_NAME[name].read(write(tmp_path, {"train.tsv": text}))
