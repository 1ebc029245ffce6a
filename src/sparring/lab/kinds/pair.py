"""Pairs of texts with one label each."""

from collections.abc import Hashable, Sequence
from typing import Any

from sparring.lab.errors import UserError, names_flags
from sparring.lab.kinds.base import register_kind, shorten
from sparring.lab.kinds.encoder import Sample, Samples
from sparring.lab.kinds.text import TextEncoder, TextKind


class PairEncoder(TextEncoder):
    """Both texts in one sequence, separated as the tokenizer does."""

    def tokenize(self, samples: Samples) -> Any:
        texts = [sample["text"] for sample in samples]
        seconds = [sample["text_b"] for sample in samples]
        return self.tokenizer(texts, seconds, truncation=True, max_length=self.max_length)


@register_kind
class PairKind(TextKind):
    """Two texts and one of several labels."""

    name = "pair"
    fields = ("text", "text_b", "label")
    roles = {"text": "text", "text_b": "text_b", "label": "label"}
    description = (
        'two texts, columns "{text}" and "{text_b}"; column "{label}" holds one of {n_labels} values'
    )
    text_pairs = (
        ("premise", "hypothesis"),
        ("sentence1", "sentence2"),
        ("question1", "question2"),
        ("text1", "text2"),
        ("texta", "textb"),
        ("sentencea", "sentenceb"),
        ("text", "textb"),
    )
    vocabulary_fields = ("text", "text_b")
    encoder_class = PairEncoder

    def recognises(self, columns: Any) -> bool:
        if "text" in columns.roles or "text_b" in columns.roles:
            return "text_b" in columns.roles
        counts = [[len(columns.find(name)) for name in names] for names in self.text_pairs]
        return [1, 1] in counts

    def key(self, sample: Sample) -> Hashable:
        """A pair in reverse order is the same pair."""
        return tuple(sorted((sample["text"], sample["text_b"])))

    def parse_inputs(
        self, inputs: Sequence[str], seconds: Sequence[str] | None, task: str, processor: Any
    ) -> list[Sample]:
        if seconds is None:
            second = "--pair" if names_flags() else "texts_b"
            raise UserError(f"{task} takes pairs of texts: give the second text with {second}")
        return [{"text": text, "text_b": second} for text, second in zip(inputs, seconds, strict=True)]

    def show(self, sample: Sample, index: int) -> tuple[str, str]:
        return shorten(f"{sample['text']} | {sample['text_b']}"), shorten(str(sample["label"]))
