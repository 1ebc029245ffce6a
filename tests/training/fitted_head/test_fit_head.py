"""The fitted head: against the equations in double precision, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparring import LinearASSoftmaxLoss, fit_head
from sparring.training.fitted_head.discriminant import Moments
from sparring.training.fitted_head.fit_head import HeadError

C, D, N = 4, 6, 300


def rows(n: int = N, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes around different points, with one covariance and unequal sizes."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.multinomial(torch.tensor([0.4, 0.3, 0.2, 0.1]), n, True, generator=generator)
    centers = 2 * torch.randn(C, D, generator=generator)
    mixing = torch.randn(D, D, generator=generator)
    return centers[target] + torch.randn(n, D, generator=generator) @ mixing + 5.0, target


def moments_of(x: Tensor, target: Tensor) -> Moments:
    moments = Moments(D, C, target.ndim == 2, x.mean(0))
    for part in range(0, len(x), 64):
        moments.add(x[part : part + 64], target[part : part + 64])
    return moments


@pytest.mark.parametrize("shrinkage", [0.01, 0.3, 1.0])
def test_is_the_posterior_of_normal_classes(shrinkage: float) -> None:
    """Against log densities of normal distributions, from loops over the rows."""
    x, target = rows()
    weight, bias = moments_of(x, target).discriminant().layer(shrinkage).at(1.0)
    double = x.double()
    means = torch.stack([double[target == c].mean(0) for c in range(C)])
    covariance = torch.zeros(D, D, dtype=torch.float64)
    for row, c in zip(double, target.tolist(), strict=True):
        covariance += torch.outer(row - means[c], row - means[c]) / (N - C)
    average = covariance.diagonal().mean()
    covariance = (1 - shrinkage) * covariance + shrinkage * average * torch.eye(D, dtype=torch.float64)
    priors = (torch.bincount(target, minlength=C) + 1) / (N + C)
    densities = torch.stack(
        [torch.distributions.MultivariateNormal(mean, covariance).log_prob(double) for mean in means], 1
    )
    expected = (densities + priors.log()).softmax(1)
    assert torch.allclose((double @ weight.T + bias).softmax(1), expected, atol=1e-6)


def test_each_label_of_many_is_a_problem_of_two_classes() -> None:
    """The covariance within the classes of a label follows from that of all rows."""
    x, target = rows()
    labels = nn.functional.one_hot(target, C).double()
    labels[::3, 0] = 1
    weight, bias = moments_of(x, labels).discriminant().layer(0.0).at(1.0)
    double = x.double()
    for label in range(C):
        member = labels[:, label] == 1
        means = [double[member].mean(0), double[~member].mean(0)]
        centered = torch.where(member[:, None], double - means[0], double - means[1])
        inverse = torch.linalg.inv(centered.T @ centered / N)
        prior = (member.sum() + 1) / (N + 2)
        direction = inverse @ (means[0] - means[1])
        expected = (double - (means[0] + means[1]) / 2) @ direction + torch.logit(prior)
        assert torch.allclose(double @ weight[label] + bias[label], expected, atol=1e-6)


def classifier() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, 32), nn.Tanh(), nn.Dropout(0.5), nn.Linear(32, C))


def loader(x: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(50), target.split(50), strict=True))


def test_changes_the_last_layer_alone_and_helps_on_new_rows() -> None:
    x, target = rows(2 * N)
    model = classifier()
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    fit = fit_head(model, loader(x[:N], target[:N]))
    after = model.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"3.weight", "3.bias"}
    assert [module.training for module in model.modules()] == modes
    assert fit.replaced
    assert (fit.n_rows, fit.n_samples) == (N, N)
    model.eval()
    loss = nn.functional.cross_entropy(model(x[N:]), target[N:]).item()
    assert loss < 0.7 * fit.loss_before
    assert abs(loss - fit.loss_after) < 0.25  # 60 rows were held out


def test_batches_do_not_matter() -> None:
    x, target = rows()
    models = classifier(), classifier()
    fits = fit_head(models[0], [(x, target)]), fit_head(models[1], loader(x, target))
    assert fits[0].shrinkage == fits[1].shrinkage
    assert torch.allclose(models[0][3].weight, models[1][3].weight, atol=1e-5)


def test_stops_early_once_there_are_enough_rows() -> None:
    """50 for each of four classes here, so four batches of 50."""
    x, target = rows(2 * N)
    taken: list[int] = []

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in loader(x, target):
            taken.append(len(batch[0]))
            yield batch

    model = classifier()
    fit = fit_head(model, batches(), stop_early=True)
    enough = 20 * model[3].in_features
    assert enough > 50 * C
    assert fit.n_samples == sum(taken)
    assert enough <= fit.n_samples < enough + 50 or fit.n_samples == len(x)


def test_a_trained_head_stays() -> None:
    x, target = rows()
    target = torch.randint(C, target.shape, generator=torch.Generator().manual_seed(0))  # by heart
    model = classifier()
    model[2].p = 0.0
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(400):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
    before = copy.deepcopy(model.state_dict())
    fit = fit_head(model, loader(x, target))
    assert not fit.replaced
    assert str(fit).startswith("head kept: held-out loss ")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_inputs_that_hardly_differ_keep_their_head() -> None:
    """As those of a random network: only large weights would tell them apart."""
    x, target = rows()
    model = nn.Sequential(nn.Linear(D, C))
    model[0].weight.data.zero_()
    batches = loader(100 + 1e-3 * x, target)
    fit = fit_head(model, batches, max_scale=32.0)
    assert not fit.replaced
    assert str(fit).startswith("head kept: its inputs hardly differ")
    assert not model[0].weight.any()
    assert fit_head(model, batches).replaced  # one that the user asks for, on features that stay


def test_a_head_that_is_little_better_can_be_refused() -> None:
    x, target = rows()
    model = classifier()
    assert not fit_head(model, loader(x, target), keep_above=1e-3).replaced
    assert fit_head(model, loader(x, target), keep_above=1.0).replaced


def test_a_pass_that_promises_nothing_ends_early() -> None:
    x, target = rows()
    noise = torch.randint(C, target.shape, generator=torch.Generator().manual_seed(0))
    model = classifier()
    before = copy.deepcopy(model.state_dict())
    fit = fit_head(model, loader(x, noise), keep_above=0.5, check_after=2)
    assert (fit.replaced, fit.n_samples) == (False, 100)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    whole, checked = classifier(), classifier()
    fit_head(whole, loader(x, target))
    fit = fit_head(checked, loader(x, target), check_after=2)
    assert (fit.replaced, fit.n_samples) == (True, N)
    assert torch.equal(whole[3].weight, checked[3].weight)


class Tagger(nn.Module):
    """A row of logits for each token, classes last, as in Hugging Face."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(D, 16)
        self.head = nn.Linear(16, C, bias=bias)

    def forward(self, x: Tensor) -> Any:
        return {"logits": self.head(self.body(x).tanh())}


