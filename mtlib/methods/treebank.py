"""Sentences with their dependency trees, read from a treebank in CoNLL-U."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from datasets import Dataset

from mtlib.contexts import evaluating
from mtlib.data.identity import name_with_hash
from mtlib.encoding import Collator, batches_by_length
from mtlib.errors import UserError
from mtlib.methods.ipt import RELATIONS, DependencyParsing
from mtlib.plm import SharedPLM
from mtlib.preparer import Prepared, Preparer

MOST_WORDS, MOST_PIECES = 105, 128  # of Glavaš & Vulić; longer sentences are left out


class Sentence(NamedTuple):
    """A tree over words: the head of each (numbered from 1; 0 is the root) and its relation."""

    words: list[str]
    heads: list[int]
    relations: list[str]


@dataclass(frozen=True)
class Treebank(Preparer):
    """Takes the place of the training set: the sentences of the files `*train*.conllu` in a folder, tokenised.

    Each row has, beside the model's inputs and `length`, `words` (one number a token: its word, from 1; 0 for special
    tokens), `heads` and `relations` (one a word). Counts the sentences that were left out as too long.
    """

    folder: str | Path

    def check(self, plm: SharedPLM) -> None:
        training_files(self.folder)
        for path in development_files(self.folder):
            read_conllu(path)  # a mistake in it would otherwise come to light after the training
        if not plm.tokenizer.is_fast:
            raise UserError(
                f"{type(plm.tokenizer).__name__} does not say which piece belongs to which word; IPT needs a fast "
                "tokenizer."
            )

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        rows, left_out = _rows(training_files(self.folder), plm)
        if not rows:
            raise UserError(
                f"{self.folder} has no sentence that fits into {_most_pieces(plm)} pieces; take another, or another "
                "model."
            )
        return Prepared(Dataset.from_list(rows), {"sentences_left_out": left_out})

    @torch.no_grad()
    def attachment(self, plm: SharedPLM, objective: DependencyParsing) -> dict[str, float]:
        """`dev_uas`, the unlabelled attachment score: the share of words whose predicted head is right.

        Of the files `*dev*.conllu`, punctuation included; nothing if there are none. Sentences are read, and left out,
        as for training.
        """
        rows, left_out = _rows(development_files(self.folder), plm)
        if not rows:
            return {}
        name, right, n_words = "share_right_heads", 0.0, sum(len(row["heads"]) for row in rows)
        collate = Collator(plm.tokenizer, objective.columns)
        with evaluating(plm):
            for _, batch in batches_by_length(Dataset.from_list(rows), collate, plm.device, batch_size=16):
                right += float(plm(objective, batch).parts[name] * objective.sizes(batch)[name])
        return {"dev_uas": round(right / n_words, 4), "dev_sentences_left_out": left_out}


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


def _rows(paths: list[Path], plm: SharedPLM) -> tuple[list[dict], int]:
    """The sentences of the files as model inputs, and how many were left out."""
    sentences = [sentence for path in paths for sentence in read_conllu(path)]
    rows = [_tokenised(sentence, plm.tokenizer) for sentence in sentences if len(sentence.words) <= MOST_WORDS]
    kept = [row for row in rows if row is not None and row["length"] <= _most_pieces(plm)]
    return kept, len(sentences) - len(kept)


def _most_pieces(plm: SharedPLM) -> int:
    return min(MOST_PIECES, plm.longest)


def _tokenised(sentence: Sentence, tokenizer) -> dict | None:
    """The sentence as model inputs; None where a word has no piece of its own."""
    text = " ".join(sentence.words)
    word_of = [number for number, word in enumerate(sentence.words, start=1) for _ in f"{word} "]  # by character
    encoded = dict(tokenizer(text, return_offsets_mapping=True, split_special_tokens=True))
    # by a piece's last character: its first may be the space before the word
    words = [word_of[end - 1] if end > start else 0 for start, end in encoded.pop("offset_mapping")]
    if len({*words} - {0}) < len(sentence.words):
        return None
    relations = [RELATIONS.index(relation) for relation in sentence.relations]
    return {**encoded, "length": len(words), "words": words, "heads": sentence.heads, "relations": relations}
