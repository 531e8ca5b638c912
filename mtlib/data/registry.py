"""What the sets are: `SETS`, read from registry.yaml; no data is read, and no server is asked."""

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from mtlib.data.yaml_files import load_yaml
from mtlib.errors import UserError
from mtlib.settings import as_user_error, check_choice


class Entry(BaseModel):
    """A part of an entry of a YAML file: a field that is not declared is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Copy(Entry):
    """A copy of a release file that is known by its checksum; `note` says how its rows deviate."""

    sha256: str
    rows: int | None = None  # None: as many as the file has officially
    note: str = ""


class ReleaseFile(Entry):
    """One file of an original release."""

    split: str
    path: str  # dataset folder + path inside the release; the folder may be left out on disk
    rows: int | None = None  # the official number of labelled rows (None: not fixed)
    may_be_subset: bool = False  # for training; what is evaluated must be whole
    sha256: str = ""  # of the file as published, where that is known
    copies: tuple[Copy, ...] = ()
    half: str = ""  # "original" or "edited" where a file holds one half of a contrast set


class Columns(Entry):
    """How a source names its columns.

    `uid`, `group` and `pair` are templates over a row, {split} and {position}.
    """

    text: str
    text_pair: str = ""
    label: str
    labels: tuple[str, ...]  # as the source writes them, in the order of ours
    uid: str = "{position}"
    group: str = ""
    pair: str = ""  # contrast sets: what the original and its edited version have in common
    unlabelled: str | None = None  # rows with this label are dropped, as the official readers do

    @property
    def texts(self) -> dict[str, str]:
        """Our names of the columns with texts, and the source's."""
        names = {"text": self.text, "text_pair": self.text_pair}
        return {ours: theirs for ours, theirs in names.items() if theirs}

    @property
    def needed(self) -> list[str]:
        """The source's columns that are read."""
        templates = string.Formatter().parse(self.uid + self.group + self.pair)
        in_templates = {name for _, name, _, _ in templates if name} - {"split", "position"}
        return sorted({*self.texts.values(), self.label} | in_templates)


class Hub(Entry):
    """A set on the Hugging Face hub.

    The revisions were seen pinned in public projects, not checked on the hub.
    """

    id: str
    config: str | None = None
    revision: str
    splits: Mapping[str, str]  # release split -> hub split
    columns: Columns


class RawFiles(Entry):
    """The release files themselves, at one commit of a public repository; verified by sha256."""

    repository: str
    commit: str


# how the texts of a release are cleaned, see `releases.CLEANERS`
Cleaning = Literal["strip", "without_line_breaks", "csv_unquoted", "from_bytes_literal"]


class DataSet(Entry):
    """Everything `load` has to know about one set."""

    name: str
    label_names: tuple[str, ...]
    files: tuple[ReleaseFile, ...]
    format: Literal["csv", "tsv", "tsv_quoted", "jsonl"]  # tsv: quoting is off
    columns: Columns
    licence: str
    when_gone: str
    hub: Hub | None = None
    raw_files: RawFiles | None = None
    options: Mapping[str, tuple[str, ...]] = {}  # name -> splits, default first
    clean: Cleaning = "strip"
    bundled: bool = False  # comes with the project, or from `mtlib testbed`: nothing to download
    paired: bool = False  # of an original and its edited version, whose gold labels differ
    folded: bool = False  # two labels, entailment or not, that a model with three is tested on

    @model_validator(mode="after")
    def _names_every_label(self) -> Self:
        for columns in (self.columns, self.hub.columns if self.hub else self.columns):
            if len(columns.labels) != len(self.label_names):
                raise UserError(
                    f"labels are {', '.join(columns.labels)}, and label_names has "
                    f"{', '.join(self.label_names)}; expected as many, in one order."
                )
        return self

    @property
    def remote(self) -> Hub | RawFiles | None:
        """Where it can be downloaded."""
        return self.hub or self.raw_files

    @property
    def split_options(self) -> Mapping[str, tuple[str, ...]]:
        """What `splits` of `load` may be, the default first."""
        return self.options or {self.files[0].split: (self.files[0].split,)}

    def files_of(self, option: str) -> list[ReleaseFile]:
        """The files of one of the `split_options`."""
        splits = self.split_options[option]
        return [file for split in splits for file in self.files if file.split == split]


def get_set(set_name: str) -> DataSet:
    check_choice("set", set_name, SETS)
    return SETS[set_name]


NamedEntry = TypeVar("NamedEntry", bound=Entry)


def read_entries(file: str, model: type[NamedEntry]) -> dict[str, NamedEntry]:
    """The entries of a YAML file in this folder, by name.

    Raises:
        UserError: an entry lacks a field or has a wrong one; names file, entry and field.
    """
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    try:
        entries = load_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(f"{file} cannot be read: {' '.join(str(error).split())}.") from error
    return {name: _read_entry(file, name, fields, model) for name, fields in entries.items()}


def _read_entry(file: str, name: str, fields: object, model: type[NamedEntry]) -> NamedEntry:
    where = f"{file}, entry {name!r}"
    if not isinstance(fields, dict):
        raise UserError(f"{where} is {fields!r}; expected fields, as the other entries have.")
    try:
        return model(**{"name": name} | fields)
    except ValidationError as error:
        message = as_user_error(error, _fields())
        raise UserError(f"{where}: {message} See `{model.__name__}` in mtlib/data.") from error


def _fields() -> dict[str, FieldInfo]:
    """The fields of all parts of an entry."""
    fields = {}
    for part in Entry.__subclasses__():
        fields |= part.model_fields
    return fields


SETS = read_entries("registry.yaml", DataSet)
