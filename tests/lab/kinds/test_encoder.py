"""Samples to tensors and back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sparring.lab.datasets import Data
from sparring.lab.kinds import get_kind, list_kinds
from sparring.lab.kinds.encoder import IGNORE
from sparring.lab.models.images import ImageProcessor
from sparring.lab.models.sounds import MelSpectrogram
from sparring.lab.models.tiny import character_tokenizer
from sparring.losses import make_loss
from tests.lab.data import build, data


def encoder(made: Data, max_length: int = 32, **settings: Any) -> Any:
    if made.kind.name == "image":
        processor: Any = ImageProcessor.of([made.train[0]["image"]])
    elif made.kind.name == "audio":
        processor = MelSpectrogram.of(made.train)
    else:
        processor = character_tokenizer(made.kind.texts(made.train))
    return made.encoder(processor, max_length, **settings)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", [kind.name for kind in list_kinds() if not kind.generates])
def test_logits_that_say_the_target_decode_to_it(kind: str, side: str) -> None:
    """Through batches of unequal length, padded on either side."""
    made = data(kind)
    coder = encoder(made)
    if made.kind.reads_text:
        coder.tokenizer.padding_side = side
    rows = made.dev
    features = coder.encode(rows)
    batch = coder.collate(features)
    target = batch["labels"]
    logits = (
        target * 2.0 - 1
        if kind == "multi-label"
        else F.one_hot(target.clamp(min=0), len(made.labels)).float()
    )
    predicted = list(coder.decode(logits, rows, features))
    assert made.kind.score(rows, predicted, made.labels)[made.kind.default_metric(made.labels)] == 1.0


def test_tags_stand_at_the_first_piece_and_nowhere_else() -> None:
    made = Data(get_kind("token"), [{"tokens": ["ab", "c"], "tags": ["B-X", "O"]}], [], [], "made")
    coder = encoder(made)
    feature = coder.encode(made.train)[0]
    assert coder.tokenizer.convert_ids_to_tokens(feature["input_ids"]) == ["a", "b", " ", "c", " ", "[SEP]"]
    assert feature["labels"] == [coder.index["B-X"], IGNORE, IGNORE, coder.index["O"], IGNORE, IGNORE]
    batch = coder.collate(
        [
            feature,
            {
                **feature,
                "input_ids": feature["input_ids"][:2],
                "attention_mask": [1, 1],
                "labels": feature["labels"][:2],
            },
        ]
    )
    assert batch["labels"].tolist()[1] == [coder.index["B-X"], *[IGNORE] * 5]


def test_what_is_cut_off_is_untagged_and_uncorrected() -> None:
    made = Data(get_kind("token"), [{"tokens": ["ab", "cd", "ef"], "tags": ["B-X"] * 3}], [], [], "made")
    coder = encoder(made, max_length=5)  # "ab c" and the separator
    features = coder.encode(made.train)
    logits = torch.zeros(1, len(features[0]["input_ids"]), len(made.labels))
    assert list(coder.decode(logits, made.train, features)) == [["B-X", "B-X", "O"]]
    made = Data(get_kind("spelling"), [{"source": "abcdef", "target": "abcdef"}], [], [], "made")
    coder = encoder(made, max_length=4)
    features = coder.encode(made.train)
    assert list(coder.decode(torch.eye(6)[0].expand(1, 4, 6), made.train, features)) == ["aaadef"]


def test_spelling_leaves_characters_alone_that_no_training_sentence_has() -> None:
    made = Data(
        get_kind("spelling"),
        [{"source": "ab", "target": "aa"}],
        [{"source": "aé", "target": "aà"}],
        [],
        "made",
    )
    coder = encoder(made)
    features = coder.encode(made.dev)
    assert features[0]["labels"][:2] == [coder.index["a"], IGNORE]
    logits = torch.zeros(1, len(features[0]["input_ids"]), 2)
    logits[..., coder.index["b"]] = 1
    assert list(coder.decode(logits, made.dev, features)) == ["bé"]


def test_multilabel_takes_the_k_largest_where_the_task_says_so() -> None:
    made = data("multi-label")
    logits = torch.tensor([[-3.0, -1.0, -2.0], [1.0, 2.0, 3.0]])
    assert encoder(made, top_k=2).positives(logits).tolist() == [[False, True, True], [False, True, True]]
    assert encoder(made).positives(logits).tolist() == [[False] * 3, [True] * 3]
    assert encoder(made, top_k=9).positives(logits).all()


@pytest.mark.parametrize("kind", [kind.name for kind in list_kinds()])
def test_every_kind_goes_through_network_and_loss(kind: str) -> None:
    made = data(kind)
    built = build("tiny", made)
    coder = made.encoder(built.processor, 32)
    features = coder.encode(made.train)
    objective = coder.objective(
        built.net, make_loss("multilabel-as-softmax" if kind == "multi-label" else "as-softmax")
    )
    rows = objective.rows(*coder.forward(built.net, coder.collate(features)))
    n_rows = sum(
        len(row.get("tokens") or row.get("source") or "1") for row in made.train
    )  # one a token, one a character
    if kind == "generation":  # one a piece of the target
        n_rows = sum(len(feature["labels"]) for feature in features)
    assert int(rows.valid.sum()) == n_rows


def test_texts_without_labels_encode_too() -> None:
    for kind, sample in (
        ("multi-class", {"text": "mint"}),
        ("token", {"tokens": ["mint"]}),
        ("spelling", {"source": "mint"}),
    ):
        coder = encoder(data(kind))
        assert "labels" not in coder.collate(coder.encode([sample]))
