"""A server on localhost that speaks the Hugging Face hub's protocol, as far as downloads need it.

It serves a folder: `models/NAME/...`, `datasets/NAME/...` (every revision has the same files), and
`raw/...`, files of public repositories as raw.githubusercontent.com serves them. Clients find it by
HF_ENDPOINT and MTLIB_RAW_ENDPOINT.
"""

import hashlib
import http.server
import json
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

# status, error code and message of the hub's answers
_GONE = (404, "RepoNotFound", "Repository not found")
_NO_FILE = (404, "EntryNotFound", "Entry not found")
_API = re.compile(r"/api/(models|datasets)/(.+?)(?:/(revision|tree|paths-info)/([^/]+)(/.*)?)?")
_RESOLVE = re.compile(r"/(datasets/)?(.+?)/resolve/([^/]+)/(.+)")


class Hub(http.server.ThreadingHTTPServer):
    """The server of the folder `root`."""

    daemon_threads = True

    def __init__(self, root: Path):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(root: Path):
    hub = Hub(root)
    threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True).start()
    yield hub
    hub.shutdown()
    hub.server_close()


def commit_of(repository: str, revision: str) -> str:
    """What a revision resolves to: itself if it is a commit."""
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    return hashlib.sha1(f"{repository}@{revision}".encode()).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        if match := _API.fullmatch(path):
            self._api(
                match[1],
                match[2],
                match[3],
                unquote(match[4] or "main"),
                unquote(match[5] or "")[1:],
                body,
            )
        elif match := _RESOLVE.fullmatch(path):
            kind, repository = "datasets" if match[1] else "models", match[2]
            if self._allowed(kind, repository):
                headers = {"X-Repo-Commit": commit_of(repository, unquote(match[3]))}
                self._file(self.server.root / kind / repository / unquote(match[4]), headers)
        else:
            self._file(self.server.root / f"raw{unquote(path)}", {})

    do_HEAD = do_POST = do_GET

    def _api(
        self,
        kind: str,
        repository: str,
        call: str | None,
        revision: str,
        inner: str,
        body: bytes,
    ) -> None:
        if not self._allowed(kind, repository):
            return
        folder = self.server.root / kind / repository
        if call == "tree":
            if not (folder / inner).is_dir():
                self._refuse(*_NO_FILE)
                return
            deep = "recursive=true" in self.path.lower()
            answer = [
                _entry(path, folder)
                for path in sorted((folder / inner).glob("**/*" if deep else "*"))
            ]
        elif call == "paths-info":
            paths = [folder / name for name in json.loads(body)["paths"]]
            answer = [_entry(path, folder) for path in paths if path.exists()]
        else:
            names = [
                str(path.relative_to(folder))
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            ]
            answer = {
                "id": repository,
                "sha": commit_of(repository, revision),
                "private": False,
                "gated": False,
                "disabled": False,
                "tags": [],
                "siblings": [{"rfilename": name} for name in names],
            }
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _allowed(self, kind: str, repository: str) -> bool:
        is_there = (self.server.root / kind / repository).is_dir()
        if not is_there:
            self._refuse(*_GONE)
        return is_there

    def _file(self, path: Path, headers: dict[str, str]) -> None:
        if not path.is_file():
            self._refuse(*_NO_FILE, headers)
            return
        content = path.read_bytes()
        headers |= {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked is None:
            self._send(200, content, headers)
            return
        start, end = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if start >= len(content):
            self._send(416, b"", headers)
        else:
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            self._send(206, content[start : end + 1], headers)

    def _refuse(
        self,
        status: int,
        code: str,
        message: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._send(
            status, b"", {"X-Error-Code": code, "X-Error-Message": message} | (headers or {})
        )

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


def _entry(path: Path, folder: Path) -> dict:
    kind = "directory" if path.is_dir() else "file"
    oid = hashlib.sha1(str(path.relative_to(folder)).encode()).hexdigest()
    return {
        "type": kind,
        "path": str(path.relative_to(folder)),
        "oid": oid,
        "size": path.stat().st_size,
    }
