from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import DataError
from sparring.lab.datasets.multilabel.reuters21578 import original


def story(marked: str, split: str, topics: list[str], text: str) -> str:
    """Four lines and those of the text."""
    return (
        f'<REUTERS TOPICS="{marked}" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" OLDID="5544" NEWID="1">\n'
        f"<TOPICS>{''.join(f'<D>{topic}</D>' for topic in topics)}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n{text}\n</REUTERS>\n"
    )


BODY = """<TEXT>&#2;
<TITLE>GRAIN &amp; CO</TITLE>
<DATELINE>    CHICAGO, March 1 - </DATELINE><BODY>Up  5
pct &lt;GC>.
 Reuter
&#3;</BODY></TEXT>"""
FIRST = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n' + story("YES", "TRAIN", ["wheat", "corn", "rye"], BODY)
SECOND = (
    story(
        "YES", "TRAIN", ["rye"], "<TEXT><TITLE>RYE</TITLE><BODY>A topic that is never tested.</BODY></TEXT>"
    )
    + story("NO", "TRAIN", ["corn"], "<TEXT><TITLE>NO</TITLE><BODY>Not marked.</BODY></TEXT>")
    + story("YES", "NOT-USED", ["corn"], "<TEXT><TITLE>NO</TITLE><BODY>Not used.</BODY></TEXT>")
    + story("YES", "TEST", ["corn", "wheat"], '<TEXT TYPE="UNPROC">&#2;\nCAF\xc9 PRICES\n&#3;</TEXT>')
    + story("YES", "TEST", ["wheat"], '<TEXT TYPE="BRIEF">\n<TITLE>WHEAT UP</TITLE>Blah</TEXT>')
    + story("YES", "TEST", [], "<TEXT><TITLE>NONE</TITLE><BODY>No topic.</BODY></TEXT>")
)


def test_the_modapte_split_with_the_topics_of_both_parts(tmp_path: Path) -> None:
    assert original(tmp_path) is None
    assert original(
        write(tmp_path, {"reut2-000.sgm": FIRST, "reut2-001.sgm": SECOND}, encoding="latin-1")
    ) == {
        "train": [{"text": "GRAIN & CO Up 5 pct <GC>.", "labels": ["corn", "wheat"]}],
        "test": [
            {"text": "CAFÉ PRICES", "labels": ["corn", "wheat"]},
            {"text": "WHEAT UP", "labels": ["wheat"]},
        ],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            FIRST + "\n<REUTERS TOPICS=",
            "reut2-000.sgm:13: expected </REUTERS> before the next element or the end of the file",
        ),
        (FIRST.replace("</REUTERS>", "") + FIRST, "reut2-000.sgm:2: expected </REUTERS>"),
        (
            FIRST + "<REUTERS>\n</REUTERS>",
            "reut2-000.sgm:12: expected <REUTERS> with the attributes TOPICS and LEWISSPLIT",
        ),
        ("nothing", "reut2-000.sgm: expected elements <REUTERS>, found none"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        original(write(tmp_path, {"reut2-000.sgm": text}, encoding="latin-1"))
