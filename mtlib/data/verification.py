"""A release folder checked against the registry, file by file."""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from mtlib.data.registry import SETS, Copy, DataSet, ReleaseFile, is_bundled
from mtlib.data.releases import check_unique, deviation, locate, parse, read_bytes, release_folder
from mtlib.errors import UserError


@dataclass(frozen=True)
class VerifyRow:
    """What `verify` found for one file. `status` is "ok", "deviation" (usable, see `note`), "missing" or "FAIL"."""

    set: str
    split: str
    file: str
    rows: int | None
    expected: int | None
    labels: str
    sha256: str
    status: str
    note: str


def verify(source: str) -> list[VerifyRow]:
    """Check every registered file of a release folder: rows, labels, checksum. A bad file is reported, not raised."""
    root = release_folder(source)
    rows = []
    for name, data_set in SETS.items():
        if not is_bundled(name):
            rows += [_verify_file(name, data_set, file, root) for file in data_set.files]
    for name, file in OTHER_FILES:
        if locate(root, file.path):
            columns = replace(SETS[name].columns, uid="{position}", group="", pair="")
            rows.append(_verify_file(name, replace(SETS[name], columns=columns), file, root))
    return rows


def _verify_file(name: str, data_set: DataSet, file: ReleaseFile, root: Path) -> VerifyRow:
    def row(status: str, note: str, rows: int | None = None, labels: str = "", sha256: str = "") -> VerifyRow:
        return VerifyRow(name, file.split, file.path, rows, file.rows, labels, sha256, status, note)

    path = locate(root, file.path)
    if path is None:
        return row("missing", data_set.when_gone)
    rows, labels, checksum = None, "", ""
    try:
        content = read_bytes(path)
        sha256 = hashlib.sha256(content).hexdigest()
        checksum = _checksum_status(file, sha256)
        columns, skipped = parse(data_set, file, content, path)
        rows, labels = len(columns["label"]), _label_counts(data_set, columns["label"])
        check_unique(name, columns["uid"] or [""])
        differs = deviation(data_set, file, rows, sha256)
    except UserError as error:
        return row("FAIL", str(error), rows, labels, checksum)
    note = "; ".join(text for text in (differs, skipped) if text)
    return row("deviation" if differs else "ok", note, rows, labels, checksum)


def _checksum_status(file: ReleaseFile, sha256: str) -> str:
    if sha256 == file.sha256:
        return "as published"
    if any(sha256 == copy.sha256 for copy in file.copies):
        return "known copy"
    return "MISMATCH" if file.sha256 else "not registered"


def _label_counts(data_set: DataSet, labels: list[int]) -> str:
    counts = Counter(labels)
    return " / ".join(f"{counts[label]:,} {name}" for label, name in enumerate(data_set.label_names))


# Files of the same releases that no set reads; `verify` checks those that are there.
OTHER_FILES: tuple[tuple[str, ReleaseFile], ...] = (
    *(
        ("imdb_cad", ReleaseFile(path.removesuffix(".tsv"), f"imdb_cad/sentiment/{path}", rows, sha256))
        for path, rows, sha256 in (
            ("orig/train.tsv", 1_707, "adccf2763b67ddbfbd4571b7ee96c9bb689e98c4295e779151148c014b2b1050"),
            ("orig/dev.tsv", 245, "d7b815d31ddc6eed7bdeb9dc78e18db88ebb22dd347cf72cc797791edfd7bab0"),
            ("orig/test.tsv", 488, "35e8fab251220685ae47f95ef86bad1fd7fa0017a6ce4afe803ab18a71ff61ff"),
            ("new/train.tsv", 1_707, "c9f65a2425e9aa358082040961d9d0e215fb8631b85242cbb410b82f9c62c0d4"),
            ("new/dev.tsv", 245, "69f559bfbf9eb2e0545d2d2f14482a699ec81f94e2bca110e4fa15670fdf78e6"),
            ("new/test.tsv", 488, "28d32ca405131d87ef095109cc1764d6e917a3df63584b2f16e9465020b7f29d"),
            ("combined/train.tsv", 3_414, "7b87cf83574457fe8a5081026fee4d1828b0e5724e9f92f9c697e67c8e04fd7c"),
            ("combined/dev.tsv", 490, "fd770d1c039f03f896f901feb4cfd14746b6867e30b828a395914a0d847b7e47"),
            ("combined/test.tsv", 976, "520ae752d528c694e3fcd153f9bb8fcc789d8da2f0aae711944ce01736d4fe97"),
        )
    ),
    (
        "mnli_train",
        ReleaseFile(
            "extra",
            "mnli/extra/train_periods_removed.tsv",
            392_702,
            copies=(
                Copy(
                    "f15b70381498d68b3e8b9b076690371a744cabd53d759c441be032445788c72f",
                    9_624,
                    "research copy: 9,624 more training rows, every full stop removed by their source",
                ),
            ),
        ),
    ),
    (
        "qqp",
        ReleaseFile(
            "official sample",
            "qqp/dev_official_100.tsv",
            40_430,
            copies=(
                Copy(
                    "2d69ca8eb33d1ae5f5d7aa17bcce72f82cb741e44a12d6db6939e4b2048c6148",
                    100,
                    "research copy: 100 pairs of the official dev split",
                ),
            ),
        ),
    ),
    (
        "qqp",
        ReleaseFile(
            "Quora's file",
            "qqp/quora_duplicate_questions.sample.tsv",
            404_290,
            copies=(
                Copy(
                    "1bf534d71451160087a8e0e5010f6713b92d50ba55db94069c053907e2fc654f",
                    1_319,
                    "research copy: 1,319 of 404,290 pairs; some also in QQP train and dev",
                ),
            ),
        ),
    ),
    (
        "paws_qqp",
        ReleaseFile(
            "dev_and_test",
            "paws/paws_qqp/output_python3/dev_and_test.tsv",
            677,
            copies=(Copy("f65890ccffd7a6432520c009dd3e5c03a96205c80a8f89b04bb58f44c1f35c8f", 677),),
        ),
    ),
)
