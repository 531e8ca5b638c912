"""Stores: records in a folder, and at an address that fsspec writes to."""

import json

import fsspec
import pytest

from mtlib.errors import UserError
from mtlib.runs.code import code_sha256
from mtlib.sweeps import store
from mtlib.sweeps.store import Store

ADDRESS = "memory://sweep/records"
MADE_BY = {"code_sha256": code_sha256()}
RECORD = {
    "schema_version": 2,
    "identity": "a",
    "config": {"method": "fine_tuning", "precision": "bf16"},
    "metrics": {},
    "environment": MADE_BY,
}


@pytest.fixture
def far(tmp_path, monkeypatch):
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    place = Store(ADDRESS)
    place.check_writable()
    yield place
    system = fsspec.filesystem("memory")
    if system.exists("/sweep"):
        system.rm("/sweep", recursive=True)


@pytest.fixture(params=["far", "folder"])
def place(request, far, tmp_path):
    if request.param == "far":
        return far
    return Store(str(tmp_path / "x[old]" / "out"))  # the brackets are no pattern


def far_files() -> dict[str, bytes]:
    system = fsspec.filesystem("memory")
    paths = system.ls("/sweep/records", detail=False)
    return {path.rpartition("/")[2]: system.cat_file(path) for path in paths}


def train(place: Store, probabilities: bytes | None = b"npz", **record) -> None:
    """What a run leaves in the folder it works in."""
    place.folder.mkdir(parents=True, exist_ok=True)
    if probabilities is not None:
        (place.folder / "a.npz").write_bytes(probabilities)
    (place.folder / "a.json").write_text(json.dumps(RECORD | record))


def test_a_finished_run_is_read_back(place):
    assert place.state("a.json") is None
    place.check_writable()
    train(place)
    assert place.finish("a.json") == place.state("a.json") == "written"


def test_records_and_probabilities_move_to_an_address(far):
    train(far)
    far.finish("a.json")
    assert far_files() == {"a.json": json.dumps(RECORD).encode(), "a.npz": b"npz"}
    assert not list(far.folder.iterdir())


def test_a_record_that_is_there_stays(far):
    for number in range(2):  # two machines that did the same run
        train(far, str(number).encode(), number=number)
        assert far.finish("a.json") == "written"
    assert json.loads(far_files()["a.json"])["number"] == 0 and far_files()["a.npz"] == b"0"
    assert not list(far.folder.iterdir())


def test_a_record_says_whether_its_run_diverged(place):
    train(place, None, diverged=True)
    assert place.finish("a.json") == place.state("a.json") == "diverged"


def test_a_record_by_other_code_counts_where_such_are_reused(place):
    train(place, environment={"commit": "a" * 40})
    assert place.finish("a.json") == place.state("a.json") == "other code"
    assert place.origin("a.json").startswith("commit aaaaaaaaaa, whose code may differ")
    reusing = Store(place.address, reuse=True)
    assert reusing.state("a.json") == reusing.state("a.json", "bf16") == "written"
    assert reusing.state("a.json", "float32") is None


def test_a_record_that_is_not_json(place):
    train(place)
    (place.folder / "a.json").write_text("{")
    message = r"a\.json in .* is no record .*Move it away or run it again"
    for read in (place.finish, place.state):
        with pytest.raises(UserError, match=message):
            read("a.json")


def test_what_cannot_be_read_is_told(far, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("403 forbidden")

    with monkeypatch.context() as patch:
        patch.setattr(type(far._system), "cat_file", refuse)
        message = "cannot read from memory://sweep/records: 403 forbidden"
        with pytest.raises(UserError, match=message):
            far.state("a.json")


@pytest.mark.parametrize("written", [0, 1])
def test_what_cannot_be_written_is_kept(far, monkeypatch, written):
    """The credential expires before the first file, or between the probabilities and the record."""
    train(far)
    pipe, left = type(far._system).pipe_file, [None] * written

    def refuse(*arguments, **options):
        if not left:
            raise PermissionError("403 forbidden")
        left.pop()
        return pipe(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(far._system), "pipe_file", refuse)
        message = "cannot write to memory://sweep/records: 403 forbidden"
        with pytest.raises(UserError, match=message):
            far.finish("a.json")
        with pytest.raises(UserError, match="403"):
            far.check_writable()
    assert {path.name for path in far.folder.iterdir()} == {"a.json", "a.npz"}
    assert far.state("a.json") is None
    assert far.finish("a.json") == "written" and set(far_files()) == {"a.json", "a.npz"}


def test_a_file_address_is_a_folder(tmp_path):
    place = Store(f"file://{tmp_path}/out")
    assert place.folder == tmp_path / "out" and place.address == str(tmp_path / "out")


def test_an_address_that_nothing_can_write_to():
    with pytest.raises(UserError, match="cannot write to nosuch://a/b"):
        Store("nosuch://a/b")


class TestKeptModels:
    @pytest.fixture
    def keeping(self, tmp_path):
        return Store(str(tmp_path / "out"), keep_model=True)

    def test_a_record_without_its_model_is_to_do(self, keeping):
        train(keeping)
        assert keeping.state("a.json") is None and Store(keeping.address).state("a.json")
        (keeping.folder / "a").mkdir()
        assert keeping.state("a.json") == "written"

    def test_the_model_may_be_that_of_another_record_of_the_training(self, keeping):
        train(keeping, trained_by="b")
        assert keeping.state("a.json") is None
        (keeping.folder / "b").mkdir()
        assert keeping.state("a.json") == "written"

    def test_an_address_keeps_no_models(self):
        with pytest.raises(UserError, match=f"in a folder alone, and --out is {ADDRESS}"):
            Store(ADDRESS, keep_model=True)
