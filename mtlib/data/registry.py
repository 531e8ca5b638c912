"""What the sets are: `SETS`, read from registry.yaml. No data is read here, and no server is asked."""

import ast
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from mtlib.settings import check_choice

SENTIMENT = ("negative", "positive")
NLI = ("entailment", "neutral", "contradiction")
HANS = ("entailment", "non-entailment")
PARAPHRASE = ("not paraphrase", "paraphrase")


@dataclass(frozen=True)
class Copy:
    """A copy of a release file that is known by its checksum. `note` says how what is read from it deviates."""

    sha256: str
    rows: int
    note: str = ""


@dataclass(frozen=True)
class ReleaseFile:
    """One file of an original release. `rows` is the official number of labelled rows (None: not fixed)."""

    split: str
    path: str  # dataset folder + path inside the release; the dataset folder may be left out on disk
    rows: int | None = None
    sha256: str = ""  # of the file as published, where that is known
    copies: tuple[Copy, ...] = ()
    half: str = ""  # "original" or "edited" where a file holds one half of a contrast set


@dataclass(frozen=True)
class Columns:
    """How a source names its columns. `uid`, `group` and `pair` are templates over a row, {split} and {position}."""

    text: str
    label: str
    labels: Mapping[str, int]
    text_pair: str = ""
    uid: str = "{position}"
    group: str = ""
    pair: str = ""  # contrast sets: what the original and its edited version have in common
    unlabelled: str = ""  # rows with this label are dropped, as the official readers do

    @property
    def needed(self) -> set[str]:
        templates = "".join((self.uid, self.group, self.pair))
        named = {name for _, name, _, _ in string.Formatter().parse(templates) if name}
        return {self.text, self.label, self.text_pair, *named} - {"", "split", "position"}


@dataclass(frozen=True)
class Hub:
    """A set on the Hugging Face hub. The revisions were seen pinned in public projects, not checked on the hub."""

    id: str
    revision: str
    splits: Mapping[str, str]  # release split -> hub split
    columns: Columns
    config: str | None = None


@dataclass(frozen=True)
class RawFiles:
    """The release files themselves, at one commit of a public repository; verified by sha256."""

    repository: str
    commit: str


@dataclass(frozen=True)
class DataSet:
    """Everything `load` has to know about one set."""

    label_names: tuple[str, ...]
    files: tuple[ReleaseFile, ...]
    format: str  # "tsv" (quoting off), "csv" (tab-separated, CSV quoting) or "jsonl"
    columns: Columns
    licence: str
    when_gone: str
    remote: Hub | RawFiles | None = None
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> splits, default first
    clean: Callable[[str], str] = str.strip
    is_train: bool = False  # a training set may be a subset; an evaluation set must be whole
    paired: bool = False  # of an original and its edited version, whose gold labels differ
    skips_broken_lines: bool = False

    @property
    def pair(self) -> bool:
        return bool(self.columns.text_pair)

    @property
    def folded(self) -> bool:
        """Two labels, entailment or not, that a model with three labels is tested on."""
        return self.label_names == HANS

    @property
    def split_options(self) -> Mapping[str, tuple[str, ...]]:
        return self.options or {self.files[0].split: (self.files[0].split,)}


def get_set(set_name: str) -> DataSet:
    check_choice("set", set_name, SETS)
    return SETS[set_name]


def split_options(set_name: str) -> tuple[str, ...]:
    """What `splits` may be for a set, the default first. More than one only where the paper leaves the split open."""
    return tuple(get_set(set_name).split_options)


def is_bundled(set_name: str) -> bool:
    return set_name.startswith("testbed_")


# ------------------------------------------------------------------------------------ how a release writes its texts


def without_line_breaks(text: str) -> str:
    """IMDB reviews carry HTML line breaks; every run of them becomes one space."""
    return re.sub(r"\s*(?:<br\s*/?>\s*)+", " ", text).strip()


def csv_unquoted(text: str) -> str:
    """QQP quotes the fields that hold a quotation mark, in a file that is otherwise unquoted (and so does the hub)."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1].replace('""', ""):
        text = text[1:-1].replace('""', '"')
    return text.strip()


def from_bytes_literal(text: str) -> str:
    """Under Python 3, Google's PAWS-QQP script writes every sentence as a bytes literal: b'...'."""
    if text[:2] in ("b'", 'b"') and text[-1] == text[1]:
        text = ast.literal_eval(text).decode("utf-8")
    return text.strip()


# -------------------------------------------------------------------------------------------------- from registry.yaml

_LABEL_NAMES = {"sentiment": SENTIMENT, "nli": NLI, "hans": HANS, "paraphrase": PARAPHRASE}
_CLEANERS = {function.__name__: function for function in (without_line_breaks, csv_unquoted, from_bytes_literal)}


def _data_set(name: str, entry: dict) -> DataSet:
    fields = {key: value for key, value in entry.items() if key not in ("labels", "hub", "raw_files")}
    if hub := entry.get("hub"):
        fields["remote"] = Hub(**hub | {"columns": _columns(hub["columns"])})
    elif raw_files := entry.get("raw_files"):
        fields["remote"] = RawFiles(**raw_files)
    if "clean" in entry:
        fields["clean"] = _CLEANERS[entry["clean"]]
    return DataSet(
        **fields
        | {
            "label_names": _LABEL_NAMES[entry["labels"]],
            "files": tuple(map(_release_file, entry["files"])),
            "columns": _columns(entry["columns"]),
            "options": {option: tuple(splits) for option, splits in entry.get("options", {}).items()},
            "is_train": name.endswith("_train"),
        }
    )


def _release_file(entry: dict) -> ReleaseFile:
    copies = tuple(Copy(**{"rows": entry["rows"]} | copy) for copy in entry.get("copies", ()))
    return ReleaseFile(**entry | {"copies": copies})


def _columns(entry: dict) -> Columns:
    return Columns(**entry | {"labels": {label: number for number, label in enumerate(entry["labels"])}})


_ENTRIES = yaml.load(
    Path(__file__).with_name("registry.yaml").read_text(encoding="utf-8"),
    getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # the one in C takes 4 ms instead of 130
)
SETS: dict[str, DataSet] = {name: _data_set(name, entry) for name, entry in _ENTRIES.items()}
