"""SparringTrainer against the plain Trainer, and against itself uninterrupted."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback

from sparring import (
    AdaptiveAccumulation,
    ASSoftmaxLoss,
    LinearDelta,
    Scorecard,
    SoftmaxLoss,
    WeightedScorecard,
)
from sparring.integrations.hf import SparringArguments, SparringMixin, SparringTrainer, loss_func
from tests.integrations.tiny import N_CLASSES, Sentences, arguments, bert, tagger, weights
from tests.processes import run_ranks

OLD = transformers.__version__.startswith("4.")
EVERYTHING = {"speed": "all", "accumulation": 3, "lam": 1.0, "delta": 0.2}


def trained(
    folder: Path,
    model: nn.Module | None = None,
    data: Any = None,
    *,
    eval_dataset: Any = None,
    args: Any = None,
    **own: Any,
) -> Any:
    """A SparringTrainer that has trained."""
    trainer = SparringTrainer(
        model or bert(),
        args or arguments(folder),
        train_dataset=data or Sentences(),
        eval_dataset=eval_dataset,
        **own,
    )
    trainer.train()
    return trainer


# ------------------------------------------------------------ against the plain Trainer


@pytest.mark.parametrize("accumulation", [1, 4])
def test_delta_one_and_everything_off_is_the_plain_trainer(tmp_path: Path, accumulation: int) -> None:
    args = arguments(tmp_path, gradient_accumulation_steps=accumulation)
    plain = Trainer(bert(), args, train_dataset=Sentences(54), compute_loss_func=loss_func("softmax"))
    plain.train()
    ours = trained(tmp_path, data=Sentences(54), args=args, delta=1.0, speed="off")
    assert torch.allclose(
        weights(plain.model), weights(ours.model), rtol=0, atol=1e-4
    )  # of rounding, which Adam makes more of
    assert (plain.state.global_step, plain.state.epoch) == (ours.state.global_step, ours.state.epoch)


def test_to_the_bit_where_windows_are_single_batches(tmp_path: Path) -> None:
    plain = Trainer(bert(), arguments(tmp_path), train_dataset=Sentences())
    plain.train()
    ours = trained(tmp_path, delta=1.0, speed="off")
    assert torch.equal(weights(plain.model), weights(ours.model))
    theirs, logged = (
        [entry["loss"] for entry in each.state.log_history if "loss" in entry] for each in (plain, ours)
    )
    assert logged == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("kind", ["class", "token", "multi-label"])
def test_skipping_is_exact(tmp_path: Path, kind: str) -> None:
    def model() -> nn.Module:
        return (
            tagger()
            if kind == "token"
            else bert(problem_type="multi_label_classification" if kind == "multi-label" else None)
        )

    args = arguments(tmp_path, gradient_accumulation_steps=2)
    off = trained(tmp_path, model(), Sentences(kind=kind), args=args, speed="off", delta=0.1)
    rows = trained(tmp_path, model(), Sentences(kind=kind), args=args, delta=0.1)
    assert torch.allclose(weights(off.model), weights(rows.model), rtol=0, atol=1e-4)
    assert rows.engine.record.totals["n_backward"] < off.engine.record.totals["n_backward"]
    assert ("multilabel" in rows.objective.name) == (kind == "multi-label")


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_model_with_checkpointing_enabled(tmp_path: Path, reentrant: bool) -> None:
    ends = []
    for speed in ("off", "skip"):
        model = bert(num_hidden_layers=2)
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        trainer = trained(tmp_path, model, Sentences(), speed=speed, delta=0.1)
        ends.append(weights(trainer.model))
    assert torch.allclose(*ends, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["class", "token", "multi-label"])
def test_accumulation_is_one_large_batch(tmp_path: Path, kind: str) -> None:
    """loss_func in a plain Trainer: four batches of 4 are one of 16, whatever the Trainer counts."""
    torch.manual_seed(0)
    found = []
    for size, steps in ((16, 1), (4, 4)):
        model = tagger() if kind == "token" else bert()
        model.config.hidden_dropout_prob = 0.0
        model.eval()
        settings = {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": steps,
            "max_grad_norm": 0.0,
            "optim": "sgd",
        }
        name = "multilabel-as-softmax" if kind == "multi-label" else "as-softmax"
        trainer = Trainer(
            model,
            arguments(tmp_path, **settings),
            train_dataset=Sentences(64, kind),
            compute_loss_func=loss_func(name),
            callbacks=[_Still()],
        )
        trainer.train()
        found.append(weights(model))
    assert torch.allclose(*found, rtol=0, atol=1e-5)


class _Still(TrainerCallback):  # type: ignore[misc]
    """No dropout: the two runs would draw other numbers."""

    def on_train_begin(self, *_: Any, model: nn.Module, **__: Any) -> None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0


def test_fast_settles_with_every_sample_awake(tmp_path: Path) -> None:
    """The last two of eight epochs are plain softmax on all samples; it says so in the record."""
    args = arguments(tmp_path, num_train_epochs=8, logging_strategy="epoch")
    trainer = trained(tmp_path, args=args, speed="fast", delta=0.1, settle=0.25)
    logs = [entry for entry in trainer.state.log_history if "samples_backward" in entry]
    assert [entry["delta"] for entry in logs][-3:] == [1.0, 1.0, 1.0]  # from the end of epoch 6 on
    assert trainer.engine.scorecard.awake_from == 6
    forward, backward = ([entry[f"samples_{name}"] for entry in logs] for name in ("forward", "backward"))
    n_samples = len(Sentences())
    assert forward[5] < 6 * n_samples
    assert forward[7] - forward[5] == backward[7] - backward[5] == 2 * n_samples
    assert trainer.engine.record.notes[0].startswith("speed fast: as-softmax, δ 0.1")
    by_name = SparringTrainer(bert(), args, train_dataset=Sentences(), speed="fast")
    assert by_name.objective.delta == 0.6


def test_fast_with_softmax_rests_and_weighs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparring.training.resting.weighted.MIN_BATCHES", 0)
    args = arguments(tmp_path, num_train_epochs=8, seed=7)
    trainer = trained(tmp_path, args=args, loss="softmax", speed="fast")
    card, totals = trainer.engine.scorecard, trainer.engine.record.totals
    assert isinstance(card, WeightedScorecard)
    assert card.seed == 7
    n_samples = len(Sentences())
    looked = totals["n_forward"] - totals["n_backward"]  # before training, to fit the head
    assert any(note.startswith("head ") for note in trainer.engine.record.notes)
    assert 0 < looked <= n_samples
    assert totals["n_backward"] < 8 * n_samples
    assert trainer.state.epoch == 8


# ------------------------------------------------------------ steps, schedule, cadence, logs


def test_everything_on_ends_where_it_should(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(("evaluate", state.global_step))

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(("save", state.global_step))

    args = arguments(
        tmp_path,
        num_train_epochs=10,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="steps",
        save_steps=40,
        logging_steps=10,
    )
    trainer = trained(tmp_path, eval_dataset=Sentences(16), args=args, callbacks=[Watch()], **EVERYTHING)
    state = trainer.state
    assert state.global_step == state.max_steps == 130
    assert trainer.lr_scheduler.get_last_lr()[0] == 0
    assert math.isclose(state.epoch, 10)
    steps = [step for what, step in seen if what == "evaluate"]
    assert [step // 20 for step in steps[:6]] == [
        *range(1, 7)
    ]  # each multiple of 20, or the first step after it
    assert steps[6:] in ([], [130])  # and the end, in version 5
    assert [step // 40 for what, step in seen if what == "save"] == [1, 2, 3, 3]  # and the last
    logs = [entry for entry in state.log_history if "won_share" in entry]
    assert len(logs) >= 12
    assert {"delta", "accumulation", "samples_forward", "samples_backward"} <= logs[0].keys()
    assert max(entry["accumulation"] for entry in logs) == 3
    assert logs[-1]["samples_backward"] < logs[-1]["samples_forward"] < 520
    assert any(entry["won_share"] > 0 for entry in logs if entry["delta"] < 1)  # before it settles
    assert (logs[-1]["won_share"], logs[-1]["delta"]) == (0, 1)  # it settles


def test_max_steps_in_the_middle_of_a_window(tmp_path: Path) -> None:
    trainer = trained(tmp_path, args=arguments(tmp_path, max_steps=23), accumulation=5, lam=5.0)
    assert (trainer.state.global_step, trainer.lr_scheduler.get_last_lr()[0]) == (23, 0)
    assert trainer.engine.record.totals["n_updates"] < 12


def test_warm_up_and_schedules(tmp_path: Path) -> None:
    args = arguments(tmp_path, logging_steps=1)
    deltas = [
        entry["delta"]
        for entry in trained(tmp_path, args=args, delta=0.2, delta_warmup=0.5).state.log_history
        if "delta" in entry
    ]
    assert deltas == [1.0] * 19 + [0.2] * 20
    own = trained(tmp_path, args=args, loss=ASSoftmaxLoss(LinearDelta(1.0, 0.1, total_steps=39)))
    assert own.objective.delta.value == 0.1


def test_evaluation_goes_by_one_delta(tmp_path: Path) -> None:
    trainer = SparringTrainer(
        bert(),
        arguments(tmp_path),
        eval_dataset=Sentences(16),
        loss=ASSoftmaxLoss(LinearDelta(1.0, 0.3, total_steps=9)),
    )
    fixed = SparringTrainer(bert(), arguments(tmp_path), eval_dataset=Sentences(16), delta=0.3)
    assert trainer.evaluate()["eval_loss"] == fixed.evaluate()["eval_loss"]


def test_conceding(tmp_path: Path) -> None:
    """Nothing in the first 8 of 39 steps and in evaluations; a run resumed in the warm-up ends the same."""
    own, data = {"loss": "softmax", "concede": 0.02}, Sentences(hard=4)
    args = arguments(tmp_path, logging_steps=1, save_strategy="steps", save_steps=6)
    whole = trained(tmp_path, data=data, args=args, **own)
    shares = [entry["conceded_share"] for entry in whole.state.log_history if "conceded_share" in entry]
    assert len(shares) == 39
    assert not any(shares[:8])
    assert any(shares[8:])
    plain = SparringTrainer(whole.model, arguments(tmp_path), eval_dataset=data, loss="softmax")
    assert whole.evaluate(data)["eval_loss"] == plain.evaluate()["eval_loss"]
    assert whole.objective.rows(torch.tensor([[9.0, 0.0]]), torch.tensor([1])).conceded.item()
    again = SparringTrainer(bert(seed=9), arguments(tmp_path), train_dataset=data, **own)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert torch.equal(weights(whole.model), weights(again.model))
    assert (again.objective.concede.n_steps, again.objective.concede.value) == (39, 0.02)


def test_load_best_model(tmp_path: Path) -> None:
    args = arguments(
        tmp_path,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
    )
    trainer = trained(tmp_path, eval_dataset=Sentences(16), args=args, **EVERYTHING)
    best = min(entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry)
    assert math.isclose(trainer.evaluate()["eval_loss"], best, rel_tol=1e-6)


def test_everybody_rests_in_an_epoch(tmp_path: Path) -> None:
    """An epoch without a batch counts as one, and training goes on."""
    card = Scorecard(52, max_rest=1)
    trainer = trained(
        tmp_path, data=Sentences(hard=0), args=arguments(tmp_path, num_train_epochs=30), rest=card, delta=0.05
    )
    assert trainer.state.global_step == trainer.state.max_steps
    assert trainer.engine.record.totals["n_forward"] < 30 * 52 * 0.8


# ------------------------------------------------------------ resuming


@pytest.mark.parametrize(
    "own", [EVERYTHING, {"accumulation": 3, "lam": 1.0, "delta_warmup": 0.4}, {"rest": True}], ids=str
)
def test_resume_from_any_checkpoint(tmp_path: Path, own: dict[str, Any]) -> None:
    args = arguments(tmp_path / "whole", num_train_epochs=4, save_strategy="steps", save_steps=7)
    whole = trained(tmp_path, args=args, **own)
    folders = sorted((tmp_path / "whole").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert len(folders) > 4
    for folder in folders[:-1:3]:
        args = arguments(tmp_path / "again", num_train_epochs=4)
        again = SparringTrainer(bert(seed=9), args, train_dataset=Sentences(), **own)
        again.train(resume_from_checkpoint=str(folder))
        assert torch.equal(weights(whole.model), weights(again.model)), folder.name
        assert again.state.global_step == whole.state.global_step
        assert again.engine.record.totals["n_backward"] == whole.engine.record.totals["n_backward"]


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    args = arguments(tmp_path, save_strategy="epoch", num_train_epochs=1)
    trained(tmp_path, args=args)
    folder = str(next(tmp_path.glob("checkpoint-*")))
    for own, message in (
        ({"loss": "softmax"}, "with loss.name as-softmax"),
        ({"delta": 0.2}, r"loss.delta 0.8 \(now 0.2\)"),
        ({"concede": 0.5}, "loss.concede None"),
        ({"rest": True}, "with resting False"),
    ):
        with pytest.raises(ValueError, match=message):
            SparringTrainer(bert(), args, train_dataset=Sentences(), **own).train(
                resume_from_checkpoint=folder
            )
    state = Path(folder) / "sparring_0.pt"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    with pytest.raises(ValueError, match="does not have the checksum"):
        SparringTrainer(bert(), args, train_dataset=Sentences()).train(resume_from_checkpoint=folder)
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    if not OLD:  # version 4 takes the checkpoint's
        other = arguments(tmp_path, per_device_train_batch_size=2)
        with pytest.raises(ValueError, match=r"with batch size 4 \(now 2\)"):
            SparringTrainer(bert(), other, train_dataset=Sentences()).train(resume_from_checkpoint=folder)
    (Path(folder) / "sparring_0.pt").unlink()
    with pytest.raises(ValueError, match="is missing"):
        SparringTrainer(bert(), args, train_dataset=Sentences()).train(resume_from_checkpoint=folder)


# ------------------------------------------------------------ models and data of other shapes


class Pair(nn.Module):
    """Returns a tuple, and calls its target otherwise."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(40, 8), nn.Linear(8, N_CLASSES)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.embed(input_ids)[:, 0]
        return self.head(hidden), hidden


