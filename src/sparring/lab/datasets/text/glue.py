"""Seven tasks of GLUE (Wang et al. 2019). Its test labels are hidden but for MRPC's, so the published dev set is the test set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparring.lab.readers.files import Row, read_lines
from sparring.lab.readers.hub import hub_splits
from sparring.lab.readers.published import Noted, find_file, load_published
from sparring.lab.task import Data, DataError, Sample, Splits, Where, register


@dataclass(frozen=True)
class Form:
    """How one task lies in GLUE's folders and on the hub."""

    name: str
    about: str
    folder: str
    sizes: tuple[int, int, int]
    columns: tuple[str, ...]  # of the text, of the second one where it has two
    hub_columns: tuple[str, ...]
    label: str
    labels: dict[str, str]  # as the files have them, as the hub names them
    metric: str = "accuracy"
    dev: str = "dev.tsv"
    header: tuple[str, ...] = ()  # of a file without one

    @property
    def kind(self) -> str:
        return "pair" if len(self.columns) == 2 else "multi-class"


TWO = ("sentence1", "sentence2")
ENTAILED = {"entailment": "entailment", "not_entailment": "not_entailment"}
FORMS = (
    Form(
        "mnli", "whether one sentence follows from another or contradicts it", "MNLI", (392702, 9815, 9796), TWO, ("premise", "hypothesis"),
        "gold_label", {name: name for name in ("entailment", "neutral", "contradiction")}, dev="dev_matched.tsv",
    ),
    Form(
        "mrpc", "whether two sentences of news say the same", "MRPC", (3668, 408, 1725), ("#1 String", "#2 String"), TWO,
        "Quality", {"0": "not_equivalent", "1": "equivalent"},
    ),
    Form(
        "qnli", "whether a sentence answers a question", "QNLI", (104743, 5463, 5463), ("question", "sentence"), ("question", "sentence"),
        "label", ENTAILED,
    ),
    Form(
        "qqp", "whether two questions ask the same", "QQP", (363846, 40430, 390965), ("question1", "question2"), ("question1", "question2"),
        "is_duplicate", {"0": "not_duplicate", "1": "duplicate"},
    ),
    Form("rte", "whether one sentence follows from another", "RTE", (2490, 277, 3000), TWO, TWO, "label", ENTAILED),
    Form(
        "sst2", "whether a phrase of a film review praises", "SST-2", (67349, 872, 1821), ("sentence",), ("sentence",),
        "label", {"0": "negative", "1": "positive"},
    ),
    Form(
        "cola", "whether a sentence is acceptable English", "CoLA", (8551, 1043, 1063), ("sentence",), ("sentence",),
        "label", {"0": "unacceptable", "1": "acceptable"}, metric="matthews", header=("source", "label", "star", "sentence"),
    ),
)  # fmt: skip


def original(form: Form, folder: Path) -> Noted | None:
    """GLUE's train.tsv and dev.tsv; of MRPC the msr_paraphrase files too, whose test labels are known."""
    msr = form.name == "mrpc"
    paths = {
        "train": find_file(folder, "train.tsv", *(["msr_paraphrase_train.txt"] if msr else [])),
        "dev": find_file(folder, form.dev),
        "test": find_file(folder, "msr_paraphrase_test.txt") if msr else None,
    }
    if paths["train"] is None:
        return None
    splits: Splits = {}
    n_broken = 0
    for split, path in paths.items():
        if path is not None:
            splits[split] = []
            for number, row in rows(form, path):
                if row is None:
                    n_broken += 1
                else:
                    splits[split].append(sample(form, row, f"{path}:{number}"))
    return Noted(splits, (f"{n_broken} broken lines left out",) if n_broken else ())


def rows(form: Form, path: Path) -> Iterator[tuple[int, Row | None]]:
    """Lines of cells between tabs. A quotation mark is a sign like any other there, so this is no table for the csv module.

    QQP as published has a few lines that are broken in two: None. Elsewhere such a line is an error.
    """
    header = list(form.header)
    for number, line in read_lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        if not header:
            header = cells
            if missing := [name for name in (*form.columns, form.label) if name not in header]:
                raise DataError(
                    f"{path}:{number}: expected the columns {', '.join(missing)}, got {', '.join(header)}"
                )
        elif len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True))
        elif form.name == "qqp":
            yield number, None
        else:
            raise DataError(
                f"{path}:{number}: expected {len(header)} columns ({', '.join(header)}), got {len(cells)}: {line!r:.80}"
            )


def sample(form: Form, row: Row, place: str) -> Sample:
    if row[form.label] not in form.labels:
        raise DataError(
            f'{place}: expected {form.label} to be {" or ".join(form.labels)}, got "{row[form.label]}"'
        )
    texts = [row[column].strip() for column in form.columns]
    return {**dict(zip(("text", "text_b"), texts, strict=False)), "label": form.labels[row[form.label]]}


def hub(form: Form) -> Splits:
    def sample(row: Row) -> Sample:
        texts = [row[column].strip() for column in form.hub_columns]
        return {**dict(zip(("text", "text_b"), texts, strict=False)), "label": row["label"]}

    return hub_splits("nyu-mll/glue", sample, config=form.name, classes="label")


def load(form: Form, where: Where) -> Data:
    folders = [form.name, f"glue_{form.name}", form.folder, f"glue_data/{form.folder}"]
    return load_published(where, form.kind, folders, partial(original, form), partial(hub, form))


for _form in FORMS:
    register(
        _form.name,
        kind=_form.kind,
        about=f"{_form.about} (GLUE)",
        metric=_form.metric,
        home="https://gluebenchmark.com",
        aliases=(f"glue_{_form.name}",),
        sizes=_form.sizes,
    )(partial(load, _form))
