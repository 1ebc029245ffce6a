"""The fused head against the loss of its logits."""

import copy
import inspect
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sparring
from sparring import functional as SF
from tests.heads.cases import SHAPES, STATES, agree, batch, leaves, results


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_loss_of_its_logits(
    shape: tuple[int, int, int], with_bias: bool, weighted: bool, reduction: str, state: str
) -> None:
    x, weight, bias, target = batch(*shape, state)
    tensors = (x, weight, bias if with_bias else None)
    class_weight = torch.rand(shape[2], dtype=torch.float64) + 0.1 if weighted else None
    upstream = torch.linspace(-1, 2, len(target), dtype=torch.float64) if reduction == "none" else None
    outputs = []
    for dtype, fused in (
        (torch.float32, True),
        (torch.float32, False),
        (torch.float64, False),
        (torch.float64, True),
    ):
        parameters = leaves(*tensors, dtype=dtype)
        kwargs = {"weight": None if class_weight is None else class_weight.to(dtype), "reduction": reduction}
        if fused:
            loss = SF.linear_as_softmax_loss(
                *parameters[:2], target, linear_bias=parameters[2], chunk_rows=64, **kwargs
            )
        else:
            loss = SF.as_softmax_loss(F.linear(*parameters), target, **kwargs)
        outputs.append(results(loss, upstream, parameters))
    agree(outputs[0], outputs[1], outputs[2])
    for mine, true in zip(outputs[3], outputs[2], strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("state", STATES)
def test_the_states_are_what_they_say(state: str) -> None:
    x, weight, bias, target = batch(300, 16, 1001, state)
    rows = sparring.ASSoftmaxLoss().rows(F.linear(x, weight, bias), target)
    share = rows.won_share().item()
    assert {"none won": share == 0, "mixed": 0.1 < share < 0.9, "all won": share == 1}[state]


@pytest.mark.parametrize("name", [name for name in sparring.list_losses() if name != "am-softmax"])
@pytest.mark.parametrize("n_classes", [1, 2, 40])
def test_every_loss_equals_that_of_its_logits(name: str, n_classes: int) -> None:
    torch.manual_seed(0)
    head = sparring.LinearLoss(6, n_classes, loss=name, chunk_rows=8).double()
    x = (3 * torch.randn(5, 7, 6, dtype=torch.float64)).requires_grad_()
    target = (
        (torch.rand(5, 7, n_classes) < 0.2).long()
        if "multilabel" in name
        else torch.randint(n_classes, (5, 7))
    )
    target[0] = -100
    logits = head.logits(x)
    unfused = head.loss(logits if "multilabel" in name else logits.movedim(-1, 1), target)
    parameters = [x, *head.linear.parameters()]
    for mine, true in zip(
        results(head(x, target), None, parameters), results(unfused, None, parameters), strict=True
    ):
        torch.testing.assert_close(mine, true)
    rows, plain = (
        head.rows(x, target),
        head.loss.rows(logits if "multilabel" in name else logits.movedim(-1, 1), target),
    )
    assert rows.active.equal(plain.active)
    assert rows.valid.equal(plain.valid)


@pytest.mark.parametrize("lead", [(), (4,), (2, 3), (2, 1, 3), (0,), (2, 0)])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_any_number_of_leading_dimensions(lead: tuple[int, ...], reduction: str) -> None:
    torch.manual_seed(0)
    head = sparring.LinearASSoftmaxLoss(5, 9, reduction=reduction)
    x, target = torch.randn(*lead, 5, requires_grad=True), torch.randint(9, lead)
    loss = head(x, target.int())
    assert loss.shape == (lead if reduction == "none" else ())
    loss.sum().backward()
    assert x.grad is not None
    assert head.linear.weight.grad is not None


def test_a_batch_that_is_all_ignored_has_loss_zero_and_a_graph() -> None:
    head = sparring.LinearASSoftmaxLoss(5, 9)
    loss = head(torch.randn(4, 5), torch.full((4,), -100))
    loss.backward()
    assert loss == 0
    assert head.linear.weight.grad is not None
    assert head.linear.weight.grad.abs().max() == 0


def test_a_weight_tied_to_an_embedding() -> None:
    torch.manual_seed(0)
    tokens, target = torch.randint(30, (4, 5)), torch.randint(30, (4, 5))
    outputs = []
    for fused in (True, False):
        torch.manual_seed(1)
        embedding = nn.Embedding(30, 8)
        head = sparring.LinearASSoftmaxLoss(8, 30, bias=False)
        head.linear.weight = embedding.weight
        hidden = embedding(tokens)
        loss = head(hidden, target) if fused else head.loss(head.logits(hidden).movedim(-1, 1), target)
        loss.backward()
        outputs.append(embedding.weight.grad)
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    x, weight, bias, target = batch(60, 8, 50)
    outputs = []
    for fused in (True, False):
        parameters = leaves(x, weight, bias, dtype=torch.float32)
        with torch.autocast("cpu", dtype=dtype):
            if fused:
                loss = SF.linear_as_softmax_loss(
                    *parameters[:2], target, linear_bias=parameters[2], chunk_rows=16
                )
            else:
                loss = SF.as_softmax_loss(F.linear(*parameters), target)
        assert loss.dtype == torch.float32
        outputs.append(results(loss, None, parameters))
    torch.testing.assert_close(outputs[0][0], outputs[1][0], rtol=1e-3, atol=1e-4)
    for mine, other in zip(outputs[0][1:], outputs[1][1:], strict=True):
        assert mine.dtype == torch.float32
        assert (mine - other).abs().max() <= 4 * torch.finfo(dtype).eps * other.abs().max()


def test_float64_under_autocast_stays() -> None:
    x, weight, bias, target = batch(60, 8, 50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias)
    torch.testing.assert_close(loss, SF.as_softmax_loss(F.linear(x, weight, bias), target))


def test_class_weights_in_half_precision() -> None:
    x, weight, _, target = batch(60, 8, 50)
    x, weight = x.bfloat16(), weight.bfloat16()
    class_weight = torch.rand(50)
    mine = sparring.LinearLoss(8, 50, bias=False, loss=sparring.ASSoftmaxLoss(weight=class_weight))
    mine.linear.weight = nn.Parameter(weight)
    torch.testing.assert_close(
        mine.rows(x, target).mean(), mine.loss.rows(F.linear(x, weight), target).mean(), rtol=1e-6, atol=1e-7
    )


def test_half_precision_without_autocast() -> None:
    x, weight, bias, target = batch(60, 8, 50)
    parameters = leaves(x, weight, bias, dtype=torch.bfloat16)
    loss = SF.linear_as_softmax_loss(*parameters[:2], target, linear_bias=parameters[2])
    loss.backward()
    assert loss.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.bfloat16 for p in parameters)
    torch.testing.assert_close(loss, SF.as_softmax_loss(F.linear(*parameters), target))


