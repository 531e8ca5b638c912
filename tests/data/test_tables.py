"""A person's own file: columns by name, in any of the formats, and one clear line for what is wrong."""

import json

import pandas
import pytest
from datasets import ClassLabel, Dataset

from mtlib.data.tables import TableFile, read_table
from mtlib.errors import UserError

ROWS = [("a good film", "2"), ("NA", "10"), ("", "2"), ("a bad film", ""), ("dull, slow", "10")]


def write(folder, ending: str, rows=ROWS):
    table = pandas.DataFrame(rows, columns=["review", "stars"])
    path = folder / f"rows{ending}"
    if ending in (".csv", ".tsv"):
        table.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    elif ending == ".jsonl":
        stars = [int(label) if label else None for label in table.stars]  # numbers and nothing, as JSON has them
        lines = [{"review": text or None, "stars": label} for text, label in zip(table.review, stars, strict=True)]
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
    assert file.told().endswith("rows left out: 1 without a text, 1 without a label.")


def test_pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,same\nx,y,yes\nz,,no\n")
    dataset = read_table(path, ["a", "b"], "same")
    assert dataset.to_dict() == {"text": ["x"], "text_pair": ["y"], "label": [0]}


def test_a_saved_sets_numbers_have_their_names(tmp_path):
    rows = Dataset.from_dict({"text": ["x", "y"], "label": [1, 0]}).cast_column(
        "label", ClassLabel(names=["no", "yes"])
    )
    rows.save_to_disk(tmp_path / "set")
    assert read_table(tmp_path / "set", "text", "label").features["label"].names == ["no", "yes"]
    unlabelled = Dataset.from_dict({"text": ["x", "y", "z"], "label": [1, -1, None]}, features=rows.features)
    unlabelled.save_to_disk(tmp_path / "unlabelled")
    assert read_table(tmp_path / "unlabelled", "text", "label")["text"][:] == ["x"]
    Dataset.from_dict({"x": [1]}).save_to_disk(tmp_path / "both" / "train")
    with pytest.raises(UserError, match=r"both cannot be read: .*neither .*saved Dataset"):
        read_table(tmp_path / "both", "text", "label")


def test_quotation_marks_in_tsv_are_text_where_a_line_has_a_single_one(tmp_path):
    path = tmp_path / "a.tsv"
    for content, texts in (
        ('"say ""yes"" now"\t1\nno\t0\n', ['say "yes" now', "no"]), ('"Yes\t1\nno"\t0\n', ['"Yes', 'no"'])
    ):  # fmt: skip
        path.write_text(f"review\tstars\n{content}")
        assert read_table(path, "review", "stars")["text"][:] == texts


def test_chunks_are_one_table(tmp_path, monkeypatch):
    monkeypatch.setattr("mtlib.data.tables._ROWS", 2)
    for ending in (".csv", ".jsonl", ".parquet", ""):
        file = TableFile(write(tmp_path, ending), "review", "stars")
        assert len(list(file)) == 3 and sum(map(len, file)) == 3 and file.dropped == {"text": 1, "label": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\nx,1\n", "no column 'review'; expected one of text, label"),
        ("a.csv", b"review\tstars\nx\t1\n", "Are its columns separated by another sign"),
        ("a.csv", b"review,stars\nx,1\nz,1,2\n", r"saw 3\. Expected UTF-8, with values separated by commas"),
        ("a.csv", b"review,stars\nx,1,2\n", "a line has more values than there are columns"),
        ("a.csv", b"", "cannot be read: No columns"),
        ("a.csv", "review,stars\nschön,1\n".encode("latin-1"), "0xf6 .*Expected UTF-8"),
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


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv", "review", "stars")
    with pytest.raises(UserError, match="expected one column of texts, or two"):
        TableFile(tmp_path, ["a", "b", "c"], "stars")
    with pytest.raises(UserError, match="expected different columns"):
        TableFile(tmp_path, "a", "a")
