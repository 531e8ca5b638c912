"""A person's own file: columns by name, in any format, and one clear line for what is wrong."""

import csv
import json
import tempfile
from pathlib import Path

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from datasets import ClassLabel, Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlib.data import tables
from mtlib.data.tables import TableFile, read_table
from mtlib.errors import UserError

ROWS = [("a good film", "2"), ("NA", "10"), ("", "2"), ("a bad film", ""), ("dull, slow", "10")]


def write(folder, ending: str, rows=ROWS):
    table = pandas.DataFrame(rows, columns=["review", "stars"])
    path = folder / f"rows{ending}"
    if ending in (".csv", ".tsv"):
        table.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    elif ending == ".jsonl":
        stars = [
            int(label) if label else None for label in table.stars
        ]  # numbers and nothing, as JSON has them
        lines = [
            {"review": text or None, "stars": label}
            for text, label in zip(table.review, stars, strict=True)
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif ending == ".parquet":
        table.assign(stars=pandas.to_numeric(table.stars)).to_parquet(path)
    else:
        Dataset.from_pandas(table).save_to_disk(path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet", ""])
def test_every_format_gives_the_same_rows(tmp_path, ending):
    file = TableFile(write(tmp_path, ending), "review", "stars")
    dataset = file.dataset()
    assert dataset["text"][:] == ["a good film", "NA", "dull, slow"]
    assert dataset.features["label"].names == ["2", "10"]  # numbers by their size
    assert dataset["label"][:] == [0, 1, 1]
    assert file.left_out().endswith("rows left out: 1 without a text, 1 without a label.")


def test_pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,same\nx,y,yes\nz,,no\n")
    dataset = TableFile(path, ["a", "b"], "same").dataset()
    assert dataset.to_dict() == {"text": ["x"], "text_pair": ["y"], "label": [0]}


def test_a_saved_sets_numbers_have_their_names(tmp_path):
    rows = Dataset.from_dict({"text": ["x", "y"], "label": [1, 0]}).cast_column(
        "label", ClassLabel(names=["no", "yes"])
    )
    rows.save_to_disk(tmp_path / "set")
    assert read_table(tmp_path / "set", "text", "label").features["label"].names == ["no", "yes"]
    unlabelled = Dataset.from_dict(
        {"text": ["x", "y", "z"], "label": [1, -1, None]}, features=rows.features
    )
    unlabelled.save_to_disk(tmp_path / "unlabelled")
    assert TableFile(tmp_path / "unlabelled", "text", "label").dataset()["text"][:] == ["x"]
    Dataset.from_dict({"x": [1]}).save_to_disk(tmp_path / "both" / "train")
    with pytest.raises(UserError, match=r"both cannot be read: .*neither .*saved Dataset"):
        read_table(tmp_path / "both", "text", "label")


def test_quotation_marks_in_tsv_are_text_where_a_line_has_a_single_one(tmp_path):
    path = tmp_path / "a.tsv"
    for content, texts in (
        ('"say ""yes"" now"\t1\nno\t0\n', ['say "yes" now', "no"]),
        ('"Yes\t1\nno"\t0\n', ['"Yes', 'no"']),
    ):
        path.write_text(f"review\tstars\n{content}")
        assert read_table(path, "review", "stars")["text"][:] == texts
    path.write_text('"the" review\tstars\nyes\t1\nno\t0\n')
    assert read_table(path, '"the" review', "stars")["text"][:] == ["yes", "no"]


def test_lines_of_tsv_that_have_all_columns_are_rows_whatever_is_wanted_of_them(tmp_path):
    path = tmp_path / "a.tsv"
    lines = ["dull\tbad", '"Great he said\tbad', "fine\tgood", 'not so great"\tbad']
    path.write_text("\n".join(["review\tstars", *lines]))
    for label in ("stars", None):
        (rows,) = TableFile(path, "review", label)
        assert rows["text"].tolist() == [line.partition("\t")[0] for line in lines]


def test_rows_without_a_text_are_counted_in_a_file_with_one_column_too(tmp_path):
    for ending in (".csv", ".tsv"):
        path = tmp_path / f"a{ending}"
        path.write_text('text\nfine\n""\n\n"two\nlines"\n')
        file = TableFile(path, "text", None)
        (rows,) = file
        assert rows["text"].tolist() == ["fine", "two\nlines"] and file.dropped == {"text": 2}


def test_chunks_are_one_table(tmp_path, monkeypatch):
    monkeypatch.setattr("mtlib.data.tables._ROWS", 2)
    for ending in (".csv", ".jsonl", ".parquet", ""):
        file = TableFile(write(tmp_path, ending), "review", "stars")
        assert len(list(file)) == 3
        assert sum(map(len, file)) == 3
        assert file.dropped == {"text": 1, "label": 1}


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.tsv", 'text\tlabel\n"one\ntwo"\tp\nx\tn\n', ["one\ntwo", "x"]),
        ("a.tsv", 'text\tlabel\n"open\tn\n"close\tp\n', ['"open', '"close']),
        ("a.csv", 'text,label\n"open,n\n"close,p\n', ['"open', '"close']),
        ("a.csv", 'text,label\n"a,b\nc",p\nx,n\n', ["a,b\nc", "x"]),
        ("a.csv", 'text,label\n5" disk,p\n"a, b",n\n', ['5" disk', "a, b"]),
        ("a.csv", 'text,label\n"a\r\nb\rc",p\n', ["a\r\nb\rc"]),
        ("a.csv", "text,label\rleft,p\rx,n\r", ["left", "x"]),
        ("a.csv", "\ufeff text , label\r\n a\x00b , p\r\n", ["a\x00b"]),
        ("a.csv", f"text,label\n{'long ' * 40_000},p\n", [("long " * 40_000).strip()]),
        ("a.csv", "text,label\na\u2028b\x85c\x0cd,p\n", ["a\u2028b\x85c\x0cd"]),
        ("a.jsonl", '\ufeff{"text": "a\u2028b", "label": 1}\n', ["a\u2028b"]),
    ],
)
def test_no_row_is_cut_and_none_swallows_another(tmp_path, name, content, texts):
    (tmp_path / name).write_bytes(content.encode())
    file = TableFile(tmp_path / name, "text", "label")
    assert file.dataset()["text"][:] == texts and file.left_out() == ""


