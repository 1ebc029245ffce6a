"""Settings: typed, from TOML and flags, resolved for a task."""

from pathlib import Path

import pytest

from sparring.lab.errors import UserError
from sparring.lab.runs.config import SETTINGS, Config
from sparring.losses import ASSoftmaxLoss, MultilabelASSoftmaxLoss, list_losses
from sparring.losses.delta import AdaptiveDelta, WarmupDelta
from sparring.training import AdaptiveAccumulation
from tests.lab.data import task


def resolved(config: Config, kind: str = "multi-class", **settings: object) -> Config:
    return config.resolved(task(kind), epochs=3, lr=0.01, **settings)  # type: ignore[arg-type]


def test_flags_go_on_top_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('task = "digits"\nlr = 1e-3\nbatch-size = 16\nrest = true\n')
    config = Config.read(path, {"lr": "0.5", "delta": "adaptive"})
    assert (config.task, config.lr, config.batch_size, config.rest, config.delta) == (
        "digits",
        0.5,
        16,
        True,
        "adaptive",
    )


def test_a_written_config_reads_back_equal(tmp_path: Path) -> None:
    config = resolved(
        Config(
            'näme "q" \\ \n',
            delta=0.2,
            warmup=0.1,
            accumulation="adaptive",
            n_train=7,
            freeze_embeddings=True,
        )
    )
    (tmp_path / "c.toml").write_text(config.toml(), encoding="utf-8")
    assert Config.read(tmp_path / "c.toml", {}) == config


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"lr": "fast"}, "lr must be a number, got 'fast'"),
        ({"epochs": "2.5"}, "epochs must be an integer, got '2.5'"),
        ({"skip": "maybe"}, "skip must be off or micro or rows or two-pass or auto, got 'maybe'"),
        ({"delta": "many"}, "delta must be a number or adaptive, got 'many'"),
        ({"accumulation": "sometimes"}, "accumulation must be an integer or adaptive, got 'sometimes'"),
        ({"lr": "nan"}, "lr must be a number, got 'nan'"),
        ({"lr": True}, "lr must be a number, got True"),
        ({"epochs": True}, "epochs must be an integer, got True"),
        ({"metric": "a\0b"}, "metric must be text without null characters, got 'a\\x00b'"),
    ],
)
def test_a_wrong_value_is_named(flags: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        Config.read(None, {"task": "digits", **flags})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("epochs", "1e1", 10),
        ("epochs", 8.0, 8),
        ("lr", 1, 1.0),
        ("accumulation", "3", 3),
        ("rest", "yes", True),
        ("label_separator", 3, "3"),
        ("delta", "0.3", 0.3),
    ],
)
def test_values_are_converted(name: str, value: object, parsed: object) -> None:
    converted = getattr(Config("digits", **{name: value}), name)  # type: ignore[arg-type]
    assert (converted, type(converted)) == (parsed, type(parsed))


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    for text, message in (
        ("lr = ", "not TOML"),
        ("colour = 1", "no setting named colour"),
        ('lr = "x"', "lr must be a number"),
        ("", "no task"),
    ):
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(UserError, match=message):
            Config.read(tmp_path / "a.toml", {} if "task" in message else {"task": "digits"})
    with pytest.raises(UserError, match="no such file"):
        Config.read(tmp_path / "b.toml", {})


def test_contestants() -> None:
    config = Config("digits", delta=0.3).with_contestant("as-softmax:delta=0.2:skip=off:batch-size=8")
    assert (config.loss, config.delta, config.skip, config.batch_size) == ("as-softmax", 0.2, "off", 8)
    for text in (
        "as-softmax:delta",
        "as-softmax:colour=1",
        "as-softmax:task=x",
        "as-softmax:delta=x",
        "as-softmax:k=3",
    ):
        with pytest.raises(UserError, match="as-softmax"):
            config.with_contestant(text)


def test_defaults_are_filled_in() -> None:
    config = resolved(Config("colours"))
    assert (config.loss, config.delta, config.warmup, config.tau) == ("as-softmax", 0.8, 0.0, None)
    assert (config.epochs, config.lr, config.metric, config.max_length) == (3, 0.01, "accuracy", 32)
    assert resolved(Config("colours"), "multi-label").loss == "multilabel-as-softmax"
    assert resolved(Config("colours", epochs=1, lr=1.0, metric="macro_f1")).epochs == 1
    assert resolved(config) == config


@pytest.mark.parametrize("kind", ["multi-class", "multi-label"])
def test_a_loss_that_does_not_fit_is_refused_with_those_that_do(kind: str) -> None:
    fits = [name for name in list_losses() if ("multilabel" in name) == (kind == "multi-label")]
    for name in list_losses():
        if name in fits:
            assert resolved(Config("colours", loss=name), kind).make_loss(10).name == name
        else:
            with pytest.raises(UserError) as error:
                resolved(Config("colours", loss=name), kind)
            assert (
                str(error.value)
                == f'loss "{name}" does not fit colours, whose kind is {kind}; use one of {", ".join(fits)}'
            )
    with pytest.raises(UserError, match=r'no loss named "assoftmax"; did you mean "as-softmax"'):
        resolved(Config("colours", loss="assoftmax"), kind)


def test_a_setting_the_loss_does_not_take_is_refused() -> None:
    with pytest.raises(UserError, match='"softmax" takes no delta; it takes concede, concede_warmup'):
        resolved(Config("colours", loss="softmax", delta=0.3))
    with pytest.raises(UserError, match='"as-softmax" takes no k, scale; it takes delta, concede, warmup'):
        resolved(Config("colours", loss="as-softmax", k=3, scale=2.0))
    assert resolved(Config("colours", loss="softmax", delta=0.3), strict=False).delta is None


def test_losses_and_accumulation_are_made_as_said() -> None:
    loss = resolved(Config("colours", delta=0.2, warmup=0.5)).make_loss(total_steps=10)
    assert isinstance(loss, ASSoftmaxLoss)
    assert isinstance(loss.delta, WarmupDelta)
    assert loss.delta.value == 1.0
    assert [loss.delta.step() for _ in range(5)][-1] == 0.2
    judge = resolved(Config("colours", delta=0.2, warmup=0.5)).make_loss(total_steps=10, schedule=False)
    assert isinstance(judge, ASSoftmaxLoss)
    assert judge.delta == 0.2
    adaptive = resolved(Config("colours", delta="adaptive")).make_loss(10)
    assert isinstance(adaptive, ASSoftmaxLoss)
    assert isinstance(adaptive.delta, AdaptiveDelta)
    speed = resolved(Config("colours", loss="as-speed", lam=0.7, max_steps=3), "multi-label")
    made = speed.make_accumulation()
    assert isinstance(speed.make_loss(10), MultilabelASSoftmaxLoss)
    assert isinstance(made, AdaptiveAccumulation)
    assert (made.lam, made.max_steps) == (0.7, 3)
    assert speed.label == "multilabel-as-softmax delta=0.8 accumulation=adaptive"


def test_the_digest_changes_with_what_the_result_depends_on() -> None:
    config = resolved(Config("colours"))
    assert config.digest("a") == resolved(Config("colours")).digest("a")
    assert config.digest("a") != config.digest("b")
    other = {str: "x", int: 99, float: 0.123}
    for name, known in SETTINGS.items():
        value = getattr(config, name)
        if known.types == (bool,):
            different = not value
        else:
            words = [word for word in known.choices if word != value]
            different = words[0] if words else other[known.types[0]]
        changed = config.replace(**{name: different}).digest("a") != config.digest("a")
        assert changed == (known.changes and name != "seed"), name