def test_a_layer_or_loss_of_its_own_is_called_as_it_is() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    class Halved(sparring.ASSoftmaxLoss):
        def forward(self, input: Tensor, target: Tensor) -> Tensor:
            return super().forward(input, target) / 2

    x, target = torch.randn(2, 3, 8), torch.randint(30, (2, 3))
    flat, plain = (x.reshape(6, 8), target.reshape(6)), nn.Linear(8, 30)
    head = sparring.LinearASSoftmaxLoss(8, 30)
    hooked, parametrized = nn.Linear(8, 30), nn.utils.parametrizations.weight_norm(nn.Linear(8, 30))
    hooked.register_forward_hook(lambda _, args, output: output + args[0].sum())
    for layer, fused in ((plain, True), (parametrized, True), (Doubled(8, 30), False), (hooked, False)):
        head.linear = layer
        assert head.fused == fused
        torch.testing.assert_close(head(x, target), head.loss(layer(flat[0]), flat[1]))
        torch.testing.assert_close(head.rows(x, target).value, head.loss.rows(layer(flat[0]), flat[1]).value)
    own = sparring.LinearLoss(8, 30, loss=Halved(reduction="none"))
    assert not own.fused
    assert own(x, target).shape == (2, 3)
    torch.testing.assert_close(own(x, target).flatten(), own.loss(own.logits(flat[0]), flat[1]))


def test_training_through_it_is_training_through_the_unfused_loss() -> None:
    x, _, _, target = batch(64, 8, 40)
    heads = []
    for fused in (True, False):
        torch.manual_seed(0)
        head = sparring.LinearASSoftmaxLoss(
            8, 40, delta=sparring.LinearDelta(1.0, 0.2, total_steps=20), chunk_rows=16
        ).double()
        optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
        for _ in range(20):
            optimizer.zero_grad()
            (head(x, target) if fused else head.loss(head.logits(x), target)).backward()
            optimizer.step()
            head.delta.step()
        heads.append(head)
    torch.testing.assert_close(heads[0].linear.weight, heads[1].linear.weight)


