"""Seven tasks of GLUE (Wang et al. 2019). But for MRPC, test labels are hidden: dev is the test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import Row, read_lines
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.published import NotedSplits, read_splits
from sparring.lab.task import DataError, Sample


@dataclass(frozen=True)
class GlueTask:
    """The form of one task in GLUE's folders and on the hub."""

    name: str
    folder: str
    about: str
    sizes: tuple[int, int, int]
    texts: Mapping[str, str]  # columns of the texts on the hub -> columns in the files
    label: str  # column in the files
    labels: Mapping[str, str]  # values in the files -> names on the hub
    metric: str = "accuracy"
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)  # other than train.tsv and dev.tsv
    header: tuple[str, ...] = ()  # columns of files without a header
    skip_broken: bool = False  # leave out lines with a wrong number of columns

    def read(self, folder: Path) -> NotedSplits | None:
        """GLUE's train.tsv and dev.tsv; for MRPC the msr_paraphrase files too."""
        broken: list[str] = []
        files = {"train": ["train.tsv"], "dev": ["dev.tsv"], **self.files}
        splits = read_splits(folder, files, partial(self._samples, broken=broken))
        notes = (f"{len(broken)} broken lines left out",) if broken else ()
        return None if splits is None else NotedSplits(splits, notes)

    def _samples(self, path: Path, broken: list[str]) -> list[Sample]:
        """Read cells between tabs. Quotation marks have no meaning there, unlike in the csv module."""
        header = list(self.header)
        samples = []
        for place, line in read_lines(path, blank=False):
            cells = line.split("\t")
            if not header:
                header = cells
                if missing := {*self.texts.values(), self.label} - {*header}:
                    columns = ", ".join(sorted(missing))
                    raise DataError(f"{place}: expected the columns {columns}, got {', '.join(header)}")
            elif len(cells) == len(header):
                samples.append(self._sample(dict(zip(header, cells, strict=True)), place))
            elif self.skip_broken:
                broken.append(place)
            else:
                columns = f"{len(header)} columns ({', '.join(header)})"
                raise DataError(f"{place}: expected {columns}, got {len(cells)}: {line!r:.80}")
        return samples

    def _sample(self, row: Row, place: str) -> Sample:
        label = row[self.label]
        if label not in self.labels:
            raise DataError(f'{place}: expected {self.label} to be {" or ".join(self.labels)}, got "{label}"')
        texts = [row[column].strip() for column in self.texts.values()]
        return {**dict(zip(("text", "text_b"), texts, strict=False)), "label": self.labels[label]}

    def hub(self) -> HubSource:
        fields = dict(zip(("text", "text_b"), self.texts, strict=False))
        strip = dict.fromkeys(fields, str.strip)
        columns = {**fields, "label": "label"}
        return HubSource("nyu-mll/glue", columns, config=self.name, classes="label", convert=strip)


SENTENCES = {"sentence1": "sentence1", "sentence2": "sentence2"}
ENTAILED = {"entailment": "entailment", "not_entailment": "not_entailment"}
MSR = {"train": ["train.tsv", "msr_paraphrase_train.txt"], "test": ["msr_paraphrase_test.txt"]}
TASKS = (
    GlueTask(
        "mnli", "MNLI", "whether one sentence follows from another or contradicts it", (392702, 9815, 9796),
        texts={"premise": "sentence1", "hypothesis": "sentence2"}, label="gold_label",
        labels={name: name for name in ("entailment", "neutral", "contradiction")},
        files={"dev": ["dev_matched.tsv"]},
    ),
    GlueTask(
        "mrpc", "MRPC", "whether two sentences of news say the same", (3668, 408, 1725),
        texts={"sentence1": "#1 String", "sentence2": "#2 String"}, label="Quality",
        labels={"0": "not_equivalent", "1": "equivalent"}, files=MSR,
    ),
    GlueTask(
        "qnli", "QNLI", "whether a sentence answers a question", (104743, 5463, 5463),
        texts={"question": "question", "sentence": "sentence"}, label="label", labels=ENTAILED,
    ),
    GlueTask(
        "qqp", "QQP", "whether two questions ask the same", (363846, 40430, 390965),
        texts={"question1": "question1", "question2": "question2"}, label="is_duplicate",
        labels={"0": "not_duplicate", "1": "duplicate"},
        skip_broken=True,  # a few published lines are broken in two
    ),
    GlueTask(
        "rte", "RTE", "whether one sentence follows from another", (2490, 277, 3000),
        texts=SENTENCES, label="label", labels=ENTAILED,
    ),
    GlueTask(
        "sst2", "SST-2", "whether a phrase of a film review praises", (67349, 872, 1821),
        texts={"sentence": "sentence"}, label="label", labels={"0": "negative", "1": "positive"},
    ),
    GlueTask(
        "cola", "CoLA", "whether a sentence is acceptable English", (8551, 1043, 1063),
        texts={"sentence": "sentence"}, label="label", labels={"0": "unacceptable", "1": "acceptable"},
        metric="matthews", header=("source", "label", "star", "sentence"),
    ),
)  # fmt: skip

for _task in TASKS:
    register_published(
        _task.name,
        kind="pair" if len(_task.texts) == 2 else "multi-class",
        about=f"{_task.about} (GLUE)",
        metric=_task.metric,
        home="https://gluebenchmark.com",
        sizes=_task.sizes,
        aliases={f"glue_{_task.name}": ""},
        folders=[_task.folder, f"glue_data/{_task.folder}"],
        original=_task.read,
        hub=_task.hub(),
    )
