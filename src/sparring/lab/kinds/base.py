"""`Kind`: everything that the lab knows about one kind of task. Each file of this folder defines one."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sparring.lab.errors import UserError
from sparring.lab.kinds.encoder import Encoder, Labels, Sample, Samples
from sparring.lab.kinds.metrics import label_metrics
from sparring.lab.models.settings import Model, ModelDefaults, ModelOptions
from sparring.losses import list_losses

LONGEST = 280  # characters of a sample that a report shows
PRETRAINED_ONLY = ("layers", "freeze_embeddings", "freeze_layers", "pooling")


class Kind:
    """One kind of task: its samples, labels, encoding, metrics, losses, models, and how a report shows it.

    The defaults describe samples with one label each. Subclasses override what differs and register with
    `register_kind`; nothing else in the lab has to change for a new kind.
    """

    name: str  # the word that files and flags use
    fields: tuple[str, ...]  # of a sample; a model reads the first one
    target: str = "label"  # the field that a model predicts
    list_fields: tuple[str, ...] = ()  # fields that hold lists of strings
    equal_lengths: tuple[str, str] | None = None  # two fields that must have the same length
    noun = "texts"  # what samples hold, in messages
    reads_text = True  # False: images or sounds
    one_label = True  # exactly one per sample
    multilabel = False  # any number per sample
    labelled = True  # False: the classes are not labels of the samples
    generates = False  # predictions are generated token by token
    calibrated = True  # each row has one class, so that its softmax gives probabilities

    # how tables of a user are read; without roles, the kind does not come in tables
    roles: Mapping[str, str] = {}  # the field that each column role (text, text_b, label) fills
    column_names: Mapping[
        str, frozenset[str]
    ] = {}  # names that mark the column of a role, if they are special
    text_pairs: tuple[tuple[str, str], ...] = ()  # names that mark the columns of two texts
    description = 'column "{label}" holds one of {n_labels} values'  # {text}, {text_b}, {label}: column names
    has_separator = False  # a cell may hold several values
    separator: str | None = None  # what separates them by default

    # files with one sample each, and arrays with many
    endings: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    optional_arrays: tuple[str, ...] = ()
    task_settings: Mapping[str, Any] = {}  # defaults of tasks made from a user's files

    encoder_class: type[Encoder] = Encoder
    auto_class: str  # the class of transformers that loads a saved network
    models: Mapping[str, ModelDefaults] = {}  # by name; further names are on the Hugging Face hub, or folders
    pretrained: str  # the pre-trained model that needs no download
    model_options: tuple[str, ...] = ()  # the `ModelOptions` that apply

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<kind {self.name}>"

    # ------------------------------------------------------------ samples and labels

    @property
    def text_fields(self) -> tuple[str, ...]:
        """The fields that JSON can hold: all but images and sounds."""
        return self.fields if self.reads_text else self.fields[1:]

    def labels_of(self, sample: Sample) -> list[str]:
        """The labels of a sample."""
        value = sample[self.target]
        return list(value) if self.target in self.list_fields else [value]

    def collect_labels(self, *splits: Samples) -> list[str]:
        """The classes of a task, sorted; the first split is train."""
        return sorted({label for split in splits for sample in split for label in self.labels_of(sample)})

    def key(self, sample: Sample) -> Hashable:
        """What identifies the input of a sample: the same key must not occur in two splits."""
        value = sample[self.fields[0]]
        return tuple(value) if isinstance(value, list) else value

    def recognises(self, columns: Any) -> bool:
        """Whether the columns of a table, a `ColumnMatcher`, show that its rows are of this kind."""
        return False

    # ------------------------------------------------------------ files with one or many samples

    def read_file(self, path: Path, size: int | None = None) -> Sample:
        """Read one sample without its label from a file with one of `endings`; ``size`` is for images."""
        raise NotImplementedError

    def file_notes(self, size: int | None) -> list[str]:
        """What was done to the content of files."""
        return []

    def read_arrays(self, arrays: Mapping[str, Any], sample_rate: int, path: Path) -> list[Sample]:
        """Check `arrays` and make samples of them, without labels; ``path`` is for error messages."""
        raise NotImplementedError

    def parse_inputs(
        self, inputs: Sequence[str], seconds: Sequence[str] | None, task: str, processor: Any
    ) -> list[Sample]:
        """Make samples without labels of the inputs of ``predict``; ``seconds`` are for pairs of texts."""
        if seconds is not None:
            raise UserError(f"{task} takes one text, not a pair")
        return [self.parse_input(text, task, processor) for text in inputs]

    def parse_input(self, text: str, task: str, processor: Any) -> Sample:
        """Make one sample; files are read as the processor of the model wants them."""
        return {self.fields[0]: text}

    # ------------------------------------------------------------ losses and metrics

    @property
    def losses(self) -> list[str]:
        """Names of the losses that fit."""
        return [name for name in list_losses() if name.startswith("multilabel-") == self.multilabel]

    def loss_name(self, family: str) -> str:
        """The loss of a family that fits, such as "as-softmax" or "multilabel-as-softmax"."""
        return f"multilabel-{family}" if self.multilabel else family

    def metrics(self, labels: Labels) -> tuple[str, ...]:
        """Names of the metrics, the default one first."""
        return ("accuracy", "macro_f1", "matthews")

    def default_metric(self, labels: Labels) -> str:
        """The metric that selects models where a task names none."""
        return self.metrics(labels)[0]

    def score(self, samples: Samples, predicted: Sequence[Any], labels: Labels) -> dict[str, float]:
        """All `metrics` of the predictions."""
        return label_metrics(self.targets(samples), predicted)

    def targets(self, samples: Iterable[Sample]) -> list[Any]:
        """What a model should predict for each sample."""
        return [sample[self.target] for sample in samples]

    # ------------------------------------------------------------ what a report shows

    def class_pairs(self, sample: Sample, predicted: Any) -> Iterator[tuple[str | None, str | None]]:
        """Pairs of true and predicted classes, for F1 by class. None stands for "no class"."""
        yield sample[self.target], predicted

    def mistakes(self, sample: Sample, predicted: Any) -> list[str]:
        """Describe what is wrong in a prediction; empty if it is right."""
        return [shorten(str(wrong)) for true, wrong in self.class_pairs(sample, predicted) if wrong != true]

    def show(self, sample: Sample, index: int) -> tuple[str, str]:
        """A sample and its target as short texts."""
        return shorten(sample[self.fields[0]]), shorten(str(sample[self.target]))

    def doubt(self, sample: Sample, labels: Labels, rival: int, place: int) -> tuple[str, str]:
        """The label of a sample that is in doubt, and the one that training proposes in its place.

        Args:
            sample: A training sample.
            labels: The classes.
            rival: The class that was ahead.
            place: Where the doubt is: the label (multi-label), or the token.
        """
        return str(sample[self.target]), labels[rival]

    def picture(self, sample: Sample) -> str | None:
        """A sample as the address of an image for HTML; None for samples that are texts."""
        return None

    # ------------------------------------------------------------ models

    def encoder(
        self, labels: Labels, processor: Any, max_length: int | None = None, **settings: Any
    ) -> Encoder:
        """The encoder of a task for a model; see `Encoder` for the arguments."""
        return self.encoder_class(labels, processor, max_length, **settings)

    def model_defaults(self, name: str) -> ModelDefaults:
        """Training settings for a model by name."""
        return self.models.get(name, ModelDefaults(epochs=5, lr=5e-5))

    def build_model(
        self, name: str, train: Samples, labels: Labels, options: ModelOptions | None = None
    ) -> Model:
        """Build a network with a head for ``labels``, and its processor.

        Args:
            name: One of `models`, a name on the Hugging Face hub, or a folder.
            train: Training samples. Models from scratch take their vocabulary or statistics from them.
            labels: The classes.
            options: What else was chosen.

        Raises:
            UserError: The name or an option does not fit, or the model cannot be loaded.
        """
        from sparring.lab.models.build import loading

        options = options or ModelOptions()
        self.check_model(name, options)
        with loading(name, tuple(self.models), options.trust_remote_code):
            return self.create_model(name, train, labels, options)

    def create_model(self, name: str, train: Samples, labels: Labels, options: ModelOptions) -> Model:
        """What `build_model` does after its checks."""
        raise NotImplementedError

    def check_model(self, name: str, options: ModelOptions) -> None:
        """Raise `UserError` for a model of another kind, or an option that does not apply."""
        owners = [kind.name for kind in list_kinds() if name in kind.models]
        if owners and self.name not in owners:
            raise UserError(f"{name} is a model for {', '.join(owners)} tasks; this task's kind is {self}")
        values = dataclasses.asdict(options)
        del values["trust_remote_code"]
        chosen = [option for option, value in values.items() if value not in (None, False)]
        if unfit := ", ".join(option for option in chosen if option not in self.model_options):
            fitting = ", ".join(self.model_options) or "none"
            raise UserError(f"{unfit}: not for {self} tasks; leave it out (their options: {fitting})")
        unfit = ", ".join(option for option in chosen if option in PRETRAINED_ONLY)
        if unfit and self.model_defaults(name).from_scratch:
            raise UserError(f"{unfit}: for pre-trained models only, and {name} is trained from scratch")

    def load_model(self, folder: Path, *, trust_remote_code: bool = False) -> Model:
        """Load what a run saved. Code in the folder runs only with ``trust_remote_code``."""
        from sparring.lab.models import build

        return build.load(folder, self.auto_class, self.load_processor, trust_remote_code)

    def load_processor(self, folder: Path, trust: bool) -> Any:
        """Load the processor that was saved beside a network."""
        raise NotImplementedError

    def limit_length(self, model: Model, max_length: int) -> int:
        """Limit the length of inputs to what the model can read; return the limit."""
        return max_length


K = TypeVar("K", bound=type[Kind])
_KINDS: dict[str, Kind] = {}


def register_kind(cls: K) -> K:
    """Class decorator: make a kind known by its name."""
    _KINDS[cls.name] = cls()
    return cls


def get_kind(kind: Kind | str) -> Kind:
    """The kind of a name; a `Kind` is returned as it is.

    Raises:
        ValueError: There is no such kind.
    """
    if isinstance(kind, Kind):
        return kind
    if kind not in _KINDS:
        raise ValueError(f'kind must be one of {", ".join(_KINDS)}, got "{kind}"')
    return _KINDS[kind]


def list_kinds() -> list[Kind]:
    """All kinds, in the order they were registered."""
    return list(_KINDS.values())


def shorten(text: str) -> str:
    """The text, cut to what a report shows."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