def test_tuples_and_other_label_names(tmp_path: Path) -> None:
    args = arguments(tmp_path, label_names=["truth"], remove_unused_columns=False)
    data = Sentences(name="truth")
    trainer = trained(tmp_path, Pair(), data, args=args, eval_dataset=data, **EVERYTHING)
    found = trainer.predict(data)
    assert found.predictions[0].shape == (52, N_CLASSES)
    assert found.metrics["test_loss"] == pytest.approx(
        float(ASSoftmaxLoss(0.2)(torch.as_tensor(found.predictions[0]), torch.as_tensor(found.label_ids))),
        abs=0.05,
    )


def test_a_batch_without_targets(tmp_path: Path) -> None:
    args = arguments(tmp_path, remove_unused_columns=False)
    with pytest.raises(
        ValueError, match=r"has none of labels, label, target; TrainingArguments\(label_names"
    ):
        trained(tmp_path, Pair(), Sentences(name="truth"), args=args)


def test_causal_language_models_are_shifted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=40, n_positions=8, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0
        )
    )
    data = [{"input_ids": ids, "labels": ids} for ids in Sentences(16).ids]
    trainer = SparringTrainer(
        model, arguments(tmp_path), train_dataset=data, eval_dataset=data, loss="softmax"
    )
    ids = Sentences(16).ids
    theirs = model.eval()(
        input_ids=ids, labels=ids
    ).loss.item()  # the plain Trainer divides by the first tokens too
    assert trainer.evaluate()["eval_loss"] == pytest.approx(theirs, abs=1e-5)
    trainer.train()
    assert trainer.engine.record.totals["n_rows"] == 3 * 16 * 5


