"""Text to text: what a loss is given of an encoder–decoder, that skipping changes nothing, and what a run leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from sparring.heads.linear import LinearLoss
from sparring.lab.errors import UserError
from sparring.lab.kinds.encoder import IGNORE
from sparring.lab.kinds.generation import GenerationEncoder
from sparring.lab.models import build as models
from sparring.lab.models import seq2seq
from sparring.lab.runs.config import Config
from sparring.lab.runs.evaluate import Evaluator
from sparring.lab.runs.plan import Plan, plan
from sparring.lab.runs.predict import Predictor
from sparring.lab.runs.runner import Run, run
from sparring.losses import make_loss
from sparring.training.loop import Loop
from tests.lab.data import build, data, task

MADE = data("generation", 24)
TOKENIZER = seq2seq.piece_tokenizer(MADE.kind.texts(MADE.train), 400)
MAKES = ("bart", "bart-bias", "t5", "t5-untied")


def network(make: str, dropout: float = 0.0) -> Any:
    """Small and random, of two families; with and without what makes their heads special."""
    torch.manual_seed(0)
    n, ids = len(TOKENIZER), {"pad_token_id": TOKENIZER.pad_token_id, "eos_token_id": TOKENIZER.eos_token_id}
    if make.startswith("t5"):
        shape = {
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 32,
            "num_layers": 1,
            "num_heads": 2,
            "dropout_rate": dropout,
        }
        tied = make == "t5"
        config = T5Config(
            vocab_size=n,
            decoder_start_token_id=TOKENIZER.pad_token_id,
            tie_word_embeddings=tied,
            **shape,
            **ids,
        )
        return T5ForConditionalGeneration(config)
    sides = {
        f"{side}_{what}": k
        for side in ("encoder", "decoder")
        for what, k in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))
    }
    config = BartConfig(
        vocab_size=n, d_model=16, max_position_embeddings=64, dropout=dropout, init_std=0.2, bos_token_id=TOKENIZER.bos_token_id,
        decoder_start_token_id=TOKENIZER.eos_token_id, forced_eos_token_id=None, **sides, **ids,
    )  # fmt: skip
    net = BartForConditionalGeneration(config)
    if make == "bart-bias":
        net.final_logits_bias.normal_()
    return net


def encoder() -> GenerationEncoder:
    return GenerationEncoder([], TOKENIZER, 32)


def losses(net: Any, name: str, fused: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """One loss a token and all gradients: through the encoder's objective, or from the network's own logits and labels."""
    coder, net = encoder(), net.train()
    batch = coder.collate(coder.encode(MADE.train[:6]))
    loss = make_loss(name)
    net.zero_grad()
    if fused:
        objective = coder.objective(net, loss)
        given, target = coder.forward(net, batch)
        assert isinstance(objective, LinearLoss)
        assert given.shape[-1] == 16
        rows = objective.rows(given, target)
    else:
        logits = net(**batch).logits  # labels among them: shifted by the network itself
        rows = loss.rows(logits.movedim(-1, 1), batch["labels"])
    rows.mean().backward()
    return rows.value.detach(), {
        name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize("name", ["softmax", "as-softmax", "sparse-softmax"])
@pytest.mark.parametrize("make", MAKES)
def test_the_fused_head_gives_the_losses_and_gradients_of_the_logits(make: str, name: str) -> None:
    net = network(make)
    (ours, gradients), (theirs, expected) = losses(net, name, fused=True), losses(net, name, fused=False)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert gradients.keys() == expected.keys()
    for parameter, gradient in expected.items():
        torch.testing.assert_close(
            gradients[parameter], gradient, atol=1e-6, rtol=1e-3, msg=lambda text, p=parameter: f"{p}: {text}"
        )


@pytest.mark.parametrize("make", MAKES)
def test_the_network_is_left_as_it_was(make: str) -> None:
    net = network(make).eval()
    batch = {"input_ids": torch.tensor([[3, 4, 5]]), "decoder_input_ids": torch.tensor([[1, 7]])}
    before = net(**batch).logits
    with seq2seq.headless(net):
        assert net(**batch).logits.shape[-1] == 16
    with pytest.raises(ValueError, match="input_ids"), seq2seq.headless(net):
        net()  # an error on the way
    assert seq2seq.output_layer(net) is not None
    assert not net.training
    assert torch.equal(net(**batch).logits, before)


class Capped(T5ForConditionalGeneration):
    """Something done to the logits after the output layer."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = 3 * torch.tanh(output.logits / 3)
        return output


