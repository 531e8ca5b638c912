"""Stores: records in a folder, and at an address that fsspec writes to."""

import json

import fsspec
import pytest

from mtlib.errors import UserError
from mtlib.sweeps import store
from mtlib.sweeps.store import Store

ADDRESS = "memory://sweep/records"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    yield Store(ADDRESS)
    system = fsspec.filesystem("memory")
    if system.exists("/sweep"):
        system.rm("/sweep", recursive=True)


def test_put_and_read(place):
    place.check_writable()
    record = place.folder / "a.json"
    content = {"schema_version": 2, "identity": "a", "config": {"method": "fine_tuning"}, "metrics": {}}
    record.write_text(json.dumps(content))
    assert not place.has("a.json") and place.state("a.json") is None
    place.put(record)
    assert place.has("a.json") and not record.exists() and place.records() == [content]
    names = fsspec.filesystem("memory").ls("/sweep/records", detail=False)
    assert [name.rpartition("/")[2] for name in names] == ["a.json"]


def test_a_record_that_is_there_stays(place):
    place.check_writable()
    for content in ("{}", '{"metrics": {}}'):  # of two machines that did the same run
        (place.folder / "a.json").write_text(content)
        place.put(place.folder / "a.json")
    assert fsspec.filesystem("memory").cat("/sweep/records/a.json") == b"{}"
    assert not list(place.folder.iterdir())


def test_what_cannot_be_read_is_told(place, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("403 forbidden")

    with monkeypatch.context() as patch:
        for name in ("exists", "glob"):
            patch.setattr(type(place._system), name, refuse)
        for read in (place.records, lambda: place.has("a.json"), lambda: place.state("a.json")):
            with pytest.raises(UserError, match="cannot read from memory://sweep/records: 403 forbidden"):
                read()


@pytest.mark.parametrize("address", [ADDRESS, "folder"])
def test_a_record_says_whether_its_run_diverged(place, address, tmp_path):
    place = Store(ADDRESS if address == ADDRESS else str(tmp_path / "out"))
    place.check_writable()
    for name, record in {"a": {}, "b": {"diverged": False}, "c": {"diverged": True}}.items():
        (place.folder / f"{name}.json").write_text(json.dumps(record))
        place.put(place.folder / f"{name}.json")
    assert [place.state(f"{name}.json") for name in "abcd"] == ["there", "there", "diverged", None]


def test_a_record_that_is_not_json(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match=r"a\.json in .* is not JSON .*; move it away or run it again"):
        Store(str(tmp_path)).state("a.json")


def test_a_torn_record_far_away_is_named(place):
    place.check_writable()
    (place.folder / "a.json").write_text("{")
    place.put(place.folder / "a.json")
    with pytest.raises(UserError, match=r"a\.json in .* is not JSON"):
        place.records()


def test_what_cannot_be_put_is_kept(place, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("403 forbidden")

    monkeypatch.setattr(type(place._system), "pipe_file", refuse)
    with pytest.raises(UserError, match="cannot write to memory://sweep/records: 403 forbidden"):
        place.check_writable()
    record = place.folder / "a.json"
    record.write_text("{}")
    with pytest.raises(UserError, match="403"):
        place.put(record)
    assert record.exists() and not place.has("a.json")


def test_a_file_address_is_a_folder(tmp_path):
    place = Store(f"file://{tmp_path}/out")
    assert place.folder == tmp_path / "out" and place.address == str(tmp_path / "out")
