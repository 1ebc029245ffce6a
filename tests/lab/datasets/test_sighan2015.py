"""SIGHAN's markup in its three forms, Wang271K's, and the test pair."""

from pathlib import Path

import pytest

from sparring.lab.datasets import Where, get_task
from sparring.lab.datasets.tokens.sighan2015 import Mistake, correct
from tests.lab.datasets.folders import check_refused, read, write

ESSAY = """<ESSAY title="慶祝會">
<TEXT>
<PASSAGE id="A2-0026-1">我真恭喜妳阿。</PASSAGE>
<PASSAGE id="A2-0026-2">我很抱見阿。</PASSAGE>
<PASSAGE id="A2-0026-3">沒有錯。</PASSAGE>
</TEXT>
<MISTAKE id="A2-0026-1" location="6">
<WRONG>真恭喜妳阿</WRONG>
<CORRECTION>真恭喜妳啊</CORRECTION>
</MISTAKE>
<MISTAKE id="A2-0026-2" location="4">
<WRONG>抱見阿</WRONG>
<CORRECTION>抱歉啊</CORRECTION>
</MISTAKE>
<MISTAKE id="A2-0026-2" location="5">
<WRONG>抱見阿</WRONG>
<CORRECTION>抱歉啊</CORRECTION>
</MISTAKE>
</ESSAY>

<ESSAY title="長">
<TEXT>
<PASSAGE id="A2-0027-1">他們一起去。</PASSAGE>
<PASSAGE id="A2-0027-2">他不在。</PASSAGE>
</TEXT>
<MISTAKE id="A2-0027-1" location="3"><WRONG>一起</WRONG><CORRECTION>一起走</CORRECTION></MISTAKE>
<MISTAKE id="A2-0027-2" location="1"><WRONG>她</WRONG><CORRECTION>它</CORRECTION></MISTAKE>
</ESSAY>
"""
WANG = """<SENTENCE>
<TEXT>那个产业如此 &lt; 强，公作。</TEXT>
<MISTAKE>
<LOCATION>1</LOCATION>
<WRONG>那</WRONG>
<CORRECTION>哪</CORRECTION>
</MISTAKE>
<MISTAKE>
<LOCATION>12</LOCATION>
<WRONG>公</WRONG>
<CORRECTION>工</CORRECTION>
</MISTAKE>
</SENTENCE>
"""
BAKEOFF = """<DOC Nid="00021">
<P>以後不致於忘塵莫即啊！ </P>
<TEXT>
<MISTAKE wrong_position=6>
<WRONG>忘塵莫即</WRONG>
<CORRECT>望塵莫及</CORRECT>
</MISTAKE>
</TEXT>
</DOC>
<DOC Nid="10001">
<P>沒錯。</P>
<TEXT>
<MISTAKE wrong_position=0>
</MISTAKE>
</TEXT>
</DOC>
"""
INPUT = "(pid=A2-0011-1)\t你好！\n(pid=A2-0023-1)\t我跟我朋唷去玩而。\n"
TRUTH = "A2-0011-1, 0\nA2-0023-1, 5, 友, 8, 兒\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All of it, in folders as the archives have them, beside tests of other years and forms."""
    files = {
        "sighan8csc_release1.0/Training/SIGHAN15_CSC_A2_Training.sgml": ESSAY,
        "sighan8csc_release1.0/Test/SIGHAN15_CSC_TestInput.txt": INPUT,
        "sighan8csc_release1.0/Test/SIGHAN15_CSC_TestTruth.txt": TRUTH,
        "clp14csc_release1.1/Test/CLP14_CSC_TestInput.txt": "(pid=B1-0001-1)\t舊。\n",
        "clp14csc_release1.1/Test/CLP14_CSC_TestTruth.txt": "B1-0001-1, 0\n",
        "sighan7csc_release1.0/SampleSet/Bakeoff2013_SampleSet_WithError_00001-00350.txt": BAKEOFF,
        "wang271k/train.sgml": WANG,
        "wang271k/test15.sgml": ESSAY,
    }
    return write(tmp_path / "sighan2015", files)