def test_logits_where_there_is_no_fused_form() -> None:
    net, coder = network("t5"), encoder()
    batch = coder.collate(coder.encode(MADE.train[:3]))
    assert not isinstance(coder.objective(net, make_loss("am-softmax")), LinearLoss)
    assert coder.forward(net, batch)[0].shape[1] == len(TOKENIZER)
    capped, loss = Capped(net.config), make_loss("as-softmax")
    nn.init.normal_(capped.shared.weight, std=9.0)
    assert coder.objective(capped, loss) is loss
    logits, target = coder.forward(capped, batch)
    assert logits.shape == (3, len(TOKENIZER), target.shape[1])
    assert logits.abs().max() <= 3


@pytest.mark.parametrize("make", ["bart", "t5"])
def test_skipping_is_exact(make: str) -> None:
    """Dropout on. Half of the targets are what the network says anyway, so that some samples are won and their backward is not run; by the
    weights nobody can tell."""
    coder = encoder()
    features = coder.encode(MADE.train)
    own = network(make).eval()
    own.get_input_embeddings().weight.data *= 3  # more sure of itself
    said = own.generate(
        **coder.collate([{k: v for k, v in one.items() if k != "labels"} for one in features]),
        max_new_tokens=4,
    )
    for feature, ids in list(zip(features, said.tolist(), strict=True))[::2]:
        feature["labels"] = ids[1:]
    weights, totals = {}, {}
    for skip in ("off", "rows"):
        net = network(make, dropout=0.05)
        net.load_state_dict(own.state_dict())
        objective = coder.objective(net, make_loss("as-softmax", delta=0.01))
        loop = Loop(
            net, objective, features, batch_size=6, epochs=2, optimizer=SGD(net.parameters(), 0.1), skip=skip, forward=coder.forward,
            collate=coder.collate, lengths=coder.lengths(features), progress=False,
        )  # fmt: skip
        totals[skip] = loop.run().totals
        weights[skip] = net.state_dict()
    assert 0 < totals["rows"]["n_backward"] < 0.9 * totals["off"]["n_backward"]
    assert totals["off"]["n_won"] == totals["rows"]["n_won"]
    moved = max(
        float((weights["off"][name] - weight).abs().max()) for name, weight in own.state_dict().items()
    )
    assert moved > 1e-3
    for name, weight in weights["off"].items():
        torch.testing.assert_close(
            weights["rows"][name],
            weight,
            atol=1e-5 * moved,
            rtol=1e-5,
            msg=lambda text, n=name: f"{n}: {text}",
        )


def test_sources_and_targets_are_padded_each_in_their_way() -> None:
    coder = GenerationEncoder([], TOKENIZER, 32, max_target_length=4)
    short, long = coder.encode(
        [{"source": "a mint thing", "target": "a"}, {"source": "ink", "target": "this mint thing is green"}]
    )
    assert len(long["labels"]) == 4
    assert short["labels"][-1] == long["labels"][-1] == TOKENIZER.eos_token_id
    batch = coder.collate([short, long])
    assert batch["labels"][0].tolist() == [*short["labels"], *[IGNORE] * (4 - len(short["labels"]))]
    assert batch["attention_mask"].sum(1).tolist() == [len(short["input_ids"]), len(long["input_ids"])]
    assert "labels" not in coder.collate(coder.encode([{"source": "ink"}]))
    read = seq2seq.shifted(network("bart"), batch["labels"])
    assert read[0, 0] == TOKENIZER.eos_token_id  # BART begins with it
    assert read[1, 1:].tolist() == long["labels"][:-1]
    assert read.min() >= 0


