import csv
import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.lab.kinds import get_kind
from sparring.lab.readers.files import (
    RawTable,
    as_list,
    check_sample,
    form_of,
    is_written_list,
    read_lines,
    read_samples,
    read_table,
)
from sparring.lab.task import DataError
from sparring.lab.untrusted import read_text

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
NAMES = [
    ("a.csv", "csv"),
    ("A.TSV", "tsv"),
    ("a.tab.gz", "tsv"),
    ("a.b.jsonl", "jsonl"),
    ("a.json.GZ", "jsonl"),
    ("a.ndjson", "jsonl"),
]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(table: RawTable) -> list[tuple[int, list[str]]]:
    return [(number, list(row.values())) for number, row in table.rows]


def refused(path: Path, after: str, message: str) -> None:
    """The whole message: the file, what stands after its name, and the words."""
    with pytest.raises(DataError, match=f"^{re.escape(f'{path}{after} {message}')}") as error:
        read_table(path)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "form"), [*NAMES, ("a.txt", None), ("a.xlsx", None), ("csv", None), ("a.gz", None)]
)
def test_form_by_name(name: str, form: str | None) -> None:
    assert form_of(Path(name)) == form


# --- text


def test_bom_crlf_and_gzip_leave_no_trace(tmp_path: Path) -> None:
    for path, pack in ((tmp_path / "a.csv", bytes), (tmp_path / "a.csv.gz", gzip.compress)):
        table = read_table(write(path, pack(b"\xef\xbb\xbftext,label\r\nh\xc3\xa9,1\r\n\r\nb,2\r\n")))
        assert table.columns == ["text", "label"]
        assert rows(table) == [(2, ["hé", "1"]), (4, ["b", "2"])]


def test_lines_end_at_newline_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\u2028b\x0bc\r\nd\n")
    lines = [(f"{path}:1", "a\u2028b\x0bc"), (f"{path}:2", "d"), (f"{path}:3", "")]
    assert list(read_lines(path)) == lines
    assert list(read_lines(path, blank=False)) == lines[:2]


def test_wrong_bytes_are_named(tmp_path: Path) -> None:
    refused(
        write(tmp_path / "a.csv", b"text,label\na,1\ncaf\xe9,2\n"),
        ":3:",
        "expected UTF-8, found the byte 0xe9; save",
    )
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        refused(
            write(tmp_path / "a.csv", "text,label\n".encode(encoding)), ":", "expected UTF-8, found UTF-16"
        )
    refused(write(tmp_path / "a.csv.gz", b"text,label\n"), ":", "Not a gzipped file")
    packed = gzip.compress(b"text,label\n" * 100)
    refused(write(tmp_path / "a.csv.gz", packed[:-12]), ":", "Compressed file ended")
    refused(
        write(tmp_path / "a.csv.gz", packed[:12] + b"\xff\xff\xff" + packed[15:]),
        ":",
        "Error -3 while decompressing",
    )


def test_no_such_file(tmp_path: Path) -> None:
    refused(tmp_path / "a.csv", ":", "no such file")
    refused(write(tmp_path / "a.xlsx", "x"), ":", "expected a .jsonl, .json, .csv or .tsv file (.gz too)")


def test_another_encoding_may_be_asked_for(tmp_path: Path) -> None:
    assert read_text(write(tmp_path / "a.txt", "né".encode("utf-16")), "utf-16") == "né"


# --- tables


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells=st.lists(st.tuples(TEXT, TEXT.filter(bool), TEXT), min_size=1, max_size=6))
def test_what_csv_writes_reads_back(tmp_path: Path, name: str, cells: list[tuple[str, str, str]]) -> None:
    """Tabs are taken out for .tsv: there a line end and a tab in one cell can also be read as two rows."""
    if name == "a.tsv":
        cells = [tuple(cell.replace("\t", " ") for cell in row) for row in cells]
    path = tmp_path / name
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t" if name == "a.tsv" else ",").writerows(
            [("one", "two", "three"), *cells]
        )
    table = read_table(path)
    assert [tuple(row.values()) for _, row in table.rows] == cells
    begins = [
        2 + sum(1 + sum(cell.count("\n") for cell in row) for row in cells[:i]) for i in range(len(cells))
    ]
    assert [number for number, _ in table.rows] == begins


def test_a_record_is_named_by_the_line_it_begins_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"one\n\ntwo",1\n"x\r\ny",2\nbad\n')
    refused(path, ":7:", "expected 2 columns (text, label), got 1")
    refused(
        write(path, 'text,label\n"one\ntwo",1\n"never closed,2\n'),
        ":4:",
        "not a well-formed table: unexpected end of data",
    )
    refused(
        write(path, 'text,label\na,1\n"b" c,2\n'), ":3:", "not a well-formed table: ',' expected after '\"'"
    )
    refused(
        write(path, "text,label\na\rb,1\n"),
        ":2:",
        "not a well-formed table: new-line character seen in unquoted field",
    )
    refused(write(path, "\ntext,text\na,1\n"), ":2:", "two columns have the same name: text, text")


def test_lone_carriage_returns_end_lines_where_nothing_else_does(tmp_path: Path) -> None:
    assert rows(read_table(write(tmp_path / "a.csv", "text,label\ra,1\rb,2"))) == [
        (2, ["a", "1"]),
        (3, ["b", "2"]),
    ]


