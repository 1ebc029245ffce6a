"""Text generation: a source text and a target text.

The classes are the vocabulary of the tokenizer. If the loss has a fused form, it gets the output layer of
the network and the hidden states before it, so that the logits of all tokens never exist at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.linear import LinearLoss
from sparring.lab.kinds.base import register_kind, shorten
from sparring.lab.kinds.encoder import IGNORE, Features, Labels, Sample, Samples
from sparring.lab.kinds.metrics import text_metrics
from sparring.lab.kinds.text import TextEncoder, TextKind
from sparring.lab.models.settings import Model, ModelDefaults, ModelOptions
from sparring.losses import Loss

UNFUSED = ("am-softmax",)  # needs the cosines of its own weights


class GenerationEncoder(TextEncoder):
    """One row of logits per token of the target, given the tokens before it (teacher forcing)."""

    input_names = ("input_ids", "attention_mask")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.max_target_length = self.max_target_length or self.max_length
        self._net: nn.Module | None = None  # the network that `_output_layer` belongs to
        self._output_layer: nn.Linear | None = None
        self._fused = False  # whether `forward` returns hidden states

    def tokenize(self, samples: Samples) -> Any:
        sources = [sample["source"] for sample in samples]
        return self.tokenizer(sources, truncation=True, max_length=self.max_length)

    def encode_chunk(self, samples: Samples) -> list[Features]:
        features = self.inputs(self.tokenize(samples), len(samples))
        if all("target" in sample for sample in samples):
            targets = [sample["target"] for sample in samples]
            tokens = self.tokenizer(text_target=targets, truncation=True, max_length=self.max_target_length)
            for feature, ids in zip(features, tokens["input_ids"], strict=True):
                feature["labels"] = ids
        return features

    def collate_targets(self, targets: Sequence[Any], batch: Mapping[str, Tensor]) -> Tensor:
        rows = [torch.tensor(target) for target in targets]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORE)

    def lengths(self, features: Sequence[Features]) -> list[int] | None:
        return [len(feature["input_ids"]) + len(feature.get("labels", ())) for feature in features]

    def objective(self, net: nn.Module, loss: Loss) -> Loss | LinearLoss:
        """The loss on the network's output layer; the loss alone if it or the network has no such form."""
        from sparring.lab.models import seq2seq

        if self._net is not net:
            self._net = net
            self._output_layer = seq2seq.output_layer(net)
        self._fused = self._output_layer is not None and loss.name not in UNFUSED
        return (
            LinearLoss.on(self._output_layer, loss)
            if self._output_layer is not None and self._fused
            else loss
        )

    def forward(self, net: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(N, T, H) hidden states or (N, C, T) logits, by the last `objective`, and (N, T) targets."""
        from sparring.lab.models import seq2seq

        inputs: dict[str, Any] = {
            **batch,
            "decoder_input_ids": seq2seq.shifted(net, batch["labels"]),
            "use_cache": False,
        }
        labels = inputs.pop("labels")
        if not self._fused:
            return net(**inputs).logits.movedim(-1, 1), labels
        with seq2seq.headless(net):
            return net(**inputs).logits, labels

    @torch.no_grad()
    def predict(
        self,
        net: Any,
        batch: Mapping[str, Tensor],
        logits: Tensor | None,
        samples: Samples,
        features: Sequence[Features],
    ) -> Iterable[Any]:
        """Generate texts with the settings that were saved with the network."""
        ids = net.generate(**{name: value for name, value in batch.items() if name != "labels"})
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]


@register_kind
class GenerationKind(TextKind):
    """A source text and the target text that is to be generated from it."""

    name = "generation"
    fields = ("source", "target")
    target = "target"
    one_label = False
    labelled = False
    generates = True
    calibrated = False
    roles = {"text": "source", "label": "target"}
    description = 'generate column "{label}" from column "{text}"'
    column_names = {
        "text": frozenset(
            {"source", "input", "text", "document", "article", "passage", "context", "sentence"}
        ),
        "label": frozenset({"target", "output", "summary", "highlights", "question", "headline", "title"}),
    }
    vocabulary_fields = ("source", "target")
    encoder_class = GenerationEncoder
    auto_class = "AutoModelForSeq2SeqLM"
    models = {"tiny": ModelDefaults(epochs=10, lr=1e-3, from_scratch=True)}
    model_options = ("freeze_embeddings", "beams", "max_target_length")

    def recognises(self, columns: Any) -> bool:
        """Targets differ: labels would recur."""
        names = columns.source_and_target()
        return names is not None and 2 * columns.n_values(names[1]) > len(columns.table.rows)

    def collect_labels(self, *splits: Samples) -> list[str]:
        """None: the classes are the tokenizer's."""
        return []

    def metrics(self, labels: Labels) -> tuple[str, ...]:
        return ("bleu_4", "bleu_3", "bleu_2", "bleu_1", "rouge_l", "rouge_1", "rouge_2")

    def score(self, samples: Samples, predicted: Sequence[Any], labels: Labels) -> dict[str, float]:
        return text_metrics(self.targets(samples), predicted)

    def class_pairs(self, sample: Sample, predicted: Any) -> Iterator[tuple[str | None, str | None]]:
        """None: no two texts are alike."""
        return iter(())

    def mistakes(self, sample: Sample, predicted: Any) -> list[str]:
        return [shorten(predicted)] if predicted != sample["target"] else []

    def create_model(self, name: str, train: Samples, labels: Labels, options: ModelOptions) -> Model:
        from sparring.lab.models import build, seq2seq

        model = seq2seq.build(
            name,
            self.texts(train) if name == "tiny" else (),
            options.trust_remote_code,
            beams=options.beams or 1,
            max_target_length=options.max_target_length or 64,
        )
        if options.freeze_embeddings:
            build.freeze_embeddings(model.net)
        return model
