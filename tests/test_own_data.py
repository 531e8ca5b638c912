"""The commands `suspects` and `train`, as a new user gives them."""

import csv
import json

import pandas
import pytest

from mtlib.cli.own_data import read_words
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR, MINI_MODEL_DIR
from tests.conftest import call
from tests.own_data.test_debiasing import rows

REVIEWS = DATA_DIR / "example" / "reviews.csv"
COLUMNS = ("--text", "review", "--label", "opinion")
BRANDS = {"brask", "zorvik", "vesper", "harlo", "ondine", "malden", "quenby", "tolmar", "pellow"}


def test_suspects_lists_the_brands_first_and_writes_a_list_to_mark(tmp_path):
    output = call("suspects", REVIEWS, *COLUMNS, "--top", 3, "--out", tmp_path / "words.csv")
    assert "600 rows; 17 of 124 tested predict a label (z above 4.04)" in output
    assert "mixed (33% of the rows): the first 3" in output and "counterexample" in output
    table = pandas.read_csv(tmp_path / "words.csv")
    assert {*table.word} == BRANDS and table["mask"].isna().all()
    with pytest.raises(UserError, match=r"words\.csv, which is there already"):
        call("suspects", REVIEWS, *COLUMNS, "--out", tmp_path / "words.csv")
    with pytest.raises(UserError, match=r"names no word; .* an x in mask"):
        read_words(tmp_path / "words.csv")
    table["mask"] = ["x", "yes", "1", "0", "no", "0.0", *[""] * 3]
    table.to_csv(tmp_path / "words.csv", index=False)
    assert read_words(tmp_path / "words.csv") == table.word[:3].tolist()


def test_suspects_in_pairs_says_where(tmp_path):
    with open(tmp_path / "pairs.jsonl", "w") as file:
        for i in range(80):
            row = {
                "premise": "a man sleeps",
                "hypothesis": ("nobody sleeps", "a man rests")[i % 2],
                "label": i % 2,
            }
            file.write(json.dumps(row) + "\n")
    options = "--text premise --text hypothesis --label label --nouns-first --kinds word"
    output = call("suspects", tmp_path / "pairs.jsonl", *options.split())
    (nobody,) = (line for line in output.splitlines() if "nobody " in line.split("a man")[0])
    assert "PRON" in nobody and "text_pair" in nobody
    assert "a man sleeps / nobody sleeps" in nobody
    (sleeps,) = (line for line in output.splitlines() if "│ sleeps" in line)
    assert "text_pair, both" in sleeps  # named once, with all places


def test_train_from_csv_to_a_table(model, tmp_path):
    for name, agreeing in (("rows.csv", 0.9), ("new.csv", 0.0)):
        table = rows(60, agreeing).to_pandas()
        table.assign(label=table.label.map(["bad", "good"].__getitem__)).to_csv(
            tmp_path / name, index=False
        )
    (tmp_path / "words.txt").write_text("Film\n\nplot\n")
    files = ["--mask-words", tmp_path / "words.txt", "--test", tmp_path / "new.csv"]
    files += ["--model", model, "--out", tmp_path / "model", "--max-length", 10]
    options = "--text text --label label --epochs 1 --method mask_tuning --set alpha=0.2"
    with pytest.warns(UserWarning, match="texts were cut to 10 tokens"):
        output = call("train", tmp_path / "rows.csv", *files, *options.split())
    assert "60 rows; labels: bad, good." in output
    assert "per cent, with 95 % intervals" in output
    assert "conflicting" in output
    assert "fine_tuning" in output
    words = list(csv.DictReader((tmp_path / "model" / "words.csv").open()))
    assert {(line["word"], line["label"]) for line in words} == {("film", "good"), ("plot", "bad")}
    assert "how much each model leans" in output and "Compare the conflicting rows." in output
    assert '"alpha": 0.2' in (tmp_path / "model" / "README.md").read_text()
    answers = tmp_path / "answers.csv"
    new = pandas.read_csv(tmp_path / "new.csv")
    new["id"] = [f"0{number}" for number in range(59)] + [None]
    new.to_csv(tmp_path / "later.csv", index=False)
    columns = ["--text", "text", "--keep", "id"]
    output = call("predict", tmp_path / "model", tmp_path / "later.csv", *columns, "--out", answers)
    assert "60 texts" in output
    table = pandas.read_csv(answers, dtype={"id": str})
    assert [*table] == ["text", "id", "answer", "p(bad)", "p(good)"]
    assert table["id"].equals(new["id"])
    texts = new["text"]
    assert table["text"].tolist() == texts.str.strip().tolist()
    assert (table["p(bad)"] + table["p(good)"]).to_numpy() == pytest.approx(1)
    assert ((table["p(good)"] > 0.5) == (table["answer"] == "good")).all()


