"""The report in a real Chromium, from disk and without a network: no errors, charts are drawn, tables sort, dark and narrow too."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from sparring.lab.report.build import build_report

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROME = os.environ.get("CHROME") or next((found for name in NAMES if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(
    CHROME is None, reason="no Chromium: apt-get install chromium, or name one with CHROME=/path"
)

MARKS = "svg :is(.mark-line, .mark-area, .mark-symbol, .mark-rect).role-mark path"
SIZES = """marks => Object.fromEntries([...document.querySelectorAll(".chart")].map(chart => [chart.id, Math.max(0,
    ...[...chart.querySelectorAll(marks)].map(path => path.getBBox().width + path.getBBox().height))]))"""  # of the largest mark


@pytest.fixture(scope="module")
def report(digits: Path, kinds: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    build_report([digits, kinds, hostile], path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROME, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The report, all charts drawn; whatever it said to the console or asked of the network fails the test."""
    with opened(browser, report) as page:
        yield page


class opened:  # noqa: N801, used as a function
    """A page from disk with networking off."""

    def __init__(self, browser: Browser, path: Path, **looks: Any) -> None:
        self.context = browser.new_context(offline=True, **looks)
        self.page, self.path = self.context.new_page(), path
        self.wrong: list[str] = []
        self.page.on(
            "console",
            lambda message: self.wrong.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else self.wrong.append(request.url)
            ),
        )

    def __enter__(self) -> Page:
        self.page.goto(self.path.as_uri())
        self.page.wait_for_selector("body[data-drawn]", timeout=60_000)
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.wrong == []


def test_every_chart_is_drawn(page: Page) -> None:
    sizes = page.evaluate(SIZES, MARKS)
    assert len(sizes) == int(page.get_attribute("body", "data-drawn") or 0) > 40
    assert [chart for chart, size in sizes.items() if size < 5] == []


def test_the_hardest_images_are_shown(page: Page) -> None:
    widths = page.evaluate("[...document.querySelectorAll('img.sample')].map(image => image.naturalWidth)")
    assert len(widths) == 20
    assert set(widths) == {8}  # digits, as they are


def test_a_click_sorts_and_a_second_one_turns_it_round(page: Page) -> None:
    table, head = (
        page.locator("#t0-comparison table").first,
        "#t0-comparison table >> nth=0 >> th:nth-child(5)",
    )

    def times() -> list[float]:
        return [
            float(cell.get_attribute("data-value") or "nan")
            for cell in table.locator("tbody td:nth-child(5)").all()
        ]

    before = times()
    assert len(set(before)) == 3
    page.click(f"{head} >> button")
    assert times() == sorted(before, reverse=True)
    assert page.get_attribute(head, "aria-sort") == "descending"
    page.focus(f"{head} >> button")
    page.keyboard.press("Enter")
    assert times() == sorted(before)
    assert page.get_attribute(head, "aria-sort") == "ascending"
    page.click("#t0-comparison table >> nth=0 >> th:nth-child(1) >> button")
    assert page.get_attribute(head, "aria-sort") is None
    names = table.locator("tbody td:nth-child(1)").all_inner_texts()
    assert names == ["as-softmax delta=0.1", "as-softmax delta=0.3", "softmax"]


def test_the_slider_and_the_button_go_through_training(page: Page) -> None:
    shape = lambda: page.get_attribute("#t0-margins-0 .mark-area path", "d")  # noqa: E731
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
    def bars():
        return [
            bar.get_attribute("d")
            for bar in page.query_selector_all("#t0-classes-0 .mark-rect.role-mark path")
        ]

    before = bars()
    page.select_option("#t0-classes-0 select", "as-softmax delta=0.3")
    page.wait_for_timeout(200)
    assert bars() != before
    longest = max(page.query_selector_all(".chart option"), key=lambda option: len(option.inner_text()))
    assert len(longest.inner_text()) > 60  # so that the test of the phone has something to fit


def test_texts_of_the_data_do_not_run(page: Page) -> None:
    assert page.title() != "broken"
    assert "<img src=x" in page.inner_text("#t6-hardest-samples")


def test_dark_mode_recolours_page_and_charts(page: Page) -> None:
    label = "#t0-learning-curves-0 .role-axis-label text >> nth=0"
    light = page.get_attribute(label, "fill")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("body[data-drawn]")
    page.wait_for_function(
        "fill => document.querySelector('#t0-learning-curves-0 .role-axis-label text').getAttribute('fill') !== fill",
        arg=light,
    )
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("device", "width"), [("phone", 360), ("desktop", 1280)])
def test_it_fits_and_is_pictured(
    browser: Browser, report: Path, scheme: Any, device: str, width: int, tmp_path: Path
) -> None:
    with opened(
        browser, report, viewport={"width": width, "height": 800}, color_scheme=scheme, device_scale_factor=1
    ) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        edges = page.evaluate(
            "[...document.querySelectorAll('.chart svg')].map(svg => svg.getBoundingClientRect().right)"
        )
        assert max(edges) <= width
        picture = page.screenshot(path=tmp_path / f"{device}-{scheme}.png", full_page=True)
        assert len(picture) > 100_000
