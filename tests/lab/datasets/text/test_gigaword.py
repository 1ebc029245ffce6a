from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import Where, get_task
from sparring.lab.datasets.text import gigaword

TRAIN = (
    "australia 's current account deficit shrunk by a record #.## billion dollars .\n",
    "australian current account deficit narrows\n",
)
FORMS = {
    "lines": {"train.src.txt": TRAIN[0], "train.tgt.txt": TRAIN[1], "valid.src.txt": "a b\n", "valid.tgt.txt": "b\n",
              "test.src.txt": "c d\n", "test.tgt.txt": "d\n"},
    "dev": {"org_data/train.src.txt": TRAIN[0], "org_data/train.tgt.txt": TRAIN[1], "org_data/dev.src.txt": "a b\n",
            "org_data/dev.tgt.txt": "b\n", "org_data/test.src.txt": "c d\n", "org_data/test.tgt.txt": "d\n"},
    "authors": {"sumdata/train/train.article.txt": TRAIN[0], "sumdata/train/train.title.txt": TRAIN[1],
                "sumdata/train/valid.article.filter.txt": "a b\n", "sumdata/train/valid.title.filter.txt": "b\n",
                "sumdata/Giga/input.txt": "c d\n", "sumdata/Giga/task1_ref0.txt": "d\n"},
}  # fmt: skip


@pytest.mark.parametrize("form", list(FORMS))
def test_the_forms_it_is_published_in(form: str, tmp_path: Path) -> None:
    write(tmp_path / "gigaword", FORMS[form])
    data = get_task("gigaword").load(Where(tmp_path, hub=False))
    assert data.train == [{"source": TRAIN[0].strip(), "target": TRAIN[1].strip()}]
    assert (data.dev, data.test) == ([{"source": "a b", "target": "b"}], [{"source": "c d", "target": "d"}])
    assert get_task("gigaword").metric == "rouge_l"


def test_the_hub_has_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_hub(name: str, config: str | None, revision: str | None) -> dict[str, Any]:
        return {part: [{"document": f"{part} text", "summary": part}] for part in ("train", "dev", "test")}

    monkeypatch.setattr("sparring.lab.readers.hub.load_hub", load_hub)
    assert gigaword.hub()["dev"] == [{"source": "dev text", "target": "dev"}]