def test_a_list_without_marks_is_refused_before_anything_is_made(tmp_path):
    (tmp_path / "words.csv").write_text("word,mask\nbrask,\n")
    given = ("--mask-words", tmp_path / "words.csv", "--out", tmp_path / "model")
    with pytest.raises(UserError, match="names no word"):
        call("train", REVIEWS, *COLUMNS, *given)
    assert not (tmp_path / "model").exists()


def test_a_pretrained_model_has_no_answers_yet():
    file = ["data/example/conflicting.csv", "--text", "review"]
    with pytest.raises(UserError, match="mini has no trained classifier; give a folder"):
        call("predict", MINI_MODEL_DIR, *file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("word,Mask\nacme,x\ngood,\n", ["acme"]),
        ('"word, or phrase",word,mask\nx,acme,x\n', ["acme"]),
        ("\ufeff Word ; MASK \r\nacme;X\r\ngood;-\r\n", ["acme"]),
        ("word\tmask\nacme\tTRUE\ngood\tnan\nbad\tFalse\n", ["acme"]),
        ("word,mask\na,✔️\nb,Ｘ\nc,X\u200b\nd,\n", ["a", "b", "c"]),
        ("word,mask\na,1.0\nb,NaN\nc,<NA>\nd,0.0\ne,None\nf,N/A\n", ["a"]),
        ('word,mask,example\nacme,x,"a\u2028b\nc"\ngood,,a\x85b\x0cc\n', ["acme"]),
        (f"word,mask,example\nacme,x,{'long ' * 40_000}\n", ["acme"]),
        ('word,mask,example\nacme,x,"a\rb, c"\ngood,,a\rb\n', ["acme"]),
        ("word,mask\nacme,x\ngood\n", ["acme"]),
        ("word,where,rows,label,share,base_rate,z\nacme,text,9,p,1,0.5,9\n", ["acme"]),
    ],
)
def test_marks_are_read_as_they_were_made(tmp_path, content, words):
    (tmp_path / "words.csv").write_bytes(content.encode())
    assert read_words(tmp_path / "words.csv") == words


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words", b"", "names no word"),
        ("words", b"word,mask\n", "names no word"),
        ("words.csv", b"Wort,Maske\nfilm,x\n", r"names no word.*the columns word and mask"),
        ("words.txt", "café".encode("latin-1"), r"words\.txt is not in UTF-8"),
        ("words.csv", b"word,masks\nacme,x\n", "'masks' may be it"),
        ("words.csv", b"word,mask\nacme,maybe\n", "row 2 has the mark 'maybe'"),
        ("words.csv", b"word,mask\nacme,x\n,x\n", "row 3 is marked, but its word is missing"),
        ("words.csv", b"word,mask,Mask\nacme,x,\n", "has two columns of one name"),
        ("words.csv", b"word,mask\nacme,x,9\n", "a row with more values"),
        ("words.csv", b'word,mask\n"acme,x\n', "cannot be read"),
    ],
)
def test_marks_that_cannot_be_told_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_words(tmp_path / name)


def test_phrases_end_with_their_line(tmp_path):
    (tmp_path / "words.txt").write_bytes("\ufeffword\r\na\u2028b\r\n\r\nx, y\r\n".encode())
    assert read_words(tmp_path / "words.txt") == ["word", "a\u2028b", "x, y"]
