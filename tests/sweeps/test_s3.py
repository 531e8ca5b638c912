"""Records on an S3 store: moto's server over s3fs, with requests that fail or are refused."""

import math
import threading
import time
import urllib.request
from pathlib import Path

import pytest

moto = pytest.importorskip(
    "moto.server", reason="moto and s3fs are not installed: `make test-cluster`"
)
s3fs = pytest.importorskip("s3fs", reason="moto and s3fs are not installed: `make test-cluster`")

from werkzeug.serving import make_server  # noqa: E402

from mtlib.errors import UserError  # noqa: E402
from mtlib.sweeps import store  # noqa: E402
from mtlib.sweeps.store import Store  # noqa: E402
from mtlib.sweeps.sweep_file import expand, identify  # noqa: E402
from mtlib.sweeps.worker import execute_run  # noqa: E402
from tests.conftest import write_testbed  # noqa: E402

ADDRESS = "s3://bucket/runs"
REFUSED = (
    b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
)


class Faults:
    """An S3 server, and what goes wrong with its answers.

    It answers each request after `seconds`, a `flaky` one every other with error 500, and it
    refuses the credential after `valid` requests.
    """

    def __init__(self):
        self.server = moto.DomainDispatcherApplication(moto.create_backend_app)
        self.flaky, self.seconds, self.requests, self.valid = False, 0.0, 0, math.inf

    def __call__(self, environment, start_response):
        time.sleep(self.seconds)
        self.requests += 1
        self.valid -= 1
        if self.valid < 0:
            start_response("400 Bad Request", [("Content-Type", "application/xml")])
            return [b"" if environment["REQUEST_METHOD"] == "HEAD" else REFUSED]
        if self.flaky and self.requests % 2:
            start_response("500 Internal Server Error", [])
            return [b""]
        return self.server(environment, start_response)


@pytest.fixture
def faults(tmp_path, monkeypatch):
    faults = Faults()
    server = make_server("127.0.0.1", 0, faults, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "a",
        "NO_PROXY": "127.0.0.1",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    s3fs.S3FileSystem.clear_instance_cache()
    urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/reset", method="POST"))
    s3fs.S3FileSystem().mkdir("bucket")
    yield faults
    server.shutdown()


@pytest.fixture
def run(model, tmp_path):
    """What a worker is given to do: a run of a few steps."""
    file = tmp_path / "sweep.yaml"
    testbed = write_testbed(tmp_path / "testbed", train=16)
    file.write_text(
        f"tasks: sentiment\nmethods: fine_tuning\nmodels: {model}\nsource: {testbed}\nepochs: 1\n"
        "max_length: 64\n"
    )
    (grid_run,) = identify(expand(file))
    return grid_run


def record(run) -> str:
    """What became of the run, or the error."""
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        return execute_run(run.config.values(), ADDRESS, run.file)
    except UserError as error:
        return str(error)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


def names() -> list[str]:
    return sorted(Path(name).name for name in s3fs.S3FileSystem().find("bucket/runs"))


def files(run) -> list[str]:
    """The record, and the probabilities beside it."""
    return [run.file, Path(run.file).with_suffix(".npz").name]


def test_errors_of_a_slow_store_are_tried_again(faults, run):
    Store(ADDRESS).check_writable()
    faults.flaky, faults.seconds = True, 0.3
    for _ in range(2):
        assert record(run) == "written" and names() == files(run)


def test_a_credential_that_expires_at_any_request_loses_no_run(faults, run):
    """Each time the run is tried, the credential lasts for one request more."""
    kept, contents = [Store(ADDRESS).folder / name for name in files(run)], set()
    for valid in range(30):
        faults.valid = valid
        answer = record(run)
        faults.valid = math.inf
        if answer == "written":
            break
        assert f"{ADDRESS}: " in answer
        there = all(path.exists() for path in kept)
        contents |= {tuple(path.read_bytes() for path in kept)} if there else set()
        assert there or not contents or Store(ADDRESS).state(run.file), "a trained run is lost"
    assert answer == "written" and not any(path.exists() for path in kept)
    assert [name for name in names() if not name.endswith(".part")] == files(run)
    far = tuple(s3fs.S3FileSystem().cat_file(f"bucket/runs/{name}") for name in files(run))
    assert contents == {far}, "it was trained again"
