"""Data sets are found by name, imported when they are asked for, and the same in every process."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.lab import datasets
from sparring.lab.datasets import UserError, Where, get_task, known, list_tasks
from tests.lab.data import REAL

EMBEDDED = ("languages", "languages-multilabel", "code-switch")
FRESH = """
import contextlib, hashlib, io, json, sys
from sparring.cli import main
from sparring.lab.datasets import Where, get_task, list_tasks

prefix = "sparring.lab.datasets."
def imported():
    return sorted(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix))

with contextlib.redirect_stdout(io.StringIO()):
    main(["losses"])
result = {"losses": imported()}
for name in ("sst5", "code-switch"):
    get_task(name)
    result[name] = imported()
list_tasks()
result["all"] = imported()
for name in %r:
    data = get_task(name).load(Where())
    result["digest of " + name] = hashlib.sha256(repr((data.train, data.dev, data.test)).encode()).hexdigest()
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    """What a new process imports and loads, with another order of hashes."""
    environment = {**os.environ, "PYTHONHASHSEED": "4321"}
    command = [sys.executable, "-c", FRESH % (EMBEDDED,)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def test_a_data_set_is_imported_when_it_is_asked_for(fresh: dict[str, Any]) -> None:
    assert fresh["losses"] == []
    assert fresh["sst5"] == ["text", "text.sst5"]
    assert fresh["code-switch"] == ["text", "text.languages", "text.sst5", "tokens", "tokens.code_switch"]
    files = Path(datasets.__path__[0]).glob("*/[a-z]*.py")
    assert [name for name in fresh["all"] if "." in name] == sorted(
        f"{p.parent.name}.{p.stem}" for p in files
    )


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_data_is_the_same_in_every_process(name: str, fresh: dict[str, Any]) -> None:
    data = get_task(name).load(Where())
    digest = hashlib.sha256(repr((data.train, data.dev, data.test)).encode()).hexdigest()
    assert digest == fresh[f"digest of {name}"]


def test_names_aliases_and_unknown_names() -> None:
    assert get_task("glue_mrpc") is get_task("mrpc")
    assert get_task("wos_1k") is get_task("wos46985") is get_task("wos")
    assert (known("mnli"), known("eurlex_small"), known("reviews.csv")) == (True, True, False)
    with pytest.raises(UserError, match=r'no task named "CLINC-oos"; did you mean "clinc_oos"\? Known: c'):
        get_task("CLINC-oos")


def test_the_listing_is_that_of_the_registry() -> None:
    path = Path(datasets.__file__).with_name("tasks.json")
    expected = json.dumps([task.listing() for task in list_tasks()], indent=1, ensure_ascii=False) + "\n"
    assert path.read_text(encoding="utf-8") == expected, f"write this text to {path}"


def test_every_published_task_states_its_home_and_metric() -> None:
    tasks = {task.name: task for task in list_tasks() if not task.embedded}
    assert len(tasks) == 23
    assert all(task.home.startswith("http") and task.about for task in tasks.values())
    assert {name for name, task in tasks.items() if task.metric == "matthews"} == {"cola"}
    assert {name for name, task in tasks.items() if task.top_k} == {"wos"}


# --- the real data, as the README beside it describes it

COUNTS = {  # train, dev, test and classes; dev is split off train where GLUE's dev set is the test set
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
    "cifar100": (10000, 1000, 2000, 100),
    "fsdd": (2400, 300, 300, 10),
}
FIRST_NOTE = {
    "eurlex": "eurlex_small: a selection of 1,100 acts with 127 EuroVoc descriptors, not LexGLUE's",
    "wos": "wos_1k: 1,000 of the 46,985 abstracts",
    "iflytek": "iflytek_fewclue: the labelled lines of FewCLUE, 3,707 for training",
    "sighan2015": "train without Wang271K: 6472 sentences",
    "rte": "no test labels: the published dev set is the test set",
    "squad_qg": "train is not the published one of 70,484 pairs: 10,570",
}
LABELS = {
    "cola": ["acceptable", "unacceptable"],
    "mrpc": ["equivalent", "not_equivalent"],
    "rte": ["entailment", "not_entailment"],
    "sst2": ["negative", "positive"],
    "sst5": ["negative", "neutral", "positive", "very negative", "very positive"],
}


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no data in {REAL}")
@pytest.mark.parametrize("name", COUNTS)
def test_the_real_sets_have_the_counts_of_their_readme(name: str) -> None:
    data = get_task(name).load(Where(REAL, hub=False))
    *sizes, n_classes = COUNTS[name]
    assert [len(data.train), len(data.dev), len(data.test)] == sizes
    assert n_classes in (None, len(data.labels))
    assert data.labels == LABELS.get(name, data.labels)
    if name in FIRST_NOTE:
        assert data.notes[0] == FIRST_NOTE[name]
