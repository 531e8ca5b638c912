"""A treebank in CoNLL-U: sentences with their dependency trees."""

from pathlib import Path
from typing import NamedTuple

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


def read_conllu(path: Path) -> list[Sentence]:
    """The sentences of a file.

    Lines of words that are written together ("4-5") and of words that are not there ("4.1") are skipped.

    Raises:
        UserError: a line that is no word, or has an unknown relation; heads that are no tree with one root.
    """
    lines = path.read_text(encoding="utf-8-sig").split("\n")  # some editors put a mark at a file's beginning
    sentences, words = [], []
    for number, line in enumerate([*lines, ""], start=1):
        fields, where = line.split("\t"), f"{path}, line {number}"
        if not line.strip():
            if words:
                sentences.append(_tree(words, where))
            words = []
            continue
        if line.startswith("#") or "-" in fields[0] or "." in fields[0]:
            continue
        relation = fields[7].split(":")[0] if len(fields) > 7 else ""  # "nmod:poss" is a kind of "nmod"
        if relation not in RELATIONS or fields[0] != str(len(words) + 1) or not fields[6].isdecimal():
            raise UserError(
                f"{where} is no word of a tree in CoNLL-U with a relation of Universal Dependencies: {line[:60]!r}."
            )
        words.append((fields[1], int(fields[6]), relation))
    return sentences


def _tree(words: list[tuple[str, int, str]], where: str) -> Sentence:
    sentence = Sentence(*map(list, zip(*words, strict=True)))
    heads = [0, *sentence.heads]
    inside = max(heads) <= len(words)
    reached = heads if inside else []
    for _ in words:  # after as many steps up as there are words, all are at the root
        reached = [heads[word] for word in reached]
    if not inside or heads.count(0) != 2 or any(reached):
        raise UserError(
            f"{where}: the sentence before has the heads {sentence.heads}, which are no tree; expected one word with "
            "the head 0, the root, to which those of all others lead."
        )
    return sentence
