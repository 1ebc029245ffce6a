"""Nothing from an untrusted folder is run: models with code, pickles in place of weights, checkpoints.

Standard input answers "y" to everything.

Checksums are no defence, because an attacker writes the right one. So do these tests. For the same from a
terminal see test_arguments.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import BertConfig, BertForSequenceClassification

import sparring
from sparring import ASSoftmaxLoss
from sparring.cli.app import main
from sparring.heads.parallel import Checkpoints
from sparring.heads.parallel.checkpoint import verify_manifest, write_manifest
from sparring.lab.errors import UserError
from sparring.lab.models.text.pooled import MeanPooledConfig, MeanPooledForSequenceClassification
from sparring.lab.models.tiny import character_tokenizer
from sparring.lab.runs.config import Config
from sparring.lab.runs.predict import Predictor
from sparring.lab.runs.records import RunFolder
from sparring.training import checkpoint
from sparring.training.loop import Loop
from sparring.training.resume import ResumeError
from tests.lab.data import build, data, load

CODE = """
import pathlib
pathlib.Path({mark!r}).touch()
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizer, SequenceFeatureExtractor
class Config(PretrainedConfig):
    model_type = "hostile"
class Model(PreTrainedModel):
    config_class = Config
class Tokenizer(PreTrainedTokenizer):
    pass
class Extractor(SequenceFeatureExtractor):
    pass
def generate(model, *args, **kwargs):
    pass
