"""One table in four forms: the same cells on a terminal, in Markdown, in HTML and in JSON."""

import re

from sparring.lab.runs.summaries import spread, spread_cell
from sparring.lab.table import MISSING, Cell, Table, console, number, percent

TABLE = Table(
    "Scores [of] <two>",
    ["loss", "accuracy %", "r"],
    [["softmax", spread_cell(spread([50.0, 52.0])), number(-0.5)], ["a|b <i>", percent(0.625), MISSING]],
    ["a note [with] brackets"],
)


def test_on_a_terminal() -> None:
    terminal = console()
    with terminal.capture() as captured:
        TABLE.print(terminal)
    lines = [line.split() for line in captured.get().splitlines()]
    assert ["Scores", "[of]", "<two>"] in lines
    assert ["softmax", "51.00", "±", "1.41", "-0.50"] in lines
    assert ["a", "note", "[with]", "brackets"] in lines


def test_in_markdown() -> None:
    assert TABLE.markdown() == (
        "**Scores [of] <two>**\n\n"
        "| loss | accuracy % | r |\n"
        "| --- | ---: | ---: |\n"
        "| softmax | 51.00 ± 1.41 | -0.50 |\n"
        "| a\\|b <i> | 62.50 | – |\n"
        "\n- a note [with] brackets\n"
    )


def test_in_html() -> None:
    text = TABLE.html()
    assert "<caption>Scores [of] &lt;two&gt;</caption>" in text
    assert "a|b &lt;i&gt;" in text
    assert re.findall(r'data-value="(.*?)"', text) == ["51.0", "-0.5", "62.5"]
    assert ">−0.50</td>" in text
    assert text.count('class="word"') == 3  # a heading and two cells


def test_pictures_are_addresses_in_html_alone() -> None:
    table = Table("", ["sample"], [[Cell("7", "7", 'data:image/png;base64,"x')]])
    assert 'src="data:image/png;base64,&quot;x"' in table.html()
    assert table.markdown() == "| sample |\n| --- |\n| 7 |\n"


def test_in_json() -> None:
    assert TABLE.json() == {
        "title": "Scores [of] <two>",
        "columns": ["loss", "accuracy %", "r"],
        "rows": [["softmax", spread([50.0, 52.0]), -0.5], ["a|b <i>", 62.5, None]],
        "notes": ["a note [with] brackets"],
    }


def test_spreads() -> None:
    assert spread([]) is None
    assert spread([3.0]) == {"mean": 3.0, "std": None, "values": [3.0]}
    assert spread_cell(spread([-20.0, -22.0]), "{:+.0f}%").text == "-21% ± 1"
    assert spread_cell(None) == MISSING