@pytest.mark.parametrize("bias", [True, False])
def test_tokens_without_a_class_are_left_out(bias: bool) -> None:
    x, target = rows(600)
    x, target = x.reshape(60, 10, D), target.reshape(60, 10).clone()
    ignored = torch.rand(60, 10, generator=torch.Generator().manual_seed(1)) < 0.3
    target[ignored] = -100
    models = Tagger(bias), Tagger(bias)
    batches = [{"x": x, "labels": target}]
    noise = torch.where(ignored[..., None], 1e3 * torch.randn(60, 10, D), x)
    fit = fit_head(models[0], batches)
    fit_head(models[1], [{"x": noise, "labels": target}])
    assert fit.replaced
    assert fit.n_rows == int((~ignored).sum())
    assert torch.allclose(models[0].head.weight, models[1].head.weight, atol=1e-4)


def test_the_layer_of_a_fused_head() -> None:
    """`forward` returns the features that the layer of the loss reads."""
    x, target = rows()
    torch.manual_seed(0)
    body = nn.Linear(D, 16)
    loss = LinearASSoftmaxLoss(16, C)
    model = nn.ModuleList([body, loss.linear])
    before = loss(body(x), target).item()
    fit = fit_head(model, [(x, target)], head=loss.linear, forward=lambda net, b: (net[0](b[0]), b[1]))
    assert fit.replaced
    assert loss(body(x), target).item() < before


class Keyword(nn.Module):
    """Passes the input of its head by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(D, 16), nn.Linear(16, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(input=self.body(input=x).tanh())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_by_name_and_half_precision(dtype: torch.dtype) -> None:
    x, target = rows()
    model = Keyword().to(dtype)
    fit = fit_head(model, loader(x.to(dtype), target))
    assert fit.replaced
    assert model.head.weight.dtype == dtype
    loss = nn.functional.cross_entropy(model(x.to(dtype)).float(), target).item()
    assert loss < 0.7 * fit.loss_before


def test_an_interrupted_pass_changes_nothing() -> None:
    x, target = rows()
    model = classifier().train()
    before = copy.deepcopy(model.state_dict())

    def stopped() -> Any:
        yield from loader(x, target)[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_head(model, stopped())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(module.training and not module._forward_hooks for module in model.modules())


def test_several_labels() -> None:
    x, target = rows()
    labels = nn.functional.one_hot(target, C).float()
    labels[x[:, 2] > 6, 1] = 1
    model = classifier()
    fit = fit_head(model, loader(x, labels))
    model.eval()
    right = ((model(x) > 0) == (labels == 1)).float().mean()
    assert fit.replaced
    assert right > 0.8


def test_what_cannot_be_fitted_is_refused() -> None:
    x, target = rows()
    with pytest.raises(HeadError, match=r"not the output of an nn\.Linear; pass head="):
        fit_head(nn.Sequential(nn.Linear(D, C), nn.Softmax(1)), [(x, target)])
    tied = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D))
    tied[2].weight = tied[0].weight
    with pytest.raises(HeadError, match="shares its weights"):
        fit_head(tied, [(x, target)])
    with pytest.raises(HeadError, match="not finite"):
        fit_head(classifier(), [(x.masked_fill(x > 9, torch.inf) * 0, target)])
    with pytest.raises(HeadError, match="shares of classes"):
        fit_head(classifier(), [(x, torch.full((N, C), 0.25))])
    with pytest.raises(HeadError, match="none of the 4 classes"):
        fit_head(classifier(), [(x, target + 1)])
    frozen = classifier()
    frozen[3].requires_grad_(False)
    with pytest.raises(HeadError, match="frozen"):
        fit_head(frozen, [(x, target)])
    with pytest.raises(HeadError, match="too large"):
        fit_head(nn.Linear(1, 1 << 25, bias=False), [(x[:1, :1], target[:1])])
    with pytest.raises(HeadError, match="no batches"):
        fit_head(classifier(), [])
    with pytest.raises(HeadError, match="1 rows are too few"):
        fit_head(classifier(), [(x[:1], target[:1])])
    with pytest.raises(HeadError, match="does not call the head"):
        fit_head(classifier(), [(x, target)], head=nn.Linear(7, C))


def test_a_class_without_rows_gets_the_prior_of_none() -> None:
    x, target = rows()
    seen = target != 3
    model = classifier()
    fit_head(model, loader(x[seen], target[seen]))
    model.eval()
    assert not (model(x[seen]).argmax(1) == 3).any()
    assert model[3].weight.isfinite().all()
