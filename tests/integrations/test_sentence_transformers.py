"""A CrossEncoder with losses of this package: a small random model, texts, real trainers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sparring import ASSoftmaxLoss, MultilabelASSoftmaxLoss, skip
from tests.integrations.tiny import examples_module

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")

from datasets import Dataset, DatasetDict
from sentence_transformers.cross_encoder import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
)

from sparring.integrations.sentence_transformers import CrossEncoderLoss, SparringCrossEncoderTrainer

small_models = examples_module("small_models")
PAIRS = small_models.sentence_pairs()
TEXTS = [PAIRS["premise"], PAIRS["hypothesis"]]
LABELS = torch.tensor(PAIRS["label"])
WEIGHT = torch.tensor([1.0, 3.0, 0.5])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    return str(small_models.small_bert(tmp_path_factory.mktemp("bert"), [*TEXTS[0], *TEXTS[1]], num_labels=3))


@pytest.fixture
def model(folder: str) -> Any:
    model = CrossEncoder(folder, device="cpu")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


def arguments(folder: Path, **settings: Any) -> Any:
    usual = {"num_train_epochs": 2, "learning_rate": 1e-3, "per_device_train_batch_size": 12, "report_to": []}
    usual |= {"save_strategy": "no", "use_cpu": True, "dataloader_pin_memory": False, "disable_tqdm": True}
    return CrossEncoderTrainingArguments(str(folder), **{**usual, **settings})


def test_loss_and_gradients_are_those_of_the_logits(model: Any) -> None:
    """With class weights and δ; skipping drops the won pairs and changes no gradient."""
    plain = copy.deepcopy(model)
    with torch.no_grad():
        scores = plain(plain.preprocess(list(zip(*TEXTS, strict=True))))["scores"]
    labels = torch.where(torch.arange(len(LABELS)) % 2 == 0, scores.argmax(1), LABELS)  # half of them lead
    loss = CrossEncoderLoss(model, "as-softmax", delta=0.001, weight=WEIGHT)
    value = loss(TEXTS, labels)
    value.backward()
    expected = ASSoftmaxLoss(0.001, weight=WEIGHT)(
        plain(plain.preprocess(list(zip(*TEXTS, strict=True))))["scores"], labels
    )
    expected.backward()
    torch.testing.assert_close(value, expected)
    assert loss.stats.n_samples_backward < loss.stats.n_samples == len(LABELS)
    for parameter, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)


def test_a_trainer_with_the_loss_ends_where_ours_ends(folder: str, tmp_path: Path) -> None:
    """CrossEncoderTrainer with CrossEncoderLoss, and SparringCrossEncoderTrainer, on the same batches."""
    data = Dataset.from_dict(PAIRS)
    ends = []
    for ours in (False, True):
        model = CrossEncoder(folder, device="cpu")
        objective = ASSoftmaxLoss(0.1, weight=WEIGHT)
        common = {"train_dataset": data, "eval_dataset": data}
        args = arguments(tmp_path, eval_strategy="epoch")
        if ours:
            trainer: Any = SparringCrossEncoderTrainer(model, args, loss=objective, **common)
        else:
            loss = CrossEncoderLoss(model, objective)
            trainer = CrossEncoderTrainer(model, args, loss=loss, **common)
        trainer.train()
        ends.append((model.state_dict(), trainer.state.log_history[-2]["eval_loss"]))
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=1e-3, atol=1e-4)
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-3)


def test_won_pairs_rest(folder: str, tmp_path: Path) -> None:
    model = CrossEncoder(folder, device="cpu")
    data = Dataset.from_dict({name: column[:36] for name, column in PAIRS.items()})
    args = arguments(tmp_path, num_train_epochs=20, learning_rate=3e-3)
    trainer = SparringCrossEncoderTrainer(model, args, train_dataset=data, delta=0.05, rest=True)
    trainer.train()
    totals = trainer.engine.totals()
    assert totals["n_backward"] < totals["n_forward"] < 20 * 36
    assert trainer.state.global_step == trainer.state.max_steps == 60


def test_multilabel_labels_are_lists(model: Any) -> None:
    """The collator makes a list of tensors of labels that are lists."""
    labels = list(torch.eye(3)[LABELS])
    loss = CrossEncoderLoss(model, MultilabelASSoftmaxLoss(0.1), skip=False)
    scores = model(model.preprocess(list(zip(*TEXTS, strict=True))))["scores"]
    expected = MultilabelASSoftmaxLoss(0.1)(scores, torch.eye(3)[LABELS])
    torch.testing.assert_close(loss(TEXTS, labels), expected)


def test_errors(model: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be a CrossEncoder, got Linear"):
        CrossEncoderLoss(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="got CrossEntropyLoss"):
        CrossEncoderLoss(model, nn.CrossEntropyLoss())  # type: ignore[arg-type]
    loss = CrossEncoderLoss(model, skip=False)
    with pytest.raises(ValueError, match="expected two columns"):
        loss(TEXTS[:1], LABELS)
    with pytest.raises(ValueError, match="no labels"):
        loss(TEXTS, None)  # type: ignore[arg-type]
    sets = DatasetDict({"a": Dataset.from_dict(PAIRS), "b": Dataset.from_dict(PAIRS)})
    with pytest.raises(ValueError, match="samples can rest in one training set, got 2"):
        SparringCrossEncoderTrainer(model, arguments(tmp_path), train_dataset=sets, rest=True)
    model[0].model.config.num_labels = 1
    with pytest.raises(ValueError, match="one output, and a softmax needs two"):
        CrossEncoderLoss(model)


def test_outputs_that_torch_cannot_look_into_are_named() -> None:
    """skip.compact cannot help there, and says so."""

    class Box:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    class Boxed(nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:
            return Box(super().forward(input))

    module = Boxed(2, 2)
    with skip.compact(module) as compaction:
        module(torch.ones(4, 2)).x.sum().backward()
    assert compaction.stats.reasons == {"no tensors that torch can find in Box": 1}
