"""What the sets are: `SETS`, read from registry.yaml. No data is read here, and no server is asked."""

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from mtlib.settings import check_choice


class Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Copy(Entry):
    """A copy of a release file that is known by its checksum. `note` says how what is read from it deviates."""

    sha256: str
    rows: int | None = None  # None: as many as the file has officially
    note: str = ""


class ReleaseFile(Entry):
    """One file of an original release."""

    split: str
    path: str  # dataset folder + path inside the release; the dataset folder may be left out on disk
    rows: int | None = None  # the official number of labelled rows (None: not fixed)
    sha256: str = ""  # of the file as published, where that is known
    copies: tuple[Copy, ...] = ()
    half: str = ""  # "original" or "edited" where a file holds one half of a contrast set


class Columns(Entry):
    """How a source names its columns. `uid`, `group` and `pair` are templates over a row, {split} and {position}."""

    text: str
    text_pair: str = ""
    label: str
    labels: tuple[str, ...]  # as the source writes them, in the order of ours
    uid: str = "{position}"
    group: str = ""
    pair: str = ""  # contrast sets: what the original and its edited version have in common
    unlabelled: str | None = None  # rows with this label are dropped, as the official readers do

    @property
    def needed(self) -> list[str]:
        templates = string.Formatter().parse(self.uid + self.group + self.pair)
        named = {self.text, self.text_pair, self.label, *(name or "" for _, name, _, _ in templates)}
        return sorted(named - {"", "split", "position"})


class Hub(Entry):
    """A set on the Hugging Face hub. The revisions were seen pinned in public projects, not checked on the hub."""

    id: str
    config: str | None = None
    revision: str
    splits: Mapping[str, str]  # release split -> hub split
    columns: Columns


class RawFiles(Entry):
    """The release files themselves, at one commit of a public repository; verified by sha256."""

    repository: str
    commit: str


class DataSet(Entry):
    """Everything `load` has to know about one set."""

    name: str
    label_names: tuple[str, ...]
    files: tuple[ReleaseFile, ...]
    format: Literal["tsv", "csv", "jsonl"]  # tsv: quoting off; csv: tab-separated, with CSV quoting
    columns: Columns
    licence: str
    when_gone: str
    hub: Hub | None = None
    raw_files: RawFiles | None = None
    options: Mapping[str, tuple[str, ...]] = {}  # name -> splits, default first
    clean: Literal["strip", "without_line_breaks", "csv_unquoted", "from_bytes_literal"] = "strip"  # releases.CLEANERS
    paired: bool = False  # of an original and its edited version, whose gold labels differ
    folded: bool = False  # two labels, entailment or not, that a model with three labels is tested on

    @property
    def is_train(self) -> bool:
        """A training set may be a subset; an evaluation set must be whole."""
        return self.name.endswith("_train")

    @property
    def is_bundled(self) -> bool:
        return self.name.startswith("testbed_")

    @property
    def remote(self) -> Hub | RawFiles | None:
        return self.hub or self.raw_files

    @property
    def split_options(self) -> Mapping[str, tuple[str, ...]]:
        """What `splits` of `load` may be, the default first; several only where the paper leaves the split open."""
        return self.options or {self.files[0].split: (self.files[0].split,)}

    def of_splits(self, option: str) -> list[ReleaseFile]:
        return [file for split in self.split_options[option] for file in self.files if file.split == split]


def get_set(set_name: str) -> DataSet:
    check_choice("set", set_name, SETS)
    return SETS[set_name]


def read_entries(file: str) -> dict[str, dict]:
    """Of a YAML file in this folder."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the one in C takes 4 ms instead of 130


SETS = {name: DataSet(name=name, **entry) for name, entry in read_entries("registry.yaml").items()}
