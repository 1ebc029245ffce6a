"""The documentation site and its playground: a strict build, opened in Chromium without a network."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, sync_playwright
from torch import nn

import sparring
from tests.lab.report.test_report_browser import CHROME, FLAGS

ROOT = Path(__file__).parents[2]
PLAYGROUND = ROOT / "docs" / "playground.html"
NAMES = ("softmax", "as-softmax", "sparse-softmax", "sparsemax", "entmax15")
needs_chromium = pytest.mark.skipif(CHROME is None, reason="no Chromium: make chromium, or CHROME=/path")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a broken link or anchor is an error."""
    pytest.importorskip("material", reason="the site needs the extra docs")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.chdir(ROOT)
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROME, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, path: Path, width: int = 1280, scheme: Any = "light") -> Iterator[Page]:
    """A page from disk without a network. Errors on the console and requests to a network fail the test."""
    errors: list[str] = []
    viewport: Any = {"width": width, "height": 800}
    context = browser.new_context(offline=True, viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else errors.append(r.url)
    )
    page.goto(path.as_uri())
    yield page
    context.close()
    assert errors == []


def test_the_site_has_its_pages(site: Path) -> None:
    for page in ("index", "notebooks/first_steps", "reference/losses", "results/README", "repository/README"):
        assert (site / f"{page}.html").exists() or (site / page).with_name("index.html").exists(), page
    reference = (site / "reference" / "losses.html").read_text()
    assert 'id="sparring.ASSoftmaxLoss"' in reference
    assert "drop-in replacement for nn.CrossEntropyLoss" in reference
    assert (site / "notebooks" / "first_steps.ipynb").read_text().startswith('{\n "cells": [')
    assert (site / "playground.html").read_bytes() == PLAYGROUND.read_bytes()


@needs_chromium
def test_the_site_in_a_browser(browser: Browser, site: Path) -> None:
    with opened(browser, site / "index.html") as page:
        page.click("input.md-search__input")
        page.wait_for_function(
            "document.querySelector('.md-search-result__meta').innerText.startsWith('Type')"
        )
        page.type("input.md-search__input", "Scorecard")
        page.wait_for_selector(".md-search-result__item a")
        links = [
            link.get_attribute("href") or ""
            for link in page.query_selector_all(".md-search-result__item > a")
        ]
        assert any("reference/training.html" in link for link in links), links
    with opened(browser, site / "explanation" / "as_softmax.html", 360, "dark") as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.get_attribute("body", "data-md-color-scheme") == "slate"
        assert page.evaluate("document.querySelector('article img').naturalWidth") > 0


def values(logits: list[float], target: int, tau: float, **settings: float) -> dict[str, Any]:
    """What the library says of a sample: the loss and the gradient of each logit, for each loss."""
    options: dict[str, Any] = {
        "as-softmax": {"delta": settings["delta"]},
        "sparse-softmax": {"k": int(settings["k"])},
    }
    result = {}
    for name in NAMES:
        o = torch.tensor([logits], dtype=torch.float64, requires_grad=True)
        loss = sparring.make_loss(name, **options.get(name, {}))(o / tau, torch.tensor([target]))
        loss.backward()
        assert o.grad is not None
        result[name] = {"value": loss.item(), "gradient": o.grad[0].tolist()}
    return result


@needs_chromium
def test_the_playground_computes_what_the_library_does(browser: Browser) -> None:
    with opened(browser, PLAYGROUND) as page:
        for case in range(40):
            logits = (3 * torch.randn(6)).tolist()
            settings = {"delta": case / 40, "tau": 0.5 + case / 20, "k": 1 + case % 6}
            target = case % 6
            ours = values(logits, target, **settings)
            theirs = page.evaluate("([o, t, s]) => compute(o, t, s)", [logits, target, settings])
            p = torch.softmax(torch.tensor(logits, dtype=torch.float64) / settings["tau"], 0)
            assert theirs["p"] == pytest.approx(p.tolist(), abs=1e-5)
            for name in NAMES:
                loss = theirs["losses"][name]
                assert loss["value"] == pytest.approx(ours[name]["value"], abs=1e-5), (name, case)
                assert loss["gradient"] == pytest.approx(ours[name]["gradient"], abs=1e-5), (name, case)


@needs_chromium
def test_the_playground_trains_as_torch_does(browser: Browser) -> None:
    with opened(browser, PLAYGROUND) as page:
        points = page.evaluate("POINTS")
        weights = page.evaluate("nets[1].weights")
        theirs = page.evaluate("gradients(nets[1].weights, POINTS, 'as-softmax', { delta: 0.3 })")
        page.click("#play")
        page.wait_for_function("nets[1].steps > 20")
        page.click("#play")
        assert page.evaluate("nets[1].nBackward < 30 * nets[1].steps")  # some are won by now
    w = {name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}
    model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    with torch.no_grad():
        for parameter, name in zip(model.parameters(), ("w1", "b1", "w2", "b2"), strict=True):
            parameter.copy_(w[name].view_as(parameter))
    x = torch.tensor([point["x"] for point in points], dtype=torch.float64)
    loss = sparring.ASSoftmaxLoss(0.3)(model(x), torch.tensor([point["label"] for point in points]))
    loss.backward()
    assert theirs["loss"] == pytest.approx(loss.item(), abs=1e-5)
    for parameter, name in zip(model.parameters(), ("w1", "b1", "w2", "b2"), strict=True):
        assert parameter.grad is not None
        assert theirs["gradient"][name] == pytest.approx(parameter.grad.flatten().tolist(), abs=1e-5)


@needs_chromium
def test_the_playground_answers(browser: Browser) -> None:
    """Sliders, the buttons of the target and dragging, on a phone in dark colours."""
    with opened(browser, PLAYGROUND, 360, "dark") as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
        shown = page.inner_text("[data-loss=as-softmax] .loss")
        assert float(shown) == pytest.approx(
            values(page.evaluate("state.logits"), 0, tau=1, delta=0.3, k=3)["as-softmax"]["value"], abs=1e-4
        )
        page.fill("[data-logit='0']", "6")
        assert page.inner_text("#verdict").startswith("Won")
        assert float(page.inner_text("[data-loss=as-softmax] .loss")) == 0
        page.check("input[name=target] >> nth=1")
        assert page.inner_text("#verdict").startswith("Strong opponents: book flight, cancel flight, book")
        bar = page.locator(".bar").nth(1)
        bar.scroll_into_view_if_needed()
        box = bar.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 5)
        assert page.evaluate("compute(state.logits, 1).p[1]") == pytest.approx(0.3, abs=0.02)
