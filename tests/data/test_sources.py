"""The loaders on small made-up files in each release layout, quirks included."""

import csv
import hashlib
import io
import json
import re
from pathlib import Path

import datasets
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlib.data import releases as releases_module
from mtlib.data import sources
from mtlib.data.registry import SETS, Columns, Copy, DataSet, Hub, ReleaseFile
from mtlib.data.releases import read_file, verify
from mtlib.data.sources import is_testbed, load, load_described, source_type
from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE, TESTBED_DIR
from tests.data.made_up_releases import (
    MADE_UP,
    expect,
    jsonl,
    on_the_hub,
    real_sets,
    rows_of,
    tsv,
    write,
    write_releases,
)


@pytest.fixture
def releases(tmp_path, monkeypatch) -> Path:
    return write_releases(tmp_path, monkeypatch)


# --- layouts and quirks ---


LAYOUTS = yaml.safe_load(Path(__file__).with_name("releases_read.yaml").read_text())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_their_quirks(releases, layout):
    set_name, _, splits = layout.partition(" ")
    assert [*map(list, rows_of(load(set_name, str(releases), splits or None)))] == LAYOUTS[layout]


def test_byte_order_mark_and_crlf_are_tolerated_everywhere(releases):
    plain = {name: rows_of(load(name, str(releases))) for name in real_sets()}
    for path, content in MADE_UP.items():
        if b"\r\n" not in content and b"good plot" not in content:
            content = content.replace(b"\n", b"\r\n")
        write(releases, path, b"\xef\xbb\xbf" + content)
    assert {name: rows_of(load(name, str(releases))) for name in real_sets()} == plain


def test_an_unpacked_release_is_a_source_by_itself(releases):
    assert rows_of(load("sst2", str(releases / "sst2"))) == rows_of(load("sst2", str(releases)))


FORMATS = {
    "jsonl": lambda texts: jsonl(*({"text": text, "label": "yes"} for text in texts)),
    "csv": lambda texts: quoted(",", texts),
    "tsv_quoted": lambda texts: quoted("\t", texts),
    "tsv": lambda texts: tsv(
        ("text", "label"), *((re.sub(r"\s", " ", text), "yes") for text in texts)
    ),
}


def quoted(delimiter: str, texts: list[str]) -> bytes:
    table = io.StringIO(newline="")
    rows = [("text", "label"), *((text, "yes") for text in texts)]
    csv.writer(table, delimiter=delimiter).writerows(rows)
    return table.getvalue().encode()


@pytest.mark.parametrize("layout", FORMATS)
@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_characters="\0\r", codec="utf-8")), min_size=1))
def test_every_text_comes_back(tmp_path_factory, layout, texts):
    path = tmp_path_factory.getbasetemp() / "made-up"
    path.write_bytes(FORMATS[layout](texts))
    columns = Columns(text="text", label="label", labels=("no", "yes"))
    file = ReleaseFile(split="test", path="made-up")
    data_set = DataSet(
        name="made_up",
        label_names=("no", "yes"),
        files=(file,),
        format=layout,
        columns=columns,
        licence="",
        when_gone="",
    )
    expected = [re.sub(r"\s", " ", text) if layout == "tsv" else text for text in texts]
    assert read_file(data_set, file, path).rows["text"].tolist() == [
        text.strip() for text in expected
    ]


@settings(max_examples=50, deadline=None)
@given(text=st.text().map(str.strip))
def test_bytes_literals_come_back_as_text(text):
    assert releases_module.CLEANERS["from_bytes_literal"](str(text.encode())) == text


def test_a_testbed_folder_that_is_not_as_it_was_written(tmp_path):
    whole = (TESTBED_DIR / "testbed_sentiment.jsonl").read_bytes()
    write(tmp_path, "testbed_sentiment.jsonl", whole)
    settings = {
        "strength": 0.5,
        "seed": 1,
        "sha256": {"testbed_sentiment.jsonl": hashlib.sha256(whole).hexdigest()},
    }
    write(tmp_path, SETTINGS_FILE, json.dumps(settings).encode())
    assert (
        load_described("testbed_sentiment", str(tmp_path))[1]["source"]
        == "testbed (strength 0.5, seed 1)"
    )
    (tmp_path / "testbed_sentiment.jsonl").write_bytes(
        b"".join(whole.splitlines(keepends=True)[:300])
    )
    with pytest.raises(
        UserError,
        match=r"sentiment\.jsonl: expected the file as `python -m mtlib testbed` wrote it, found",
    ):
        load("testbed_sentiment", str(tmp_path))


