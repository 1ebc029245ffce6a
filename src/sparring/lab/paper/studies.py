"""The papers' tables and figures: which runs each needs, and what is made of them.

study ─► plans ─► runs ─► records ─► tables and charts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.paper import figures, methods, run_settings
from sparring.lab.paper import result_tables as tables
from sparring.lab.paper.figures import Figure
from sparring.lab.paper.methods import AS_SOFTMAX, AS_SPEED, SOFTMAX, SPARSE_SOFTMAX, SPEED_FAST, Method
from sparring.lab.paper.page.delta import delta_tables
from sparring.lab.paper.page.evidence import accuracy_tables
from sparring.lab.paper.published import GLUE_TASKS, SPARSE_TASKS, TEXT_TASKS
from sparring.lab.paper.study_records import Results
from sparring.lab.table import Table
from sparring.lab.task import Task

TEN_CLASSES = ("digits", "fsdd")  # of which to keep 20 would be softmax


@dataclass(frozen=True)
class Study:
    """A table or a figure."""

    name: str  # on the command line
    about: str
    tasks: tuple[str, ...]  # the paper's
    methods: Sequence[Method] | Callable[[Task], Sequence[Method]]  # that are run on a task
    output: Figure | Callable[[Results], list[Table]]  # what is made of the records
    forms: Callable[[Task, str], dict[str, dict[str, Any]]] = lambda *_: {"": {}}  # settings, at a scale
    splits_samples: bool = False  # softmax is then run on each run's hard samples, and on random ones

    @property
    def is_sparse(self) -> bool:
        """Whether it is of the Sparse-Softmax paper."""
        return self.name.startswith("sparse")

    @property
    def curves(self) -> tuple[str, ...]:
        """The curves that its records need."""
        if isinstance(self.output, Figure):
            return self.output.curves
        shared = (tables.table2, tables.table3, tables.table4)  # of the same runs
        return ("evaluations",) if self.output in shared else ()

    def tables(self, results: Results) -> list[Table]:
        return self.output.tables(results) if isinstance(self.output, Figure) else self.output(results)

    def charts(self, results: Results) -> dict[str, Any]:
        """The charts of a figure by name; none for a table."""
        return self.output.charts(results) if isinstance(self.output, Figure) else {}

    def methods_on(self, task: Task, n_classes: int) -> list[Method]:
        """The methods that have a form for the task; to keep as many classes as there are is softmax."""
        return [
            method
            for method in (self.methods(task) if callable(self.methods) else self.methods)
            if method.fits(task.kind)
            and task.name not in method.left_out
            and not (method.point and method.point[0] == "k" and method.point[1] >= n_classes)
        ]


def _kept_twenty(task: Task) -> Sequence[Method]:
    """Tables 3, 5 and 6 of the Sparse-Softmax paper: its method with k = 20, beside AS-Softmax."""
    k = 5 if task.name in TEN_CLASSES else 20
    return SOFTMAX, replace(SPARSE_SOFTMAX, fixed={"k": k}), AS_SOFTMAX, SPEED_FAST


def _logit_margins(task: Task) -> Sequence[Method]:
    """Figure 5: a margin between logits, and the two lines that it is compared with."""
    if task.kind.multilabel:
        raise UserError(f"figure5 is about losses with one target; {task.name} is multi-label")
    return SOFTMAX, AS_SOFTMAX, *methods.MARGIN_POINTS


_PAIR = (SOFTMAX, AS_SOFTMAX)
_DELTAS = (SOFTMAX, *methods.DELTA_POINTS)
_SIZES = (SOFTMAX, *methods.SIZE_POINTS)
_SST5 = ("sst5",)
_LONG = run_settings.too_long  # so that a loss on dev can rise
_AS_SOFTMAX = (
    Study("table2", "quality of all methods", TEXT_TASKS, methods.ALL_METHODS, tables.table2),
    Study("table3", "training time against softmax", TEXT_TASKS, methods.TIMED, tables.table3),
    Study(
        "table4", "correlation of dev loss and quality", TEXT_TASKS, methods.CORRELATED, tables.table4, _LONG
    ),
    Study("table7", "hard samples against random ones", _SST5, _PAIR[1:], tables.table7, splits_samples=True),
    Study("table8", "GLUE", GLUE_TASKS, _PAIR, tables.table8),
    Study("figure1", "won share over training", ("clinc_oos",), _PAIR[1:], figures.WON_SHARE),
    Study("figure2", "quality against δ", ("sst5", "conll2003"), _DELTAS, figures.DELTA),
    Study("figure3", "quality and loss on dev over training", _SST5, methods.CORRELATED, figures.DEV, _LONG),
    Study("figure4", "distribution of p_margin on test", _SST5, _PAIR, figures.MARGINS),
    Study("figure5", "the logit-margin variant against its margin", _SST5, _logit_margins, figures.MARGIN),
)
_SPARSE_SOFTMAX = (
    Study("table1", "text classification", SPARSE_TASKS, _SIZES, tables.sparse_table1),
    Study("table3", "question generation", ("squad_qg",), _kept_twenty, tables.sparse_table3),
    Study("table5", "summarisation", ("gigaword",), _kept_twenty, tables.sparse_table5, run_settings.beams),
    Study(
        "table6",
        "images, from scratch and pre-trained",
        ("cifar100",),
        _kept_twenty,
        tables.sparse_table6,
        run_settings.networks,
    ),
    Study("figure1", "training loss", SPARSE_TASKS, _SIZES, figures.SPARSE_LOSS),
    Study("figure2", "micro F1 against k", ("iflytek", "clinc_oos"), _SIZES, figures.SPARSE_SIZE),
)
_BEYOND = (
    Study(
        "accuracy",
        "AS-Softmax and AS-Speed against softmax with more seeds (ours)",
        ("clinc_oos", "sst5", "conll2003", "reuters21578", "eurlex", "wos", "sighan2015", "cola", "cifar100"),
        (*_PAIR, AS_SPEED),
        accuracy_tables,
        run_settings.pretrained,
    ),
    Study(
        "delta",
        "quality, calibration and time against δ (ours)",
        ("clinc_oos", "sst5", "conll2003", "cola"),
        (SOFTMAX, *methods.COST_POINTS),
        delta_tables,
    ),
)
_NAMED = (
    replace(study, name=f"sparse {study.name}", about=f"Sparse-Softmax: {study.about}")
    for study in _SPARSE_SOFTMAX
)
STUDIES = {study.name: study for study in (*_AS_SOFTMAX, *_NAMED, *_BEYOND)}


def normal_name(words: Sequence[str]) -> str:
    """The name of a table without spaces, hyphens and capitals: ``table2`` for "Table 2" and ``table-2``."""
    return "".join(words).lower().replace("-", "").replace(" ", "")


def find_study(words: Sequence[str]) -> Study:
    """The study of a name such as ``table2``, ``Figure 3`` or ``sparse table1``."""
    for study in STUDIES.values():
        if normal_name([study.name]) == normal_name(words):
            return study
    raise UserError(f'no table or figure "{" ".join(words)}"; there are {", ".join(STUDIES)}')