@pytest.mark.parametrize("settings", [{"gradient_checkpointing": True}, {"bf16": True}], ids=str)
def test_other_ways_to_run_a_model(tmp_path: Path, settings: dict[str, Any]) -> None:
    trainer = trained(tmp_path, args=arguments(tmp_path, **settings), **EVERYTHING)
    assert trainer.state.global_step == trainer.state.max_steps
    assert trainer.state.log_history[-2]["loss"] < trainer.state.log_history[0]["loss"]


def test_a_trainer_of_ones_own(tmp_path: Path) -> None:
    class Theirs(Trainer):  # type: ignore[misc]
        def create_optimizer(self, *_: Any) -> Any:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return self.optimizer

    class Mine(SparringMixin, Theirs):
        pass

    trainer = Mine(bert(), arguments(tmp_path), train_dataset=Sentences(), speed="all")
    trainer.train()
    assert isinstance(trainer.optimizer.optimizer, torch.optim.SGD)


def test_arguments_from_the_command_line(tmp_path: Path) -> None:
    words = [
        "--output_dir",
        str(tmp_path),
        "--delta",
        "0.2",
        "--speed",
        "all",
        "--accumulation",
        "4",
        "--use_cpu",
        "true",
    ]
    (args,) = HfArgumentParser(SparringArguments).parse_args_into_dataclasses(words)
    trainer = SparringTrainer(bert(), args, train_dataset=Sentences())
    assert (trainer.settings.delta, trainer.settings.accumulation, trainer.settings.speed) == (0.2, 4, "all")
    assert SparringTrainer(bert(), args, train_dataset=Sentences(), delta=0.5).settings.delta == 0.5