CELLS = st.text(st.sampled_from('a,"\n\r\t é\u2028\x00') | st.characters(codec="utf-8"), max_size=9)


@settings(max_examples=20, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read_back(texts, line_end):
    """With text behind a letter, since blanks at the ends do not count, and two labels."""
    wanted = [f"<{text}>" for text in ['x, "y"', "z", *texts]]
    labels = ["p", "n", *["p"] * len(texts)]
    table = pandas.DataFrame({"text": wanted, "label": labels})
    with tempfile.TemporaryDirectory() as folder:
        for ending in (".csv", ".jsonl", ".parquet"):
            path = Path(folder, f"rows{ending}")
            if ending == ".csv":
                with open(path, "w", encoding="utf-8", newline="") as file:
                    writer = csv.writer(file, lineterminator=line_end, quoting=csv.QUOTE_ALL)
                    writer.writerows([["text", "label"], *zip(wanted, labels, strict=True)])
            elif ending == ".jsonl":
                table.to_json(path, orient="records", lines=True, force_ascii=False)
            else:
                table.to_parquet(path)
            (rows,) = TableFile(path, "text", "label")
            assert rows["text"].tolist() == wanted


@pytest.mark.parametrize("kind", ["Int64", "float64", "object"])
def test_integers_with_gaps_stay_integers(tmp_path, kind):
    label = pandas.Series([None, 0, 1], dtype=kind)
    pandas.DataFrame({"text": list("abc"), "label": label}).to_parquet(tmp_path / "a.parquet")
    file = TableFile(tmp_path / "a.parquet", "text", "label")
    assert file.dataset().features["label"].names == ["0", "1"] and file.dropped["label"] == 1


def test_cells_and_columns_of_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    texts = pyarrow.array(["café".encode(), b"x"], pyarrow.binary())
    pyarrow.parquet.write_table(pyarrow.table({"a.b": texts, "1": [True, False]}), path)
    data = read_table(path, "a.b", "1")
    assert data["text"][:] == ["café", "x"] and data.features["label"].names == ["False", "True"]
    months = pandas.period_range("2024-01", periods=2, freq="M")
    for label, kind in ((months, "period"), ([["x"], ["y"]], "list"), ([{"a": 1}] * 2, "dict")):
        pandas.DataFrame({"text": ["a", "b"], "label": label}).to_parquet(path)
        with pytest.raises(UserError, match=rf"column 'label'.*{kind}"):
            read_table(path, "text", "label")
    pandas.DataFrame({"label": [1, 2]}, index=pandas.Index(["a", "b"], name="text")).to_parquet(
        path
    )
    assert read_table(path, "text", "label")["text"][:] == ["a", "b"]


def test_a_column_may_appear_late(tmp_path, monkeypatch):
    monkeypatch.setattr("mtlib.data.tables._ROWS", 2)
    lines = ['{"text": "a"}'] * 5 + ['{"text": "b", "label": 12345678901234567890}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    file = TableFile(tmp_path / "a.jsonl", "text", "label")
    assert file.dataset().features["label"].names == ["12345678901234567890"]
    assert file.dropped["label"] == 5


def test_what_is_left_out_is_that_of_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 2)
    (tmp_path / "a.csv").write_text("text,label\na,1\nb,2\nc,1\n,2\nd,\n")
    file = TableFile(tmp_path / "a.csv", "text", "label")
    assert sum(map(len, file)) == 3
    next(iter(file))  # and then no more, as who has all examples
    assert file.left_out().endswith("rows left out: 1 without a text, 1 without a label.")


def test_labels_that_look_alike_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,bad\nb,bad\u200b\n")
    with pytest.raises(UserError, match="look alike and are two"):
        read_table(tmp_path / "a.csv", "text", "label")


def test_what_is_left_out_is_said(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,1\n,2\n")
    with pytest.warns(UserWarning, match="rows left out: 1 without a text"):
        read_table(tmp_path / "a.csv", "text", "label")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\nx,1\n", "no column 'review'; expected one of text, label"),
        ("a.csv", b"review\tstars\nx\t1\n", "Are its columns separated by another character"),
        ("a.csv", b"review;stars\nx, y;1\n", "Are its columns separated by another character"),
        (
            "a.csv",
            b"review,stars\nx,1\nz,1,2\n",
            r"line 3 has 3 values, .* 2 columns\. Expected UTF-8, with values separated by commas",
        ),
        ("a.csv", b"review,stars\nx,1,2\n", "line 2 has 3 values"),
        ("a.csv", b"", "cannot be read: it is empty"),
        (
            "a.csv",
            "review,stars\nschön,1\n".encode("latin-1"),
            "line 2 has the byte 0xf6, .*Expected UTF-8",
        ),
        ("a.csv", "review,stars\n".encode("utf-16"), "it is in UTF-16"),
        ("a.csv", b"review,stars\nx\n", "line 2 has 1 value, and the first line names 2 columns"),
        ("a.csv", b'review,stars\nx,1\n"y\n', "line 3 has a quotation mark that nothing closes"),
        ("a.csv", b'review,stars\n"a, b",1\n"c" d,2\n', "line 3 has text behind a quotation mark"),
        ("a.csv", b"review,stars\nx\ry,1\n", "line 2 has 1 value"),
        ("a.csv", b"review,review,stars\n", "has 2 columns called 'review'"),
        (
            "a.jsonl",
            b'{"review": "x", "stars": [1]}',
            r"column 'stars', line 1: \[1\] is of type list",
        ),
        ("a.jsonl", b'{"stars": 1}\n[]\n', r"line 2 is not a JSON object, but \[\]"),
        ("a.jsonl", b'{"stars": 1}\n\n{"stars": 2}\n', "no column 'review'; expected one of stars"),
        ("a.jsonl", b"review,stars\nx,1\n", "a JSON object in each line"),
        ("a.parquet", b"review,stars\nx,1\n", "Expected Parquet"),
        ("a.xlsx", b"PK", "ends in '.xlsx'; expected one of .csv"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as raised:
        read_table(tmp_path / name, "review", "stars")
    assert "\n" not in str(raised.value)


def test_further_columns_are_texts(tmp_path):
    (tmp_path / "a.csv").write_text("review,stars,id\nfine,good,7\ndull,bad,\n")
    rows = TableFile(tmp_path / "a.csv", "review", "stars", ["id"]).dataset()
    assert rows[:] == {"text": ["fine", "dull"], "label": [1, 0], "id": ["7", ""]}


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv", "review", "stars")
    with pytest.raises(UserError, match="expected one column of texts, or two"):
        TableFile(tmp_path, ["a", "b", "c"], "stars")
    for also in (["review"], ["id", "id"]):
        with pytest.raises(UserError, match=f"column {also[0]} is read already"):
            TableFile(tmp_path, "review", None, also)
    with pytest.raises(UserError, match=r"a column text is made of review; rename yours"):
        TableFile(tmp_path, "review", None, ["text"])
    with pytest.raises(UserError, match="expected different columns"):
        TableFile(tmp_path, "a", "a")
