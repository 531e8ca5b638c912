"""IPT, intermediate parser training: dependency parsing, then fine-tuning (Glavaš & Vulić 2021)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, pad

from mtlib.contexts import evaluating
from mtlib.encoding import Collator, batches_by_length
from mtlib.errors import UserError
from mtlib.method import LearningRates, Stage
from mtlib.methods.settings import ParsingSettings, treebank_files
from mtlib.methods.states import classify_with_states
from mtlib.objectives import FineTuning, Objective, ObjectiveOutput, require_built
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform
from mtlib.spans import check_offsets
from mtlib.tokens import text_reader

NO_WORD = -100  # pads heads and relations; cross_entropy ignores it
# of Glavaš & Vulić; longer sentences are left out
MOST_WORDS = 105
MOST_PIECES = 128
# of Universal Dependencies, without their subtypes
RELATIONS = (
    "acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound",
    "conj", "cop", "csubj", "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat",
    "goeswith", "iobj", "list", "mark", "nmod", "nsubj", "nummod", "obj", "obl", "orphan",
    "parataxis", "punct", "reparandum", "root", "vocative", "xcomp",
)  # fmt: skip


def parsing_losses(
    arc_scores: Tensor,
    relation_scores: Tensor,
    heads: Tensor,
    relations: Tensor,
) -> dict[str, Tensor]:
    """The terms of L = CE(arc, gold head) + CE(relation at the gold head, gold relation).

    Both are means over the words (Glavaš & Vulić 2021).

        arc_scores = torch.zeros(1, 1, 2)  # one word: the root or itself
        heads = relations = torch.tensor([[0]])
        parsing_losses(arc_scores, torch.zeros(1, 1, 37), heads, relations)  # log 2, log 37

    Args:
        arc_scores: of each candidate (the root, then the words) as head of each word,
            `(batch, words, 1 + words)`.
        relation_scores: of each word with its gold head, `(batch, words, relations)`.
        heads, relations: gold, `(batch, words)`; `NO_WORD` where there is none.

    Returns:
        `arc_loss` and `relation_loss`: scalars, nats, float32.
    """
    return {
        "arc_loss": _mean_over_words(arc_scores, heads),
        "relation_loss": _mean_over_words(relation_scores, relations),
    }


def _mean_over_words(scores: Tensor, gold: Tensor) -> Tensor:
    """The mean cross-entropy of the words' gold classes, padding left out."""
    flat_scores = scores.float().flatten(0, 1)  # (batch * words, classes)
    return cross_entropy(flat_scores, gold.flatten(), ignore_index=NO_WORD)


class Parse(NamedTuple):
    """The scores of a batch of sentences."""

    arc_scores: Tensor  # (batch, words, 1 + words)
    relation_scores: Tensor  # (batch, words, relations), with the given heads


class DependencyParsing(Objective):
    """Biaffine parsing: `[d; 1] W h` scores h as the head of a word d.

    `[d; 1] W_r [h; 1]` scores the relation r between the two. A word is the mean of its pieces'
    states; the root is the state of the whole text, which a classifier reads. There is no layer
    between the states and W. The head is discarded after the stage; the trunk stays.
    (Unlike in the released code, W and W_r do not start at 0, padding is no candidate, the states
    of the words have no further dropout, and subtypes of relations are left out.)
    """

    name = "dependency_parsing"
    classifies = False
    columns = {"words": 0, "heads": NO_WORD, "relations": NO_WORD}

    def __init__(self):
        super().__init__()
        self.arc: nn.Parameter | None = None
        self.relation: nn.Parameter | None = None

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        hidden = plm.config.hidden_size
        self.arc = nn.Parameter(torch.empty(hidden + 1, hidden))
        self.relation = nn.Parameter(torch.empty(len(RELATIONS), hidden + 1, hidden + 1))
        for weight in (self.arc, self.relation):
            # states have a length of sqrt(hidden), so that scores are near 1
            nn.init.normal_(weight, std=1 / hidden)

    def denominators(self, batch: dict) -> dict[str, Tensor | int]:
        n_words = (batch["heads"] != NO_WORD).sum()
        return dict.fromkeys(("arc_loss", "relation_loss", "share_right_heads"), n_words)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        require_built(self, self.arc)
        heads = batch["heads"]  # (batch, words)
        parse = self.parse(plm, batch)
        components = parsing_losses(*parse, heads, batch["relations"])
        correct = parse.arc_scores.argmax(-1) == heads  # (batch, words)
        components["share_right_heads"] = correct[heads != NO_WORD].float().mean()
        return ObjectiveOutput(components, {"arc_loss": 1.0, "relation_loss": 1.0})

    def parse(self, plm: SharedPLM, batch: dict) -> Parse:
        """The scores of a batch with `words` and gold `heads`.

        The predicted head is the argmax of `arc_scores`.
        """
        heads = batch["heads"]  # (batch, words)
        states = classify_with_states(plm, batch)
        words = _word_means(states.tokens, batch["words"], heads.shape[1])  # (batch, words, hidden)
        candidates = torch.cat([states.text[:, None], words], dim=1)  # (batch, 1 + words, hidden)
        dependents = pad(words, (0, 1), value=1.0)  # (batch, words, hidden + 1)
        arc_scores = dependents @ self.arc @ candidates.mT
        no_word = pad(heads == NO_WORD, (1, 0), value=False)  # (batch, 1 + words)
        arc_scores = arc_scores.float().masked_fill(no_word[:, None], -torch.inf)
        index = heads.clamp(min=0)[:, :, None]  # (batch, words, 1)
        gold_heads = candidates.take_along_dim(index, dim=1)  # (batch, words, hidden)
        gold_heads = pad(gold_heads, (0, 1), value=1.0)  # (batch, words, hidden + 1)
        relation_scores = torch.einsum("bwd,rde,bwe->bwr", dependents, self.relation, gold_heads)
        return Parse(arc_scores, relation_scores)


