"""Downloads from a local server, and into the hub's cache."""

import hashlib
import http.server
import threading

import datasets
import pytest

from mtlib.data import sources
from mtlib.data.downloads import fetch
from mtlib.data.registry import SETS, RawFiles
from mtlib.data.sources import load, load_described
from mtlib.errors import UserError
from tests.data.made_up_releases import MADE_UP, expect, on_the_hub, write_releases


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `files`."""

    def do_GET(self):
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A local server with the made-up CAD files, and a registry that expects their checksums."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    raw_files = RawFiles(repository="owner/cad", commit="c0ffee")
    monkeypatch.setitem(
        SETS, "imdb_cad", SETS["imdb_cad"].model_copy(update={"raw_files": raw_files})
    )
    paths = [file.path for file in SETS["imdb_cad"].files]
    expect(
        monkeypatch,
        "imdb_cad",
        rows=2,
        sha256={path: hashlib.sha256(MADE_UP[path]).hexdigest() for path in paths},
    )
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.files = {
        f"/owner/cad/c0ffee/{path.partition('/')[2]}": MADE_UP[path] for path in paths
    }
    http_server.asked = []
    threading.Thread(target=http_server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("MTLIB_RAW_ENDPOINT", f"http://127.0.0.1:{http_server.server_port}")
    yield http_server
    http_server.shutdown()
    http_server.server_close()


def test_fetch_writes_release_layout_and_asks_only_once(server, tmp_path, monkeypatch):
    paths = fetch(["imdb_cad", "testbed_contrast"], tmp_path)
    assert (
        paths
        == [tmp_path / file.path for file in SETS["imdb_cad"].files]
        == fetch(["imdb_cad"], tmp_path)
    )
    assert load("imdb_cad", str(tmp_path)).num_rows == 4
    monkeypatch.setattr(sources, "CACHE_DIR", tmp_path)
    assert load_described("imdb_cad", "hub")[1]["revision"] == "owner/cad@c0ffee"
    assert len(server.asked) == 2 and not list(tmp_path.rglob("*.part"))


def test_a_wrong_checksum_is_an_error(server, tmp_path):
    server.files = dict.fromkeys(server.files, b"something else")
    sha256 = hashlib.sha256(b"something else").hexdigest()
    for _ in range(2):  # as it comes, and as it lies there
        with pytest.raises(
            UserError, match=f"expected sha256 [0-9a-f]{{64}}, found {sha256}; delete it"
        ):
            fetch(["imdb_cad"], tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("sst3", "set is 'sst3'"), ("paws_qqp", r"paws_qqp cannot be downloaded.*dev_and_test.tsv")],
)
def test_all_names_are_checked_before_the_first_download(server, tmp_path, wrong, message):
    with pytest.raises(UserError, match=message):
        fetch(["imdb_cad", wrong], tmp_path)
    assert not server.asked


def test_fetch_failures_say_what_to_do(server, tmp_path):
    server.files.clear()
    with pytest.raises(
        UserError, match=r"(?s)download to .* failed \(.*404.*put them into the source"
    ):
        fetch(["imdb_cad"], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Check the network and the folder"):
        fetch(["imdb_cad"], tmp_path / "file")


def test_fetch_reads_hub_sets_into_the_hubs_cache(tmp_path, monkeypatch):
    releases = write_releases(tmp_path, monkeypatch)
    on_the_hub("sst2", "dev", releases).save_to_disk(tmp_path / "cache")
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *_, **__: datasets.load_from_disk(tmp_path / "cache")
    )
    assert [path.suffix for path in fetch(["sst2"], tmp_path)] == [".arrow"]
