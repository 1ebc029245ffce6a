"""Every kind trains, its saved model scores the same, and new inputs are predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from scipy.io import wavfile

from sparring.lab.errors import UserError
from sparring.lab.runs.config import Config
from sparring.lab.runs.evaluate import Evaluator
from sparring.lab.runs.plan import plan
from sparring.lab.runs.predict import Predictor
from sparring.lab.runs.runner import run
from sparring.losses import make_loss
from sparring.losses.delta import TRAINING_DELTA
from tests.lab.data import KINDS, data, load, task, tone

SETTINGS: dict[str, dict[str, Any]] = {
    "pair": {"epochs": 20},
    "spelling": {"epochs": 20},
    "generation": {"lr": 3e-3, "eval_every": 30},
}
INPUTS: dict[str, tuple[str, Any]] = {
    "multi-class": ("a mint thing", "green"),
    "token": ("a rose thing sky", ["O", "B-red", "O", "B-blue"]),
    "spelling": ("a mxnt", "a mint"),
    "multi-label": ("moss sea", ["blue", "green"]),
    "generation": ("a mint thing", "this mint thing is green"),
    "image": ("grey.png", "green"),
    "audio": ("tone.wav", "green"),
}


def media_files(folder: Path) -> None:
    """An image and a sound of the second of three classes."""
    Image.new("RGB", (8, 8), (128, 128, 128)).save(folder / "grey.png")
    wavfile.write(folder / "tone.wav", 8000, tone(800, 0.2).numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_trains_and_predicts(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data(kind)
    config = Config("colours", out=str(tmp_path), **{"epochs": 10, "batch_size": 8, **SETTINGS.get(kind, {})})
    planned = plan(config, task(kind, made), made)
    summary = run(planned)
    assert summary["test"][planned.config.metric] > (0.6 if kind == "pair" else 0.9)

    model = load(planned.folder.model, kind)
    loss = make_loss(made.kind.loss_name("as-softmax"), delta=TRAINING_DELTA)
    evaluator = Evaluator(made.kind, made.encoder(model.processor, 32), made.test, loss)
    assert evaluator.outcome(model.net).figures == pytest.approx(summary["test"])

    media_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    predictor = Predictor(planned.folder)
    if kind == "pair":
        assert predictor(["ink"], ["ink"])[0]["predicted"] in ("same", "other")
        with pytest.raises(UserError, match="give the second text with texts_b"):
            predictor(["ink"])
        return
    text, expected = INPUTS[kind]
    rows = predictor([text] * 40)  # more than a batch
    assert [row["predicted"] for row in rows] == [expected] * 40
    assert ("probabilities" in rows[0]) == made.kind.one_label
    if made.kind.one_label:
        assert next(iter(rows[0]["probabilities"])) == expected
        assert sum(rows[0]["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    with pytest.raises(UserError, match="takes one text, not a pair"):
        predictor([text], [text])


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_the_same_only_as_itself(kind: str) -> None:
    """The key, by which no sample gets into two splits, is hashable and depends on what the model reads."""
    made = data(kind)
    keys = [made.kind.key(sample) for sample in made.train]
    assert len(set(keys)) > 1
    assert keys == [made.kind.key(dict(sample)) for sample in made.train]


def test_pictures_are_of_images_and_sounds_only() -> None:
    for kind in KINDS:
        made = data(kind, 1)
        picture = made.kind.picture(made.train[0])
        assert (picture is None) == made.kind.reads_text
        assert picture is None or picture.startswith("data:image/png;base64,")