@pytest.mark.parametrize(
    "text", ["what is the name of the city ?", "beyoncé 's $ 250,000 -lrb- 东京 -rrb- !", "two  spaces"]
)
def test_what_is_decoded_is_what_was_written(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    assert ids[-1] == TOKENIZER.eos_token_id
    assert TOKENIZER.decode(ids, skip_special_tokens=True).strip() == text


def planned(out: Path, **settings: Any) -> Plan:
    config = Config("colours", out=str(out), **{"epochs": 1, "batch_size": 8, **settings})
    return plan(config, task("generation", MADE), MADE)


@pytest.mark.parametrize("make", ["bart-bias", "t5"])
def test_a_run_with_a_model_from_a_folder(make: str, tmp_path: Path) -> None:
    network(make).save_pretrained(tmp_path / make)
    TOKENIZER.save_pretrained(tmp_path / make)
    made = planned(tmp_path, model=str(tmp_path / make), beams=2, max_target_length=6, rest=True)
    summary = run(made)
    rows = made.folder.lines("predictions")
    assert set(rows[0]) == {"source", "target", "predicted", "margin"}
    assert 0 <= summary["test"]["bleu_4"] <= summary["test"]["bleu_1"] <= 1
    net, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(made.folder.model),
        AutoTokenizer.from_pretrained(made.folder.model),
    )
    assert (net.generation_config.num_beams, net.generation_config.max_new_tokens) == (2, 6)
    assert net.generate(**tokenizer("a mint thing", return_tensors="pt")).shape[1] <= 7
    again = Predictor(made.folder)([row["source"] for row in rows[:3]])
    assert [one["predicted"] for one in again] == [row["predicted"] for row in rows[:3]]


def test_dev_loss_is_the_networks_own(tmp_path: Path) -> None:
    """Softmax over the tokens that count: what transformers computes from the same labels."""
    net, coder = network("bart").eval(), encoder()
    net.generation_config.max_new_tokens = 2
    found = Evaluator(MADE.kind, coder, MADE.dev, make_loss("softmax"), batch_size=64).outcome(net)
    batch = coder.collate([coder.encode(MADE.dev)[i] for i in range(len(MADE.dev))])
    assert found.figures["loss"] == pytest.approx(net(**batch).loss.item(), rel=1e-4)
    assert sum(found.histogram) == int((batch["labels"] != IGNORE).sum())


def test_how_it_generates_is_part_of_the_run(tmp_path: Path) -> None:
    one, other = planned(tmp_path), planned(tmp_path, beams=3)
    assert (one.config.beams, one.config.max_target_length, one.config.max_length) == (1, 12, 32)
    assert one.folder.path != other.folder.path
    coloured = data("multi-class")
    with pytest.raises(
        UserError, match="beams and max_target_length are for generation; colours's kind is multi-class"
    ):
        plan(Config("colours", beams=2), task("multi-class", coloured), coloured)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "minilm"}, "minilm is a model for .* tasks; this task's kind is generation"),
        ({"model": "resnet"}, "resnet is a model for image tasks"),
        ({"layers": 1, "model": "some/folder"}, "layers: not for generation tasks"),
        ({"loss": "multilabel-softmax"}, "does not fit colours, whose kind is generation"),
        ({"metric": "accuracy"}, "colours has no metric accuracy; it has bleu_4"),
    ],
)
def test_a_mistake_is_named(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        Run(planned(tmp_path, **settings))


def test_a_small_network_of_its_own() -> None:
    built = build("tiny", MADE, max_target_length=5)
    assert sum(p.numel() for p in built.net.parameters()) < 2e6
    assert built.net.generation_config.max_new_tokens == 5
    assert seq2seq.output_layer(built.net) is built.net.get_output_embeddings()
    assert models.longest_input(built) == seq2seq.POSITIONS


class Interrupt:
    """Asks the run to stop after some steps."""

    def begin(self, total: int) -> None:
        """Nothing to see."""

    def step(self, entry: dict[str, Any]) -> bool:
        return bool(entry["step"] >= 2)

    def evaluation(self, entry: dict[str, Any]) -> None:
        """Nothing to see."""


def test_stopped_and_gone_on_with_it_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    """With everything that saves time, and in half precision."""
    settings: dict[str, Any] = {
        "speed": "all",
        "mixed_precision": "bf16",
        "epochs": 2,
        "lr": 3e-3,
        "max_target_length": 8,
    }
    whole = planned(tmp_path / "whole", **settings)
    stopped = planned(tmp_path / "stopped", **settings)
    summary = run(whole)
    with pytest.raises(KeyboardInterrupt):
        Run(stopped, Interrupt()).summary()
    assert run(stopped)["test"] == summary["test"]
    assert stopped.folder.lines("steps") == whole.folder.lines("steps")
    assert {step["delta"] is not None for step in whole.folder.lines("steps")} == {True}
