"""Downloads from a local server that can be cut, and into the hub's cache."""

import hashlib
import http.server
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import pytest

from mtlib.data import sources
from mtlib.data.downloads import fetch
from mtlib.data.registry import SETS, RawFiles
from mtlib.data.sources import describe, load
from mtlib.errors import UserError
from tests.data.made_up_releases import MADE_UP, expect, on_the_hub, write, write_releases


@pytest.fixture
def releases(tmp_path, monkeypatch) -> Path:
    return write_releases(tmp_path, monkeypatch)


class RangeHandler(http.server.BaseHTTPRequestHandler):
    """Serves `files`, honours Range, and breaks off after `cut` bytes of a response."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1]) if self.server.ranges else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut, self.server.cut = self.server.cut, None
        self.wfile.write(content[start:][:cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A local server with the made-up CAD files, and a registry that expects their checksums."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    raw_files = RawFiles(repository="owner/cad", commit="c0ffee")
    monkeypatch.setitem(SETS, "imdb_cad", SETS["imdb_cad"].model_copy(update={"raw_files": raw_files}))
    paths = [file.path for file in SETS["imdb_cad"].files]
    expect(monkeypatch, "imdb_cad", rows=2, sha256={path: hashlib.sha256(MADE_UP[path]).hexdigest() for path in paths})
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RangeHandler)
    http_server.files = {f"/owner/cad/c0ffee/{path.partition('/')[2]}": MADE_UP[path] for path in paths}
    http_server.asked, http_server.cut, http_server.ranges = [], None, True
    threading.Thread(target=http_server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("MTLIB_RAW_ENDPOINT", f"http://127.0.0.1:{http_server.server_port}")
    yield http_server
    http_server.shutdown()
    http_server.server_close()


DEV = "imdb_cad/sentiment/combined/paired/dev_paired.tsv"


def test_several_at_once_download_once(server, tmp_path):
    arrived = threading.Barrier(4, timeout=10)

    def fetch_in_thread(_):
        arrived.wait()
        return fetch(["imdb_cad"], tmp_path)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(fetch_in_thread, range(4)))
    assert all(paths == results[0] for paths in results)
    assert sorted(path for path, _ in server.asked) == sorted(server.files)
    for file in SETS["imdb_cad"].files:
        assert (tmp_path / file.path).read_bytes() == MADE_UP[file.path]


def test_fetch_writes_release_layout_and_asks_only_once(server, tmp_path):
    paths = fetch(["imdb_cad", "testbed_contrast"], tmp_path)
    assert paths == [tmp_path / file.path for file in SETS["imdb_cad"].files]
    assert load("imdb_cad", str(tmp_path)).num_rows == 4
    assert fetch(["imdb_cad"], tmp_path) == paths
    assert len(server.asked) == 2
    assert not list(tmp_path.rglob("*.part"))


def test_hub_source_of_raw_files_goes_through_the_cache(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CACHE_DIR", tmp_path)
    fetch(["imdb_cad"], tmp_path)
    assert load("imdb_cad", "hub").num_rows == 4
    assert describe("imdb_cad", "hub")["revision"] == "owner/cad@c0ffee"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_download_resumes(server, tmp_path, ranges):
    server.cut, server.ranges = 20, ranges
    with pytest.raises(UserError, match=f"ended after 20 of {len(MADE_UP[DEV])} bytes.*it resumes"):
        fetch(["imdb_cad"], tmp_path)
    assert (tmp_path / f"{DEV}.part").read_bytes() == MADE_UP[DEV][:20]
    assert not (tmp_path / DEV).exists()
    fetch(["imdb_cad"], tmp_path)
    assert server.asked[1][1] == "bytes=20-"
    assert (tmp_path / DEV).read_bytes() == MADE_UP[DEV]


def test_a_download_cut_after_its_last_byte_is_finished(server, tmp_path):
    write(tmp_path, f"{DEV}.part", MADE_UP[DEV])
    fetch(["imdb_cad"], tmp_path)
    assert (tmp_path / DEV).read_bytes() == MADE_UP[DEV]


def test_a_wrong_checksum_is_an_error_and_removes_nothing(server, tmp_path):
    url = next(iter(server.files))
    right, server.files[url] = server.files[url], b"something else"
    sha256 = hashlib.sha256(b"something else").hexdigest()
    for _ in range(2):
        with pytest.raises(UserError, match=f"expected sha256 [0-9a-f]{{64}}, found {sha256}.*delete it"):
            fetch(["imdb_cad"], tmp_path)
    assert (tmp_path / f"{DEV}.part").read_bytes() == b"something else"
    (tmp_path / f"{DEV}.part").unlink()
    server.files[url] = right
    fetch(["imdb_cad"], tmp_path)
    (tmp_path / DEV).write_bytes(b"edited by hand")
    with pytest.raises(UserError, match="expected sha256"):
        fetch(["imdb_cad"], tmp_path)
    assert (tmp_path / DEV).read_bytes() == b"edited by hand"


def test_all_names_are_checked_before_the_first_download(server, tmp_path):
    for wrong in ("sst3", "paws_qqp"):
        with pytest.raises(UserError, match=wrong):
            fetch(["imdb_cad", wrong], tmp_path)
    assert not [*tmp_path.rglob("*.tsv")]


def test_fetch_failures_say_what_to_do(server, tmp_path, monkeypatch):
    server.files.clear()
    with pytest.raises(UserError, match=r"the server answered 404.*put them into the source folder"):
        fetch(["imdb_cad"], tmp_path)
    monkeypatch.setenv("MTLIB_RAW_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UserError, match=r"download to .* failed.*it resumes"):
        fetch(["imdb_cad"], tmp_path)
    with pytest.raises(UserError, match=r"paws_qqp cannot be downloaded.*dev_and_test.tsv"):
        fetch(["paws_qqp"], tmp_path)
    with pytest.raises(UserError, match="set is 'cad'"):
        fetch(["cad"], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Check the network and the folder"):
        fetch(["imdb_cad"], tmp_path / "file")


def test_fetch_reads_hub_sets_into_the_hubs_cache(releases, monkeypatch, tmp_path):
    cached = on_the_hub("sst2", "dev", releases)
    cached.save_to_disk(tmp_path / "cache")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.load_from_disk(tmp_path / "cache"))
    assert [path.suffix for path in fetch(["sst2"], tmp_path)] == [".arrow"]
