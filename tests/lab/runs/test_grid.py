"""Every task that is available with every loss that fits its kind, at a small size."""

import math
from pathlib import Path

import pytest

from sparring.lab.datasets import DataError, Where, get_task, list_tasks
from sparring.lab.errors import UserError
from sparring.lab.runs.compare import contestants, plans_for
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import open_task
from sparring.lab.runs.runner import run
from sparring.losses import list_losses
from tests.lab.data import REAL

SMALL = {"epochs": 1, "batch_size": 8, "n_train": 16, "n_dev": 8, "n_test": 8, "max_length": 48}
EMBEDDED = [task.name for task in list_tasks() if task.embedded]
THERE = {
    **dict.fromkeys(("sst5", "clinc_oos", "conll2003", "sighan2015", "ecspell", "reuters21578")),
    "eurlex": "eurlex_small",
    "wos": "wos_1k",
    "iflytek": "iflytek_fewclue",
    **{name: f"glue_{name}" for name in ("sst2", "cola", "rte", "mrpc")},
}


def test_the_embedded_tasks() -> None:
    assert EMBEDDED == ["code-switch", "digits", "languages", "languages-multilabel"]


def test_the_papers_tasks() -> None:
    named = [
        "sst5",
        "clinc_oos",
        "conll2003",
        "sighan2015",
        "eurlex",
        "wos",
        "mnli",
        "mrpc",
        "qnli",
        "qqp",
        "rte",
        "sst2",
        "cola",
        "rcv1",
        "iflytek",
    ]
    assert set(named) <= {task.name for task in list_tasks()}
    for name in named:
        with pytest.raises(DataError, match="use data_dir or SPARRING_DATA"):
            get_task(name).load(Where(None, hub=False))


@pytest.mark.parametrize("name", [*EMBEDDED, *THERE])
def test_every_loss_that_fits_trains_and_the_others_are_refused(name: str, tmp_path: Path) -> None:
    if name in THERE and not (REAL / (THERE[name] or name)).is_dir():
        pytest.skip("SPARRING_DATA has no such folder")
    config = Config(name, out=str(tmp_path), data_dir=str(REAL), **SMALL)  # type: ignore[arg-type]
    task, data = open_task(config)
    if THERE.get(name):
        assert get_task(str(THERE[name])) is task  # its folder's name will do
    fitting = task.kind.losses
    assert len(fitting) == (4 if task.kind.multilabel else 12)
    plans = plans_for(contestants(config, [*fitting, "as-speed"], task, data), 1, task, data, strict=False)
    for summary in map(run, plans):
        assert summary["n_forward"] == 16
        assert math.isfinite(summary["test"]["loss"])
        assert 0 <= summary["test"]["margin"] + 1 <= 2
    for loss in set(list_losses()) - set(fitting):
        with pytest.raises(UserError, match=f"use one of {', '.join(fitting)}"):
            contestants(config, [loss], task, data)