"""
AUTO = (
    "AutoModel",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelForSeq2SeqLM",
)
AUTO_MAP = {"AutoConfig": "code.Config"} | dict.fromkeys(
    (*AUTO, "AutoModelForImageClassification"), "code.Model"
)
AUTO_MAP |= {"AutoModelForAudioClassification": "code.Model", "AutoFeatureExtractor": "code.Extractor"}
REFUSED = "brings code of its own, which was not run; if you trust the model, add "


@pytest.fixture(autouse=True)
def _yes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Standard input that says yes to everything; modules that transformers copies are kept apart."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


class Runs:
    """Unpickled, it creates a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def with_code(folder: Path, mark: Path, config: dict[str, Any] | None = None, **files: Any) -> Path:
    """A model's folder with code beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "code.py").write_text(CODE.format(mark=str(mark)))
    files = {"config": {"model_type": "hostile", "auto_map": AUTO_MAP} if config is None else config, **files}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def good_model(folder: Path) -> Path:
    """BERT, small, with a tokenizer."""
    tokenizer = character_tokenizer(["a ruby thing, rose rust grass mint moss sky sea ink"])
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = BertConfig(vocab_size=len(tokenizer), num_labels=3, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# ------------------------------------------------------------ models with code


@pytest.mark.parametrize("kind", ["multi-class", "token", "pair", "image", "audio", "generation"])
def test_the_code_of_a_model_is_refused(tmp_path: Path, mark: Path, kind: str) -> None:
    extractor = {"feature_extractor_type": "Extractor", "auto_map": AUTO_MAP, "size": 8}
    folder = with_code(tmp_path / "model", mark, preprocessor_config=extractor)
    with pytest.raises(UserError, match=REFUSED):
        build(str(folder), data(kind))
    with pytest.raises(UserError, match=REFUSED):
        load(folder, kind)
    assert not mark.exists()


def test_with_the_flag_it_runs(tmp_path: Path, mark: Path) -> None:
    """So that the tests above prove something: the folder is such that its code would run."""
    folder = with_code(tmp_path / "model", mark)
    with pytest.raises(UserError, match="model"):  # it has no weights
        build(str(folder), data("multi-class"), trust_remote_code=True)
    assert mark.exists()


def test_the_code_of_a_tokenizer_is_refused(tmp_path: Path, mark: Path) -> None:
    settings = {
        "tokenizer_class": "HostileTokenizer",
        "auto_map": {"AutoTokenizer": ["code.Tokenizer", None]},
    }
    folder = with_code(
        good_model(tmp_path / "model"), mark, json.loads((tmp_path / "model" / "config.json").read_text())
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=REFUSED):
        build(str(folder), data("multi-class"))
    with pytest.raises(UserError, match=REFUSED):
        load(folder, "multi-class")
    assert not mark.exists()


def test_the_code_of_a_known_kind_of_model_is_not_needed(tmp_path: Path, mark: Path) -> None:
    """transformers has BERT's own code: the folder's is left alone, and the model is loaded."""
    folder = good_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {"auto_map": AUTO_MAP}
    build(str(with_code(folder, mark, config)), data("multi-class"))
    assert not mark.exists()


def test_custom_generation_is_refused(tmp_path: Path, mark: Path) -> None:
    folder = good_model(tmp_path / "model")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(CODE.format(mark=str(mark)))
    with pytest.raises(UserError, match=REFUSED):
        build(str(folder), data("generation"))
    assert not mark.exists()


def test_an_encoder_within_a_pooled_model_is_refused(tmp_path: Path, mark: Path) -> None:
    folder = good_model(tmp_path / "model")
    encoder = json.loads((folder / "config.json").read_text())
    MeanPooledForSequenceClassification(MeanPooledConfig(encoder, num_labels=3)).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["encoder"] = {
        "model_type": "timm_backbone",
        "auto_map": AUTO_MAP,
        "hidden_size": 8,
        "num_hidden_layers": 1,
    }
    with pytest.raises(UserError):
        load(with_code(folder, mark, config), "multi-class")
    assert not mark.exists()


# ------------------------------------------------------------ the flag


def test_a_file_cannot_turn_it_on(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('task = "digits"\ntrust_remote_code = true\n')
    with pytest.raises(
        UserError, match=r"config\.toml: trust_remote_code is not taken from a file; trust_remote_code=True"
    ):
        Config.read(path, {})
    path.write_text('task = "digits"\ntrust_remote_code = false\n')
    assert not Config.read(path, {}).trust_remote_code
    config = Config.read(path, {"trust_remote_code": True})
    assert config.trust_remote_code
    assert "trust" not in config.toml()


def foreign_run(folder: Path, mark: Path) -> RunFolder:
    """A finished run from elsewhere whose files say that all is well, checksums included."""
    with_code(folder / "model", mark)
    (folder / "config.toml").write_text('task = "colours"\ntrust_remote_code = true\n')
    run, config = RunFolder(folder), {"loss": "softmax", "trust_remote_code": True}
    facts = {
        "task": "colours",
        "kind": "multi-class",
        "source": "",
        "fingerprint": "",
        "notes": [],
        "top_k": None,
    }
    facts |= {"sizes": {"train": 2, "dev": 2, "test": 2}, "labels": ["a", "b"], **config}
    (folder / "data.json").write_text(json.dumps(facts))
    counts = (
        "best_step",
        "epochs",
        "n_forward",
        "n_backward",
        "n_updates",
        "n_rows",
        "n_won",
        "seconds",
        "cpu_seconds",
        "won_share",
    )
    summary = dict.fromkeys((*counts, "n_samples", "n_planned", "seed"), 1)
    summary |= {
        "task": "colours",
        "contestant": "softmax",
        "model": "bert",
        "metric": "accuracy",
        "folder": str(folder),
    }
    summary |= {
        "dev": {"accuracy": 1.0},
        "test": None,
        "correlation": None,
        "config": config,
        "checksums": run.checksums(),
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    run.verify()
    return run


def test_predict_from_a_foreign_run(tmp_path: Path, mark: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = foreign_run(tmp_path / "run", mark)
    with pytest.raises(UserError, match=REFUSED):
        Predictor(run)
    assert main(["predict", str(run.path), "a text"]) == 1
    assert f"{REFUSED}--trust-remote-code" in capsys.readouterr().err
    assert not mark.exists()
    assert main(["predict", str(run.path), "a text", "--trust-remote-code"]) == 1, "it has no weights"
    assert mark.exists(), "the flag is what it takes"


def test_everything_that_loads_a_model_says_whether_code_may_run() -> None:
    """Every call of from_pretrained and load_dataset, but for classes of our own that read JSON."""
    silent = []
    for path in Path(sparring.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr not in ("from_pretrained", "load_dataset") or ast.unparse(node.func.value) in (
                "MelSpectrogram",
                "ImageProcessor",
            ):
                continue
            text = ast.unparse(node)
            if "trust_remote_code" not in text:
                silent.append(f"{path.name}: {text}")
    assert not silent


# ------------------------------------------------------------ pickles


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_pickles_in_place_of_weights(tmp_path: Path, mark: Path, name: str) -> None:
    folder = good_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({"classifier.weight": Runs(mark)}, folder / name)
    with pytest.raises(UserError):
        load(folder, "multi-class")
    with pytest.raises((UserError, pickle.UnpicklingError, Exception)):
        build(str(folder), data("multi-class"))
    (folder / name).write_bytes(pickle.dumps(Runs(mark)))
    with pytest.raises(UserError):
        load(folder, "multi-class")
    assert not mark.exists()


def hostile_file(form: str, mark: Path) -> bytes:
    if form.startswith("pickle"):
        return pickle.dumps(Runs(mark), protocol=int(form[-1]))
    buffer = io.BytesIO()
    torch.save(
        {"model": Runs(mark)} if form == "nested" else Runs(mark),
        buffer,
        _use_new_zipfile_serialization=form != "legacy",
    )
    return buffer.getvalue()


@pytest.mark.filterwarnings(
    "ignore:Detected pickle protocol"
)  # as an error it would refuse the file in place of the reader
@pytest.mark.parametrize("form", ["zip", "nested", "legacy", "pickle-2", "pickle-4"])
def test_a_checkpoint_of_a_loop(tmp_path: Path, mark: Path, form: str) -> None:
    path, content = tmp_path / "run" / checkpoint.NAME, hostile_file(form, mark)
    path.parent.mkdir()
    path.write_bytes(content + checkpoint.MARK + hashlib.sha256(content).hexdigest().encode() + b"\n")
    shutil.copy(path, path.with_name(checkpoint.PREVIOUS))
    samples = TensorDataset(torch.randn(16, 4), torch.randint(2, (16,)))
    reason = "it holds more than tensors and plain values"
    refused = rf"no checkpoint can be read: .*checkpoint\.pt: {reason}.*-previous\.pt: {reason}"
    with pytest.raises(ResumeError, match=refused):
        Loop(nn.Linear(4, 2), ASSoftmaxLoss(), samples, batch_size=8, epochs=1, folder=path.parent).run()
    assert not mark.exists()
    with contextlib.suppress(Exception):  # a pickle is no checkpoint, which torch finds after running it
        torch.load(io.BytesIO(content), weights_only=False)
    assert mark.exists(), "torch would have run it"


def test_a_checkpoint_of_many_ranks(tmp_path: Path, mark: Path) -> None:
    model = nn.Linear(3, 2)
    folder = Checkpoints(tmp_path).save(1, model)
    (folder / ".metadata").write_bytes(pickle.dumps(Runs(mark)))
    write_manifest(folder)
    assert verify_manifest(folder) is None
    with pytest.raises(ValueError, match="nothing of this one was run"):
        Checkpoints(tmp_path).load(model)
    assert not mark.exists()