@pytest.mark.parametrize(
    ("header", "separator", "notes"),
    [
        ("text,label", ",", ()),
        ("text;label", ";", ('a.csv: columns are separated by ";"',)),
        ("text\tlabel", "\t", ("a.csv: columns are separated by tabs",)),
        ('"a;b;c",label', ",", ()),
    ],
)
def test_separator_of_a_csv_by_its_first_line(
    tmp_path: Path, header: str, separator: str, notes: tuple[str, ...]
) -> None:
    table = read_table(
        write(
            tmp_path / "a.csv",
            f"{header}\n1,5;3{separator}x\n" if separator == "\t" else f'{header}\n"1,5;3"{separator}x\n',
        )
    )
    assert rows(table) == [(2, ["1,5;3", "x"])]
    assert table.notes == notes


def test_columns_without_a_name_are_left_out_and_said(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.csv", ",text,label,\n0,a,x,\n1,b,y,\n"))
    assert table.columns == ["text", "label"]
    assert rows(table) == [(2, ["a", "x"]), (3, ["b", "y"])]
    assert table.notes == ("a.csv: 2 of 4 columns have no name and are left out",)


def test_very_long_cells(tmp_path: Path) -> None:
    text = "x" * 300_000
    assert rows(read_table(write(tmp_path / "a.csv", f"text,label\n{text},1\n"))) == [(2, [text, "1"])]


def test_quotes_in_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    quoted = read_table(write(path, 'text\tlabel\n"say ""hi""\nnow"\t1\nb\t2\n'))
    assert rows(quoted) == [(2, ['say "hi"\nnow', "1"]), (4, ["b", "2"])]
    plain = read_table(write(path, 'text\tlabel\n"good" film\t1\n"bad\t0\n'))
    assert rows(plain) == [(2, ['"good" film', "1"]), (3, ['"bad', "0"])]
    joined = read_table(
        write(path, 'text\tlabel\n"open\t1\nclose"\t0\n')
    )  # read with quotes this were one row
    assert rows(joined) == [(2, ['"open', "1"]), (3, ['close"', "0"])]
    refused(write(path, "text\tlabel\na\t1\nb\n"), ":3:", "expected 2 columns (text, label), got 1")


# --- JSON


def test_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '{"text": "a", "n": 1}\r\n\n{"text": "b", "m": [2]}')
    table = read_table(path)
    assert table.columns == ["text", "n", "m"]
    assert table.rows == [(1, {"text": "a", "n": 1}), (3, {"text": "b", "m": [2]})]
    assert table.place(3) == f"{path}:3"
    refused(
        write(path, '{"a": 1}\n{"a": }\n'),
        ":2:",
        "expected one JSON object a line: Expecting value at column 7",
    )
    refused(write(path, '{"a": 1}\n3\n'), ":2:", "expected a JSON object, got int")


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_json_array(tmp_path: Path, name: str) -> None:
    content = json.dumps([{"text": "a"}, {"text": "b", "n": 1}], indent=2).encode()
    path = write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    table = read_table(path)
    assert table.columns == ["text", "n"]
    assert table.rows == [(1, {"text": "a"}), (2, {"text": "b", "n": 1})]
    assert table.place(2) == f"{path}, row 2"


def test_json_of_another_shape(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    refused(write(path, '[{"a": 1}, 3]'), ", row 2:", "expected a JSON object, got int")
    refused(
        write(path, '[{"a": 1},\n{"a" 2}]'), ":2:", "not a JSON array: Expecting ':' delimiter at column 6"
    )
    rows = [{"text": "a"}]
    for indent in (None, 2):
        expected = "expected an array of objects, or one object a line; got one object with the keys"
        refused(
            write(path, json.dumps({"data": rows}, indent=indent)), ":", f"{expected} data. Keep the array"
        )
        refused(
            write(path, json.dumps({"train": rows, "dev": rows}, indent=indent)),
            ":",
            f"{expected} train, dev.",
        )


# --- cells and samples


def test_lists_in_cells() -> None:
    assert as_list('["a", 1]', "|") == ["a", 1]
    assert as_list("['a', \"it's\"]", None) == ["a", "it's"]
    assert as_list("[a, b]", ",") == ["[a", "b]"]  # not a list as anybody writes one
    assert as_list(" a | |b ", "|") == ["a", "b"]
    assert as_list("a  b\tc", " ") == ["a", "b", "c"]
    assert as_list("a|b", None) == ["a|b"]
    assert as_list(None, "|") == as_list(float("nan"), "|") == as_list(" ", "|") == []
    assert [is_written_list(value) for value in ("['a']", "[]", "[a]", "a", ["a"])] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_samples_of_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        '{"tokens": ["a", 1], "tags": ["O", "O"]}\n{"tokens": ["a"], "tags": ["O", "O"]}\n',
    )
    with pytest.raises(
        DataError, match=re.escape(f"{path}:2: tokens and tags must have the same length, got 1 and 2")
    ):
        read_samples(path, get_kind("token"))
    assert read_samples(write(path, '{"text": 3, "label": 0, "more": 1}'), get_kind("multi-class")) == [
        {"text": "3", "label": "0"}
    ]


def test_samples_that_do_not_fit() -> None:
    with pytest.raises(
        DataError, match=r"^p:1: a pair sample needs text, text_b, label; text_b missing, got text, label$"
    ):
        check_sample("pair", {"text": "a", "label": "b"}, "p:1")
    with pytest.raises(DataError, match=r"^p:1: labels must be a list of strings, got 'a'$"):
        check_sample("multi-label", {"text": "a", "labels": "a"}, "p:1")
    with pytest.raises(DataError, match=r"^p:1: label must be a string, got \['a'\]$"):
        check_sample("multi-class", {"text": "a", "label": ["a"]}, "p:1")
