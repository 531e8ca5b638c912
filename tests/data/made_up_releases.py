"""The made-up releases of `releases/`: small files in each release layout, quirks included."""

import json
from pathlib import Path

import datasets

from mtlib.data.registry import SETS
from mtlib.data.sources import load


def tsv(*rows, end="\n") -> bytes:
    return "".join("\t".join(row) + end for row in rows).encode()


def jsonl(*rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


RELEASES = Path(__file__).parent / "releases"
MADE_UP = {
    str(path.relative_to(RELEASES)): path.read_bytes()
    for path in sorted(RELEASES.rglob("*"))
    if path.is_file()
}
KEPT_ROWS = {path: content.rstrip().count(b"\n") for path, content in MADE_UP.items()}
KEPT_ROWS |= {path: rows + 1 for path, rows in KEPT_ROWS.items() if path.endswith(".jsonl")}
KEPT_ROWS |= {
    "mnli/MNLI/dev_matched.tsv": 2,
    "qqp/QQP/train.tsv": 2,
    "imdb_cad/sentiment/combined/paired/test_paired.tsv": 2,
}


def write_releases(root: Path, monkeypatch) -> Path:
    """A folder with all the made-up files, and a registry that expects their sizes."""
    for path, content in MADE_UP.items():
        write(root, path, content)
    for name in real_sets():
        expect(monkeypatch, name, rows=KEPT_ROWS, sha256="", copies=())
    return root


def expect(monkeypatch, set_name: str, **changes) -> None:
    """Give every file of a set other registered facts, as `rows=2` or `rows={path: 2}`."""

    def changed(file):
        expected = {
            key: value[file.path] if isinstance(value, dict) else value
            for key, value in changes.items()
        }
        return file.model_copy(update=expected)

    files = tuple(map(changed, SETS[set_name].files))
    monkeypatch.setitem(SETS, set_name, SETS[set_name].model_copy(update={"files": files}))


def write(root: Path, path: str, content: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


def real_sets() -> list[str]:
    return [name for name, data_set in SETS.items() if not data_set.bundled]


def rows_of(dataset: datasets.Dataset) -> list[tuple]:
    return [tuple(row.values()) for row in dataset]


HUB_COLUMNS = {
    "nyu-mll/glue sst2": ("sentence",),
    "nyu-mll/glue mnli": ("premise", "hypothesis"),
    "nyu-mll/glue qqp": ("question1", "question2"),
    "facebook/anli plain_text": ("premise", "hypothesis"),
    "jhu-cogsci/hans None": ("premise", "hypothesis"),
    "google-research-datasets/paws labeled_final": ("sentence1", "sentence2"),
}


def on_the_hub(set_name: str, splits: str, releases: Path) -> datasets.Dataset:
    """The made-up release in the hub's columns."""
    hub = SETS[set_name].remote
    ours = load(set_name, str(releases), splits)
    columns = {"label": ours["label"][:]}
    for theirs, text in zip(
        HUB_COLUMNS[f"{hub.id} {hub.config}"], ("text", "text_pair"), strict=False
    ):
        columns[theirs] = [f"{value} " for value in ours[text]]
    numbers = [uid.rpartition("/")[2] for uid in ours["uid"]]
    if hub.id == "nyu-mll/glue":
        columns["idx"] = [int(number) for number in numbers]
    elif hub.id == "facebook/anli":
        columns["uid"] = numbers
    elif hub.id == "jhu-cogsci/hans":
        columns["heuristic"], columns["subcase"] = zip(
            *(group.split("/", 1) for group in ours["group"]), strict=True
        )
    else:
        columns["id"] = [int(number) for number in numbers]
    return datasets.Dataset.from_dict(columns)
