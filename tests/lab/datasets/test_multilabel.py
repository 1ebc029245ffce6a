"""The publishers' forms of multi-label data sets."""

from pathlib import Path

import pytest

from tests.lab.datasets.folders import check_read, check_refused, jsonl, read, write

# --- EUR-LEX

LAWS = [
    {"text": "Regulation A", "labels": ["100163", "100168"], "data_type": "train"},
    {"text": "Directive B", "labels": [], "data_type": "dev"},
    {"text": "Decision C", "labels": ["100163"], "data_type": "test"},
    {"text": "Regulation D", "labels": ["100212"], "data_type": "train"},
]


@pytest.mark.parametrize("name", ["eurlex.jsonl", "eurlex.jsonl.gz"])
def test_eurlex_has_all_splits_in_one_file(name: str, tmp_path: Path) -> None:
    expected = {
        split: [{"text": law["text"], "labels": law["labels"]} for law in LAWS if law["data_type"] == split]
        for split in ("train", "dev", "test")
    }
    check_read("multilabel.eurlex", tmp_path, {name: jsonl(*LAWS)}, expected)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "E", "labels": []}, 'jsonl:5: expected "data_type" to be train, dev or test, got None'),
        ({"text": "E", "labels": [], "data_type": "validation"}, "got 'validation'"),
        ({"text": "E", "data_type": "train"}, "eurlex.jsonl:5: .*labels missing"),
        ({"text": "E", "labels": "100163", "data_type": "train"}, "eurlex.jsonl:5: labels must be a list"),
    ],
)
def test_other_lines_of_eurlex_are_refused(row: dict[str, object], message: str, tmp_path: Path) -> None:
    check_refused("multilabel.eurlex", tmp_path, {"eurlex.jsonl": jsonl(*LAWS, row)}, message)


# --- RCV1

TRAIN = ".I 2286\n.W\nrecov recov\nexpect\n\n.I 2287\n.W\nuruguay\n"
TOPICS = "MCAT 2286 1\nECAT 2286 1\nC24 2287 1\nECAT 2288 1\n"


def rcv1(train: str = TRAIN, topics: str = TOPICS) -> dict[str, str]:
    return {"lyrl2004_tokens_train.dat": train, "rcv1-v2.topics.qrels": topics}


def test_rcv1_has_its_topics_in_another_file(tmp_path: Path) -> None:
    files = {**rcv1(), "lyrl2004_tokens_test_pt1.dat.gz": ".I 2288\n.W\nargentin\n"}
    expected = {
        "train": [
            {"text": "recov recov expect", "labels": ["ECAT", "MCAT"]},
            {"text": "uruguay", "labels": ["C24"]},
        ],
        "test": [{"text": "argentin", "labels": ["ECAT"]}],
    }
    check_read("multilabel.rcv1", tmp_path, files, expected)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (rcv1(TRAIN + ".I 9\n.W\nb\n"), "train.dat:9: story 9 has no topic in rcv1-v2.topics.qrels"),
        (rcv1("\na b\n"), "train.dat:2: expected \".I\" and the number of a story first, got 'a b'"),
        (rcv1(topics=TOPICS + "C24 2\n"), "qrels:5: expected \"TOPIC story 1\", got 'C24 2'"),
        ({"lyrl2004_tokens_train.dat": TRAIN}, r"expected rcv1-v2.topics.qrels \(or .gz\) beside lyrl2004"),
    ],
)
def test_other_content_of_rcv1_is_refused(files: dict[str, str], message: str, tmp_path: Path) -> None:
    check_refused("multilabel.rcv1", tmp_path, files, message)


# --- Reuters-21578


def story(marked: str, split: str, topics: str, text: str) -> str:
    """Four lines and those of the text."""
    tags = "".join(f"<D>{topic}</D>" for topic in topics.split())
    return (
        f'<REUTERS TOPICS="{marked}" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" OLDID="5544" NEWID="1">\n'
        f"<TOPICS>{tags}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n{text}\n</REUTERS>\n"
    )


def text(title: str, body: str) -> str:
    return f"<TEXT><TITLE>{title}</TITLE><BODY>{body}</BODY></TEXT>"


BODY = """<TEXT>&#2;
<TITLE>GRAIN &amp; CO</TITLE>
<DATELINE>    CHICAGO, March 1 - </DATELINE><BODY>Up  5
pct &lt;GC>.
 Reuter
&#3;</BODY></TEXT>"""
FIRST = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n' + story("YES", "TRAIN", "wheat corn rye", BODY)
SECOND = (
    story("YES", "TRAIN", "rye", text("RYE", "A topic that is never tested."))
    + story("NO", "TRAIN", "corn", text("NO", "Not marked."))
    + story("YES", "NOT-USED", "corn", text("NO", "Not used."))
    + story("YES", "TEST", "corn wheat", '<TEXT TYPE="UNPROC">&#2;\nCAF\xc9 PRICES\n&#3;</TEXT>')
    + story("YES", "TEST", "wheat", '<TEXT TYPE="BRIEF">\n<TITLE>WHEAT UP</TITLE>Blah</TEXT>')
    + story("YES", "TEST", "", text("NONE", "No topic."))
)


def test_reuters_in_the_modapte_split_with_the_topics_of_both_parts(tmp_path: Path) -> None:
    assert read("multilabel.reuters21578", tmp_path) is None
    write(tmp_path, {"reut2-000.sgm": FIRST, "reut2-001.sgm": SECOND}, encoding="latin-1")
    assert read("multilabel.reuters21578", tmp_path) == {
        "train": [{"text": "GRAIN & CO Up 5 pct <GC>.", "labels": ["corn", "wheat"]}],
        "test": [
            {"text": "CAFÉ PRICES", "labels": ["corn", "wheat"]},
            {"text": "WHEAT UP", "labels": ["wheat"]},
        ],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (FIRST + "\n<REUTERS TOPICS=", "sgm:13: expected </REUTERS> before the next element or the end"),
        (FIRST.replace("</REUTERS>", "") + FIRST, "sgm:2: expected </REUTERS>"),
        (FIRST + "<REUTERS>\n</REUTERS>", "sgm:12: expected <REUTERS> .* attributes TOPICS and LEWISSPLIT"),
        ("nothing", "reut2-000.sgm: expected elements <REUTERS>, found none"),
    ],
)
def test_other_content_of_reuters_is_refused(content: str, message: str, tmp_path: Path) -> None:
    check_refused("multilabel.reuters21578", tmp_path, {"reut2-000.sgm": content}, message)