def test_a_stream_of_samples(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(Sentences())

    trainer = trained(
        tmp_path, data=Stream(), args=arguments(tmp_path, max_steps=20), accumulation=4, lam=2.0
    )
    assert (trainer.state.global_step, trainer.lr_scheduler.get_last_lr()[0]) == (20, 0)
    with pytest.raises(ValueError, match="samples cannot rest; use rest=False"):
        trained(tmp_path, data=Stream(), args=arguments(tmp_path, max_steps=20), speed="all")
    assert (
        trained(
            tmp_path, data=Stream(), args=arguments(tmp_path, max_steps=5), speed="all", rest=False
        ).state.global_step
        == 5
    )


def test_a_second_run_begins_anew(tmp_path: Path) -> None:
    trainer = SparringTrainer(
        bert(),
        arguments(tmp_path, logging_steps=1),
        train_dataset=Sentences(),
        loss=ASSoftmaxLoss(0.2),
        delta_warmup=0.5,
        accumulation=3,
    )
    for _ in range(2):
        trainer.train()
        assert next(entry["delta"] for entry in trainer.state.log_history if "delta" in entry) == 1.0
    trainer.args.learning_rate = 0.0
    assert trainer.train().global_step == trainer.state.max_steps


def test_a_search_may_change_the_arguments(tmp_path: Path) -> None:
    trainer = SparringTrainer(bert(), arguments(tmp_path, SparringArguments), train_dataset=Sentences())
    trainer.args.delta = 0.9
    trainer.train()
    assert trainer.objective.delta == 0.9


def test_a_model_that_returns_a_tensor(tmp_path: Path) -> None:
    class Bare(Pair):
        def forward(self, input_ids: torch.Tensor, attention_mask: Any = None) -> torch.Tensor:  # type: ignore[override]
            return super().forward(input_ids)[0]

    trainer = trained(tmp_path, Bare(), **EVERYTHING)
    assert trainer.predict(Sentences(16)).predictions.shape == (16, N_CLASSES)


def test_an_epoch_may_be_stopped(tmp_path: Path) -> None:
    seen: list[int] = []

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            seen.append(state.global_step)
            control.should_epoch_stop = state.global_step % 13 == 3
            return control

    trained(tmp_path, callbacks=[Stop()], rest=True)
    assert seen[:4] == [1, 2, 3, 4]
    assert all(1 <= b - a <= 13 for a, b in pairwise(seen))


# ------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("settings", "own", "message"),
    [
        ({"label_smoothing_factor": 0.1}, {}, 'use loss="label-smoothing"'),
        ({"gradient_accumulation_steps": 2}, {"accumulation": 4}, "leave it at 1"),
        ({"gradient_accumulation_steps": 2}, {"speed": "all"}, "leave it at 1"),
        ({}, {"loss": "as-sotfmax"}, "did you mean"),
        ({}, {"loss": nn.CrossEntropyLoss()}, "got CrossEntropyLoss"),
        ({}, {"loss": SoftmaxLoss(), "delta": 0.3}, "is an object"),
        ({}, {"loss": ASSoftmaxLoss(reduction="sum")}, "needs the mean"),
        ({}, {"speed": "faster"}, "speed must be one of"),
        ({}, {"loss": "softmax", "delta_warmup": 0.1}, "softmax has no δ"),
        ({}, {"accumulation": AdaptiveAccumulation(decide="first")}, "previous"),
        ({}, {"compute_loss_func": loss_func()}, "exclude each other"),
    ],
)
def test_mistakes(tmp_path: Path, settings: dict[str, Any], own: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        SparringTrainer(bert(), arguments(tmp_path, **settings), train_dataset=Sentences(), **own)


def test_deepspeed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import Accelerator, DistributedType

    monkeypatch.setattr(Accelerator, "distributed_type", property(lambda _: DistributedType.DEEPSPEED))
    with pytest.raises(ValueError, match=r"DEEPSPEED keeps gradients .* use DDP"):
        SparringTrainer(bert(), arguments(tmp_path), train_dataset=Sentences())


def test_no_labels_for_loss_func() -> None:
    with pytest.raises(ValueError, match='a column named "labels"'):
        loss_func()({"logits": torch.zeros(2, 3)}, None)
    with pytest.raises(ValueError, match="ignore_index=-1"):
        loss_func(ASSoftmaxLoss(ignore_index=-1))


# ------------------------------------------------------------ two processes


STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SGD = {"optim": "sgd", "learning_rate": 0.5, "max_steps": 20}  # later, rounding has grown


def test_two_processes(tmp_path: Path) -> None:
    """They end with the same weights, resume to the bit, and take the steps of one process.

    Batches of 2 on each of two processes are batches of 4 on one. That with δ = 1: with a smaller δ, rounding
    may decide whether a sample is won.
    """
    runs = {
        "whole": {"own": EVERYTHING},
        "resumed": {"own": EVERYTHING, "resume": not OLD},  # version 4 cannot load its optimizer to "cpu:0"
        "plain": {"own": {"delta": 1.0}, "n": 52, "model": STILL, "args": SGD},
    }
    run_ranks(2, "tests.integrations.two_trainers", tmp_path, json.dumps(runs))
    results = json.loads((tmp_path / "results.json").read_text())
    whole, resumed, two = (results[name] for name in runs)
    assert whole["equal"]
    assert whole["step"] == whole["max_steps"] == 4 * 14
    assert whole["lr"] == 0
    assert whole["n_updates"] < 4 * 14
    assert whole["n_backward"] < 4 * 56
    assert resumed["weights"] == whole["weights"]
    args = arguments(tmp_path, num_train_epochs=4, **SGD)
    one = trained(tmp_path, bert(**STILL), args=args, delta=1.0)
    assert two["step"] == one.state.global_step
    assert two["n_backward"] == one.engine.record.totals["n_backward"] == 20 * 4
    assert torch.allclose(torch.tensor(two["weights"]), weights(one.model), rtol=0, atol=1e-5)
