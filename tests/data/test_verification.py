"""The check of a release folder, on made-up files and on the real ones if at hand."""

import hashlib
import os
from pathlib import Path

import pytest

from mtlib.data.registry import Copy
from mtlib.data.verification import verify
from mtlib.errors import UserError
from tests.data.made_up_releases import MADE_UP, expect, write_releases

RELEASES = os.environ.get("MTLIB_RELEASES", "")
needs_releases = pytest.mark.skipif(not RELEASES, reason="MTLIB_RELEASES names no folder with the original releases")


@pytest.fixture
def releases(tmp_path, monkeypatch) -> Path:
    return write_releases(tmp_path, monkeypatch)


def test_verify_reports_each_file_and_never_raises(releases, monkeypatch):
    dev = "sst2/SST-2/dev.tsv"
    expect(monkeypatch, "sst2", copies=(Copy(hashlib.sha256(MADE_UP[dev]).hexdigest(), 2),))
    expect(monkeypatch, "hans", sha256="0" * 64)
    expect(monkeypatch, "mnli_train", rows=392_702)
    (releases / "paws/final/dev.tsv").unlink()
    (releases / "anli/anli_v1.0/R3/dev.jsonl").write_bytes(b"{")
    (releases / "qqp/QQP/dev.tsv").write_bytes(b"\xff")
    rows = {row.file: row for row in verify(str(releases))}
    assert set(rows) == set(MADE_UP)
    assert (rows[dev].status, rows[dev].checksum, rows[dev].labels) == ("ok", "known copy", "1 negative / 1 positive")
    hans = rows["hans/heuristics_evaluation_set.txt"]
    assert (hans.status, hans.checksum) == ("deviation", "MISMATCH")
    assert rows["mnli/MNLI/train.tsv"].note == "a subset, 2 of 392,702 rows"
    assert (rows["mnli/MNLI/train.tsv"].status, rows["mnli/MNLI/train.tsv"].checksum) == ("deviation", "not registered")
    assert rows["paws/final/dev.tsv"].status == "missing"
    assert "expected a JSON object" in rows["anli/anli_v1.0/R3/dev.jsonl"].note
    failed = {path for path, row in rows.items() if row.status == "FAIL"}
    assert failed == {"anli/anli_v1.0/R3/dev.jsonl", "qqp/QQP/dev.tsv"}


def test_verify_of_no_folder_is_an_error():
    with pytest.raises(UserError, match="is no folder"):
        verify("nowhere")


@needs_releases
def test_real_files_verify():
    rows = verify(RELEASES)
    assert {row.status for row in rows} == {"ok", "deviation"}
    assert {row.checksum for row in rows} == {"as published", "known copy"}