def test_saved_copied_and_shown() -> None:
    head = sparring.LinearASSoftmaxLoss(4, 6, delta=sparring.AdaptiveDelta(0.2), weight=torch.ones(6))
    head.delta.step(1.0)
    x, target = torch.randn(3, 4), torch.tensor([0, 1, 2])
    other = sparring.LinearASSoftmaxLoss(4, 6, delta=sparring.AdaptiveDelta(0.2), weight=torch.zeros(6))
    other.load_state_dict(head.state_dict())
    assert other.delta.value == head.delta.value
    for twin in (other, copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert twin(x, target) == head(x, target)
    assert "LinearASSoftmaxLoss" in repr(head)
    assert "in_features=4, out_features=6" in repr(head)
    assert head.reduction == "mean"
    assert head.ignore_index == -100


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (sparring.LinearSoftmaxLoss, SF.linear_softmax_loss),
        (sparring.LinearASSoftmaxLoss, SF.linear_as_softmax_loss),
        (sparring.LinearSparseSoftmaxLoss, SF.linear_sparse_softmax_loss),
        (sparring.LinearMultilabelASSoftmaxLoss, SF.linear_multilabel_as_softmax_loss),
    ],
)
def test_module_and_function_share_settings_and_defaults(module: type[nn.Module], function: object) -> None:
    torch.manual_seed(0)
    head = module(4, 6)
    parameters = inspect.signature(function).parameters
    settings = {**head.settings(), "ignore_index": head.ignore_index, "reduction": head.reduction}
    settings |= {"impl": head.impl, "chunk_rows": head.chunk_rows}
    assert settings == {name: parameters[name].default for name in settings}
    assert list(inspect.signature(module).parameters)[:3] == ["in_features", "num_classes", "bias"]
    x = torch.randn(3, 4)
    target = torch.eye(6)[:3] if "Multilabel" in module.__name__ else torch.arange(3)
    assert head(x, target) == function(x, head.linear.weight, target, linear_bias=head.linear.bias)


def test_softmax_is_torch_s() -> None:
    x, weight, bias, target = batch(60, 6, 50)
    ours = SF.linear_softmax_loss(x, weight, target, linear_bias=bias)
    torch.testing.assert_close(ours, F.cross_entropy(F.linear(x, weight, bias), target))
    torch.testing.assert_close(
        SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, delta=1.0), ours
    )


X = torch.randn(4, 5)
W = torch.randn(9, 5)
T = torch.tensor([0, 1, 2, -100])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SF.linear_as_softmax_loss(X, W.T, T), "expected (…, 9) features"),
        (
            lambda: SF.linear_as_softmax_loss(X, W[0], T),
            "expected (num_classes, in_features)",
        ),
        (lambda: SF.linear_as_softmax_loss(X, W, T[:3]), "target has shape (3,), expected (4,)"),
        (lambda: SF.linear_as_softmax_loss(X, W, T.float()), "expected integer class indices"),
        (lambda: SF.linear_as_softmax_loss(X, W, T + 9), "out of range for 9 classes"),
        (
            lambda: SF.linear_as_softmax_loss(X, W, T, linear_bias=torch.zeros(8)),
            "linear_bias has shape (8,), expected (9,)",
        ),
        (
            lambda: SF.linear_as_softmax_loss(X, W, T, weight=torch.ones(8)),
            "weight has shape (8,), expected (9,)",
        ),
        (
            lambda: SF.linear_as_softmax_loss(X, W, T, linear_bias=True),
            "linear_bias must be a Tensor with one number per class, got bool",
        ),
        (
            lambda: SF.linear_as_softmax_loss(X, W, T, weight=[1.0] * 9),
            "weight must be a Tensor with one number per class, got list",
        ),
        (lambda: SF.linear_as_softmax_loss(X.double(), W, T), "input is float64 and linear_weight float32"),
        (lambda: SF.linear_as_softmax_loss(X.long(), W, T), "input must be floating-point features"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, delta=2.0), "delta must lie in [0, 1]"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, reduction="average"), "reduction must be one of"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, chunk_rows=0), "chunk_rows must be a whole number"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, impl="cuda"), "impl must be one of auto, torch, triton"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, impl="triton"), 'impl="triton" cannot run here'),
        (
            lambda: SF.linear_sparse_softmax_loss(X, W, T, impl="triton"),
            "softmax, AS-Softmax and the logit-margin variant only",
        ),
        (lambda: SF.linear_multilabel_as_softmax_loss(X, W, T), "one 0/1 label per class"),
        (lambda: sparring.LinearLoss(5, 9, loss="am-softmax"), "am-softmax takes cosines"),
        (lambda: sparring.LinearLoss(5, 9, loss="as_softmax"), 'did you mean "as-softmax"'),
        (lambda: sparring.LinearLoss(5, 9, loss=nn.CrossEntropyLoss()), "got CrossEntropyLoss"),
        (lambda: sparring.LinearLoss(5, 9, "as-softmax"), "bias must be True or False, got 'as-softmax'"),
        (
            lambda: sparring.LinearASSoftmaxLoss(5, 9, weight=torch.ones(8)),
            "weight has shape (8,), expected (9,)",
        ),
        (lambda: sparring.LinearASSoftmaxLoss(0, 9), "in_features must be a whole number"),
        (lambda: sparring.LinearASSoftmaxLoss(5, 9, impl="cuda"), "impl must be one of"),
    ],
)
def test_errors_say_what_to_do(call: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()