def _word_means(states: Tensor, words: Tensor, n_words: int) -> Tensor:
    """The mean state of each word's pieces, `(batch, n_words, hidden)`; 0 for padding."""
    belongs = one_hot(words, n_words + 1)[:, :, 1:].to(states.dtype)  # (batch, seq, words)
    return belongs.mT @ states / belongs.sum(1)[:, :, None].clamp(min=1)


@dataclass(frozen=True)
class Treebank(Transform):
    """Replaces the training set by the sentences of the files `*train*.conllu` in a folder.

    Each row has the model's inputs, `length`, `words` (for each token the number of its word, from
    1; 0 for special tokens), and `heads` and `relations` (one for each word). The record gets the
    number of sentences that were left out as too long.
    """

    folder: str | Path

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)
        for path in (*treebank_files(self.folder, "train"), *treebank_files(self.folder, "dev")):
            read_conllu(path)

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        rows, left_out = _encoded_sentences(treebank_files(self.folder, "train"), plm)
        return Prepared(Dataset.from_list(rows), {"sentences_left_out": left_out})

    @torch.no_grad()
    def attachment(self, plm: SharedPLM, objective: DependencyParsing) -> dict[str, float]:
        """`dev_uas`, the unlabelled attachment score: the share of words with the correct head.

        It is measured on the files `*dev*.conllu`, punctuation included; without such files nothing
        is. Sentences are read, and left out, as for training.
        """
        rows, left_out = _encoded_sentences(treebank_files(self.folder, "dev"), plm)
        if not rows:
            return {}
        collate = Collator(plm.tokenizer, objective.columns)
        n_correct = 0.0
        with evaluating(plm):
            examples = Dataset.from_list(rows)
            for _, batch in batches_by_length(examples, collate, plm.device, batch_size=16):
                share = plm(objective, batch).components["share_right_heads"]
                n_words = objective.denominators(batch)["share_right_heads"]
                n_correct += float(share * n_words)
        uas = n_correct / sum(len(row["heads"]) for row in rows)
        return {"dev_uas": round(uas, 4), "dev_sentences_left_out": left_out}


class Sentence(NamedTuple):
    """A tree over words."""

    words: tuple[str, ...]
    heads: tuple[int, ...]  # words are numbered from 1; 0 is the root
    relations: tuple[int, ...]  # to the heads, as indices of `RELATIONS`


def read_conllu(path: Path) -> list[Sentence]:
    """The sentences of a file.

    Contractions ("4-5") and words that are not written ("4.1") are left out.

    Raises:
        UserError: a sentence that is not a tree with one root and known relations.
    """
    sentences = []
    for block in re.split(r"\n{2,}", path.read_text(encoding="utf-8-sig").strip()):
        try:
            sentences.append(_read_sentence(block))
        except (IndexError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} is no treebank in CoNLL-U: expected sentences with an empty line between "
                "them, each with one root and relations of Universal Dependencies, "
                f"not:\n{block[:300]}"
            ) from error
    return sentences


def _read_sentence(block: str) -> Sentence:
    words = []
    for line in block.splitlines():
        row = line.split("\t")
        if row[0].isdecimal():
            relation = row[7].split(":")[0]  # "nmod:poss" is a kind of "nmod"
            words.append((row[1], int(row[6]), RELATIONS.index(relation)))
    sentence = Sentence(*zip(*words, strict=True))  # a TypeError where there are no words
    if max(sentence.heads) > len(words) or sentence.heads.count(0) != 1:
        raise ValueError("not a tree with one root")
    return sentence


def _encoded_sentences(paths: list[Path], plm: SharedPLM) -> tuple[list[dict], int]:
    """The sentences of the files as model inputs, and how many were left out.

    Sentences that are too long are left out, and those with a word that has no piece.
    """
    read = text_reader(plm.tokenizer)
    longest = min(MOST_PIECES, plm.longest)
    sentences = [sentence for path in paths for sentence in read_conllu(path)]
    rows = []
    for words, heads, relations in sentences:
        inputs = dict(read(" ".join(words), return_offsets_mapping=True, verbose=False))
        numbers = _word_numbers(words, inputs.pop("offset_mapping"))
        too_long = len(words) > MOST_WORDS or len(numbers) > longest
        has_all_words = len({*numbers} - {0}) == len(words)
        if has_all_words and not too_long:
            columns = {
                "length": len(numbers),
                "words": numbers,
                "heads": list(heads),
                "relations": list(relations),
            }
            rows.append(inputs | columns)
    return rows, len(sentences) - len(rows)


def _word_numbers(words: tuple[str, ...], offsets: list[tuple[int, int]]) -> list[int]:
    """For each token the number of its word, from 1; 0 for special tokens."""
    word_of_character = []
    for number, word in enumerate(words, start=1):
        word_of_character += [number] * len(f"{word} ")
    numbers = []
    for start, end in offsets:
        # by the piece's last character: its first may be the space before the word
        numbers.append(word_of_character[end - 1] if end > start else 0)
    return numbers


def ipt(settings: ParsingSettings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
    """Parsing runs for the given epochs; the published training stops at the best UAS on dev."""
    treebank = Treebank(settings.treebank)
    parsing_rates = rates
    if settings.parsing_learning_rate is not None:
        parsing_rates = LearningRates.alike(settings.parsing_learning_rate)
    parsing = Stage(
        DependencyParsing(),
        parsing_rates,
        (treebank,),
        epochs=settings.parsing_epochs,
        steps=settings.parsing_steps,
        measure=treebank.attachment,
    )
    return (parsing, Stage(FineTuning(), rates))