def test_every_form_is_read_and_joined(folder: Path) -> None:
    splits, notes = read("tokens.sighan2015", folder)
    assert {(sample["source"], sample["target"]) for sample in splits["train"]} == {
        ("我真恭喜妳阿。", "我真恭喜妳啊。"),
        ("我很抱見阿。", "我很抱歉啊。"),
        ("沒有錯。", "沒有錯。"),
        ("以後不致於忘塵莫即啊！", "以後不致於望塵莫及啊！"),
        ("沒錯。", "沒錯。"),
        ("那个产业如此 < 强，公作。", "哪个产业如此 < 强，工作。"),
    }
    assert len(splits["train"]) == 6
    assert splits["test"] == [
        {"source": "你好！", "target": "你好！"},
        {"source": "我跟我朋唷去玩而。", "target": "我跟我朋友去玩兒。"},
    ]
    assert notes == (
        "2 training sentences left out: a correction changes their length or does not fit the text",
    )


def test_a_set_without_wang271k_says_so(folder: Path) -> None:
    data = get_task("sighan2015").load(Where(folder.parent, hub=False))
    assert data.notes[-1] == "train without Wang271K: 5 sentences"
    assert (len(data.train), len(data.dev), len(data.test)) == (5, 1, 2)


@pytest.mark.parametrize(
    ("source", "location", "expected"),
    [
        ("的的的", 2, "的得的"),  # the location chooses among several
        ("我的", 1, "我得"),  # a location beside the character: the nearest
        ("我的", 0, "我的"),  # no mistake
        ("我們", 1, None),  # the character is not there
    ],
)
def test_the_nearest_such_character_is_meant(source: str, location: int, expected: str | None) -> None:
    assert correct(source, [Mistake(None, location, "的", "得")]) == expected


def test_the_location_is_that_of_the_wrong_character_not_of_its_word() -> None:
    """象片 stands at 1 and at 4; the changed 片 of the first is at 2, of the second at 5."""
    assert correct("象片和象片", [Mistake(None, 5, "象片", "象牌")]) == "象片和象牌"
    assert correct("象片和象片", [Mistake(None, 2, "象片", "象牌")]) == "象牌和象片"


TEST = {"a.sgml": WANG, "TestInput.txt": INPUT, "TestTruth.txt": TRUTH}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.sgml": ESSAY.replace("</ESSAY>", "", 1)}, "a.sgml:1: expected </ESSAY>"),
        (
            {"a.sgml": WANG + WANG.replace("<LOCATION>1</LOCATION>\n", "", 1)},
            "a.sgml:14: expected a <MISTAKE> with a location",
        ),
        ({"a.sgml": "<SENTENCE>\n<TEXT></TEXT></SENTENCE>"}, "a.sgml:1: expected a <PASSAGE>, <TEXT> or <P>"),
        ({"a.xml": "<xml/>"}, "a.xml: expected elements <ESSAY> or <SENTENCE> or <DOC>, found none"),
        ({"a.sgml": WANG, "TestInput.txt": INPUT}, "TestTruth.txt: no such file"),
        ({**TEST, "TestTruth.txt": "A2-0011-1, 0\n"}, "TestInput.txt:2: expected an ID of TestTruth.txt"),
        ({**TEST, "TestInput.txt": "你好\n"}, "TestInput.txt:1: expected"),
        ({**TEST, "TestTruth.txt": "A2-0011-1, 0\nA2-0023-1, 5\n"}, "TestTruth.txt:2: expected"),
        ({**TEST, "TestTruth.txt": "A2-0011-1, 4, 友\n"}, "character '友' at place 4, its text has 3"),
    ],
)
def test_other_content_is_refused(files: dict[str, str], message: str, tmp_path: Path) -> None:
    check_refused("tokens.sighan2015", tmp_path, files, message)
