"""The report in a real Chromium, from disk and without a network: charts, tables, dark and narrow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from sparring.lab.report.build import build_report

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROME = os.environ.get("CHROME") or next((path for name in NAMES if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(
    CHROME is None, reason="no Chromium: apt-get install chromium, or name one with CHROME=/path"
)

MARKS = "svg :is(.mark-line, .mark-area, .mark-symbol, .mark-rect).role-mark path"
SIZES = """marks => Object.fromEntries([...document.querySelectorAll(".chart")].map(chart => {
    const boxes = [...chart.querySelectorAll(marks)].map(path => path.getBBox());
    return [chart.id, Math.max(0, ...boxes.map(box => box.width + box.height))];
}))"""  # of the largest mark
LABEL = "#t0-learning-curves-0 .role-axis-label text"
RIGHT_EDGES = "[...document.querySelectorAll('.chart svg')].map(svg => svg.getBoundingClientRect().right)"


@pytest.fixture(scope="module")
def report(digits: Path, kinds: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    build_report([digits, kinds, hostile], path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROME, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The report on a desktop, opened once; each test leaves it usable for the others."""
    with opened(browser, report, 1280, "light") as page:
        yield page


@contextmanager
def opened(browser: Browser, path: Path, width: int, scheme: str) -> Iterator[Page]:
    """A page from disk without a network. Messages on the console and requests are errors."""
    errors: list[str] = []

    def check_request(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            errors.append(request.url)

    viewport: Any = {"width": width, "height": 800}
    context = browser.new_context(offline=True, viewport=viewport, device_scale_factor=1)
    page = context.new_page()
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", check_request)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-drawn]", timeout=60_000)
    yield page
    context.close()
    assert errors == []


BACKGROUNDS = {"dark": "rgb(20, 23, 28)", "light": "rgb(255, 255, 255)"}


def check_look(page: Page, width: int, scheme: str) -> None:
    """The page has the colours of the scheme, nothing in it is wider than the window, and it is painted."""
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == BACKGROUNDS[scheme]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert max(page.evaluate(RIGHT_EDGES)) <= width
    assert len(page.screenshot()) > 30_000


def test_every_chart_is_drawn(page: Page) -> None:
    sizes = page.evaluate(SIZES, MARKS)
    assert len(sizes) == int(page.get_attribute("body", "data-drawn") or 0) > 40
    assert [chart for chart, size in sizes.items() if size < 5] == []


def test_the_hardest_images_are_shown(page: Page) -> None:
    widths = page.evaluate("[...document.querySelectorAll('img.sample')].map(image => image.naturalWidth)")
    assert len(widths) == 40  # the hardest samples, and the suspects
    assert set(widths) == {8}  # digits, in their own size


def test_a_click_sorts_and_a_second_one_reverses(page: Page) -> None:
    table = page.locator("#t0-comparison table").first
    head = "#t0-comparison table >> nth=0 >> th:nth-child(6)"

    def seconds() -> list[float]:
        cells = table.locator("tbody td:nth-child(6)").all()
        return [float(cell.get_attribute("data-value") or "nan") for cell in cells]

    before = seconds()
    assert len(set(before)) == 3
    page.click(f"{head} >> button")
    assert seconds() == sorted(before, reverse=True)
    assert page.get_attribute(head, "aria-sort") == "descending"
    page.focus(f"{head} >> button")
    page.keyboard.press("Enter")
    assert seconds() == sorted(before)
    assert page.get_attribute(head, "aria-sort") == "ascending"
    page.click("#t0-comparison table >> nth=0 >> th:nth-child(1) >> button")
    assert page.get_attribute(head, "aria-sort") is None
    names = table.locator("tbody td:nth-child(1)").all_inner_texts()
    assert names == ["as-softmax delta=0.1", "as-softmax delta=0.3", "softmax"]


def test_the_slider_and_the_button_go_through_training(page: Page) -> None:
    def shape() -> str | None:
        return page.get_attribute("#t0-margins-0 .mark-area path", "d")

    last = shape()
    page.evaluate("async () => { await results['t0-margins-0'].view.signal('evaluation', 1).runAsync(); }")
    first = shape()
    assert first != last
    page.click("#t0-margins .play")
    page.wait_for_function("document.querySelector('#t0-margins-0 input[type=range]').value === '3'")
    assert shape() not in (first, last)
    page.click("#t0-margins .play")
    assert page.inner_text("#t0-margins .play") == "Play"


def test_a_menu_picks_the_contestant_of_the_classes(page: Page) -> None:
    def bars() -> list[str | None]:
        marks = page.query_selector_all("#t0-classes-0 .mark-rect.role-mark path")
        return [mark.get_attribute("d") for mark in marks]

    before = bars()
    page.select_option("#t0-classes-0 select", "as-softmax delta=0.3")
    page.wait_for_timeout(200)
    assert bars() != before
    names = [option.inner_text() for option in page.query_selector_all(".chart option")]
    assert max(map(len, names)) > 60  # so that the phone has something to fit


def test_texts_of_the_data_do_not_run(page: Page) -> None:
    assert page.title() != "broken"
    assert "<img src=x" in page.inner_text("#t6-hardest-samples")


def test_a_desktop_in_light_dark_and_light(page: Page) -> None:
    check_look(page, 1280, "light")
    for scheme in ("dark", "light"):  # every chart follows
        fill = page.get_attribute(f"{LABEL} >> nth=0", "fill")
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        changed = f"fill => document.querySelector('{LABEL}').getAttribute('fill') !== fill"
        page.wait_for_function(changed, arg=fill)
        page.wait_for_selector("body[data-drawn]", timeout=60_000)
        check_look(page, 1280, scheme)


def test_a_phone_in_dark(browser: Browser, report: Path) -> None:
    with opened(browser, report, 360, "dark") as page:
        check_look(page, 360, "dark")
