"""A treebank in CoNLL-U: sentences with their dependency trees."""

from pathlib import Path
from typing import NamedTuple

from mtlib.data.identity import name_with_hash
from mtlib.errors import UserError

# of Universal Dependencies, without their subtypes
RELATIONS = (
    "acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound", "conj", "cop", "csubj",
    "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list", "mark", "nmod",
    "nsubj", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum", "root", "vocative", "xcomp",
)  # fmt: skip


class Sentence(NamedTuple):
    """A tree over words: the head of each (numbered from 1; 0 is the root) and its relation."""

    words: list[str]
    heads: list[int]
    relations: list[str]


def training_files(folder: str | Path) -> list[Path]:
    paths = sorted(Path(folder).glob("*train*.conllu"))
    if not paths:
        raise UserError(f"{folder} has no file *train*.conllu; expected the folder of a treebank in CoNLL-U.")
    return paths


def development_files(folder: str | Path) -> list[Path]:
    return sorted(Path(folder).glob("*dev*.conllu"))


def describe_treebank(folder: str | Path) -> str:
    """For records: the folder's name and the start of the sha256 of its training files."""
    return name_with_hash(folder, training_files(folder))


def read_conllu(path: Path) -> list[Sentence]:
    """The sentences of a file.

    Lines of words that are written together ("4-5") and of words that are not there ("4.1") are skipped.

    Raises:
        UserError: not UTF-8; a line that is no word; an unknown relation; heads that are no tree with one root.
    """
    sentences, words, heads, relations, first = [], [], [], [], 0
    for number, line in enumerate([*_text(path).split("\n"), ""], start=1):
        if not line.strip():
            if words:
                _check_tree(heads, f"{path}, line {first}")
                sentences.append(Sentence(words, heads, relations))
                words, heads, relations = [], [], []
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if "-" in fields[0] or "." in fields[0]:
            continue
        if len(fields) < 8 or fields[0] != str(len(words) + 1) or not fields[6].isdecimal():
            raise UserError(f"{path}, line {number} is no word of a tree in CoNLL-U: {line[:60]!r}.")
        relation = fields[7].split(":")[0]  # "nmod:poss" is a kind of "nmod"
        if relation not in RELATIONS:
            raise UserError(f"{path}, line {number}: {relation!r} is no relation of Universal Dependencies.")
        if not words:
            first = number  # line of the sentence
        words.append(fields[1])
        heads.append(int(fields[6]))
        relations.append(relation)
    return sentences


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a mark at a file's beginning
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8, as CoNLL-U is.") from error


def _check_tree(heads: list[int], sentence: str) -> None:
    """Raise `UserError` unless there is one root, from which every word is reached."""
    if max(heads) > len(heads):
        raise UserError(
            f"{sentence}: the sentence has {len(heads)} words, but one with the head {max(heads)}; expected the number "
            "of a word, or 0 for the root."
        )
    if (roots := heads.count(0)) != 1:
        raise UserError(f"{sentence}: the sentence has {roots} words with the head 0; expected one, the root.")
    reached, new = set(), {0}
    while new:
        reached |= new
        new = {word for word, head in enumerate(heads, start=1) if head in new}
    if circle := {*range(len(heads) + 1)} - reached:
        raise UserError(
            f"{sentence}: the heads of the words {', '.join(map(str, sorted(circle)))} lead in a circle; expected a "
            "tree, in which they lead to the root."
        )