def test_a_set_is_read_once_until_its_file_changes(releases, monkeypatch):
    seen, file = [], releases / "sst2/SST-2/dev.tsv"
    monkeypatch.setattr(sources, "read_file", lambda *of: seen.append(of[2]) or read_file(*of))
    monkeypatch.chdir(releases)
    assert rows_of(load("sst2", str(releases))) == rows_of(load("sst2", "."))
    assert seen == [file]
    file.write_bytes(tsv(["sentence", "label"], ["it grips", "1"], ["it drags", "0"]))
    assert rows_of(load("sst2", str(releases)))[0][0] == "it grips" and seen == [file] * 2


def test_the_hub_is_the_hub_wherever_one_stands(tmp_path, monkeypatch):
    write(tmp_path, f"hub/{SETTINGS_FILE}", b'{"strength": 0.9, "seed": 0}')
    monkeypatch.chdir(tmp_path)
    assert not is_testbed("hub") and source_type("hub") == "hub"
    assert get_task("sentiment").train_set("hub") == "sst2_train"
    assert is_testbed("./hub")
    assert get_task("sentiment").train_set("./hub") == "testbed_sentiment_train"
    assert source_type("./hub") == "testbed (strength 0.9, seed 0)"
    write(tmp_path, f"hub/{SETTINGS_FILE}", b'{"strength": 0.9, "seed": 0, "train_rows": 16000}')
    assert source_type("./hub") == "testbed (strength 0.9, seed 0, 16,000 training rows)"


# --- bad input ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("imdb",), "set is 'imdb'; expected one of sst2_train, sst2"),
        (
            ("testbed_contrast", "hub"),
            'testbed_contrast.jsonl not found in .*Its source is "testbed"',
        ),
        (("sst2", "nowhere"), "source 'nowhere' is no folder"),
        (
            ("imdb_cad", "hub", "tset"),
            r"the split of imdb_cad is 'tset'; expected one of dev\+test, test",
        ),
        (("paws_qqp", "hub"), "cannot be downloaded.*qqp_generate_data.py"),
    ],
)
def test_wrong_names_say_what_was_expected(arguments, message):
    with pytest.raises(UserError, match=message):
        load(*arguments)


SST2, CAD = b"sentence\tlabel\n", b"Sentiment\tText\tbatch_id\n"


@pytest.mark.parametrize(
    ("set_name", "content", "message"),
    [
        ("sst2", None, r"sst2/SST-2/dev.tsv not found in .*On the hub"),
        ("sst2", b"", "dev.tsv is cut off, corrupt"),
        (
            "sst2",
            b"text\tlabel\nfine\t1\n",
            r"column 'sentence' is missing, found \['text', 'label'\]",
        ),
        ("sst2", SST2 + b"fine\t1\npoor\t2\n", "unknown label '2', expected one of 0, 1"),
        ("sst2", SST2 + b"fine\t1\npo", "unknown label ''"),
        ("sst2", SST2 + b"fine\t1\n", "expected 2 rows, found 1"),
        ("sst2_train", SST2, "expected 3 rows, found 0"),
        (
            "sst2",
            SST2 + b"caf\xe9\t1\n",
            "dev.tsv is cut off, corrupt or in another encoding.*0xe9",
        ),
        ("imdb_cad", CAD + b'Negative\t"never closed\t7\n', "dev_paired.tsv is cut off, corrupt"),
        (
            "imdb_cad",
            CAD + b"Negative\tBad.\t7\nPositive\tGood.\t8\n",
            r"pair .*alone are \['dev-7', 'dev-8'\]",
        ),
        ("sst2", SST2 + b"fine\tthis\t1\n", "a line has more values than there are columns"),
        (
            "anli_r1",
            jsonl({"uid": "a", "context": None, "hypothesis": "Yes.", "label": "e"}),
            r"row 1: 'context' is .*nan\)?; expected a text",
        ),
        ("anli_r1", jsonl({}) + b'{"uid": "a"', "test.jsonl is cut off, corrupt"),
    ],
)
def test_bad_files_say_which_what_and_what_to_do(releases, set_name, content, message):
    first = next(iter(SETS[set_name].split_options.values()))[0]
    path = next(file.path for file in SETS[set_name].files if file.split == first)
    if content is None:
        (releases / path).unlink()
    else:
        (releases / path).write_bytes(content)
    with pytest.raises(UserError, match=message.removeprefix("pair ")):
        load(set_name, str(releases))
    # files are verified one by one: only loading the set can tell what does not fit together
    status = "missing" if content is None else "ok" if message.startswith("pair ") else "FAIL"
    assert [file["status"] for file in verify(str(releases)) if file["file"] == path] == [status]


def test_an_incomplete_evaluation_set_is_read_only_if_its_checksum_is_known(releases, monkeypatch):
    path = "qqp/QQP/dev.tsv"
    expect(monkeypatch, "qqp", rows=40_430)
    with pytest.raises(
        UserError, match="expected 40,430 rows, found 2 rows, and it is no copy known"
    ):
        load("qqp", str(releases))
    sha256 = hashlib.sha256(MADE_UP[path]).hexdigest()
    expect(monkeypatch, "qqp", copies=(Copy(sha256=sha256, rows=2, note="not the official split"),))
    record = load_described("qqp", str(releases))[1]
    assert (record["rows"], record["official_rows"]) == (2, 40_430)
    assert record["deviations"] == [f"{path}: not the official split"]
    assert record["files"] == [{"path": path, "sha256": sha256, "rows": 2, "official_rows": 40_430}]


def test_verify_reports_every_file(releases, monkeypatch):
    path = "sst2/SST-2/dev.tsv"
    expect(monkeypatch, "sst2", copies=(Copy(sha256=hashlib.sha256(MADE_UP[path]).hexdigest()),))
    expect(monkeypatch, "hans", sha256="0" * 64)
    expect(monkeypatch, "mnli_train", rows=392_702)
    report = {file.pop("file"): file for file in verify(str(releases))}
    assert set(report) == set(MADE_UP)
    assert report[path] == {"rows": 2, "status": "ok", "note": ""}
    assert report["hans/heuristics_evaluation_set.txt"]["status"] == "deviation"
    assert "expected 00000" in report["hans/heuristics_evaluation_set.txt"]["note"]
    assert report["mnli/MNLI/train.tsv"] == {
        "rows": 2,
        "status": "deviation",
        "note": "a subset, 2 of 392,702 rows",
    }


def test_describe_names_the_split_and_no_machine_path(releases):
    rows, record = load_described("imdb_cad", str(releases))
    lines = [json.dumps([row["text"], None, row["label"]]) + "\n" for row in rows]
    assert record["content_sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert (record["source"], record["splits"], record["rows"]) == ("folder", "dev+test", 4)
    assert str(releases) not in json.dumps(record)


# --- hub ---


@pytest.mark.parametrize(
    "set_name", [name for name in real_sets() if isinstance(SETS[name].remote, Hub)]
)
def test_hub_and_folder_give_the_same_rows(releases, monkeypatch, set_name):
    asked = []
    splits = next(iter(SETS[set_name].split_options))
    answer = on_the_hub(set_name, splits, releases)

    def load_dataset(path, name=None, *, split, revision):
        asked.append((path, name, split, revision))
        return answer

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    hub, folder = load(set_name, "hub"), load(set_name, str(releases))
    genre_less = [
        column for column in hub.column_names if not (column == "group" and "mnli" in set_name)
    ]
    assert rows_of(hub.select_columns(genre_less)) == rows_of(folder.select_columns(genre_less))
    remote = SETS[set_name].remote
    assert asked == [
        (remote.id, remote.config, remote.splits[SETS[set_name].files[-1].split], remote.revision)
    ]
    records = [load_described(set_name, source)[1] for source in ("hub", str(releases))]
    assert records[0]["content_sha256"] == records[1]["content_sha256"]
    assert records[0]["revision"] == f"{remote.id}@{remote.revision}"


def test_record_names_the_commit_that_the_hub_resolved(releases, monkeypatch):
    answer = on_the_hub("hans", "evaluation", releases)
    answer.info.download_checksums = {
        f"hf://datasets/jhu-cogsci/hans@{'a' * 40}/validation.parquet": {}
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: answer)
    assert load_described("hans", "hub")[1]["revision"] == f"jhu-cogsci/hans@{'a' * 40}"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"sentence": ["a", "b"], "label": [-1, 0]}, "sst2/validation: unknown label '-1'"),
        ({"sentence": ["a"], "label": [1]}, "expected 2 rows, found 1"),
        (
            ConnectionError("no route"),
            "could not read validation of nyu-mll/glue.*ConnectionError: no route.*give a folder",
        ),
    ],
)
def test_bad_answers_of_the_hub_are_user_errors(releases, monkeypatch, rows, message):
    def load_dataset(*_, **__):
        if isinstance(rows, Exception):
            raise rows
        return datasets.Dataset.from_dict(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(UserError, match=message):
        load("sst2", "hub")
