"""IPT, intermediate parser training: biaffine dependency parsing, then fine-tuning (Glavaš & Vulić 2021)."""

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
from mtlib.marking import check_offsets
from mtlib.method import LearningRates, Stage
from mtlib.methods.settings import ParsingSettings
from mtlib.methods.states import classify_with_states
from mtlib.objectives import FineTuning, Objective, ObjectiveOutput, require_built
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Preparer
from mtlib.tokens import text_reader

NO_WORD = -100  # pads heads and relations; cross_entropy leaves it out
MOST_WORDS, MOST_PIECES = 105, 128  # of Glavaš & Vulić; longer sentences are left out
# of Universal Dependencies, without their subtypes
RELATIONS = (
    "acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound", "conj", "cop", "csubj",
    "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list", "mark", "nmod",
    "nsubj", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum", "root", "vocative", "xcomp",
)  # fmt: skip


def parsing_losses(arc_scores: Tensor, relation_scores: Tensor, heads: Tensor, relations: Tensor) -> dict[str, Tensor]:
    """The terms of L = CE(arc, gold head) + CE(relation at the gold head, gold relation), means over the words.

    Args:
        arc_scores: of each candidate (the root, then the words) as head of each word, `(batch, words, 1 + words)`.
        relation_scores: of each word with its gold head, `(batch, words, relations)`.
        heads, relations: gold, `(batch, words)`; `NO_WORD` where there is none.

    Returns:
        `arc_loss` and `relation_loss`: scalars, nats, float32.
    """

    def mean(scores: Tensor, gold: Tensor) -> Tensor:
        return cross_entropy(scores.float().flatten(0, 1), gold.flatten(), ignore_index=NO_WORD)

    return {"arc_loss": mean(arc_scores, heads), "relation_loss": mean(relation_scores, relations)}


class Parse(NamedTuple):
    arc_scores: Tensor  # (batch, words, 1 + words)
    relation_scores: Tensor  # (batch, words, relations), with the given heads


class DependencyParsing(Objective):
    """Each word d and each candidate h for its head meet in `[d; 1] W h`, each relation r in `[d; 1] W_r [h; 1]`.

    A word is the mean of its pieces' states; the root is the state of the whole text, which a classifier reads. There
    is no layer between states and W. The head is discarded after the stage; the trunk stays.
    (Unlike in the released code W and W_r do not start at 0, and what only pads a sentence is no candidate.)
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
            nn.init.normal_(weight, std=1 / hidden)  # states have a length of sqrt(hidden): scores near 1

    def sizes(self, batch: dict) -> dict[str, Tensor | int]:
        return dict.fromkeys(("arc_loss", "relation_loss", "share_right_heads"), (batch["heads"] != NO_WORD).sum())

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        require_built(self, self.arc)
        parse, heads = self.parse(plm, batch), batch["heads"]  # (batch, words)
        parts = parsing_losses(*parse, heads, batch["relations"])
        parts["share_right_heads"] = (parse.arc_scores.argmax(-1) == heads)[heads != NO_WORD].float().mean()
        return ObjectiveOutput(parts, {"arc_loss": 1.0, "relation_loss": 1.0})

    def parse(self, plm: SharedPLM, batch: dict) -> Parse:
        """The scores of a batch with `words` and gold `heads`; the argmax of `arc_scores` is the predicted head."""
        states, heads = classify_with_states(plm, batch), batch["heads"]
        words = _word_means(states.tokens, batch["words"], heads.shape[1])  # (batch, words, hidden)
        candidates = torch.cat([states.text[:, None], words], dim=1)  # (batch, 1 + words, hidden)
        dependents = pad(words, (0, 1), value=1.0)  # (batch, words, hidden + 1)
        arc_scores = dependents @ self.arc @ candidates.mT
        no_word = pad(heads == NO_WORD, (1, 0), value=False)  # (batch, 1 + words)
        arc_scores = arc_scores.float().masked_fill(no_word[:, None], -torch.inf)
        places = heads.clamp(min=0)[:, :, None].expand(-1, -1, candidates.shape[-1])
        gold_heads = pad(candidates.gather(1, places), (0, 1), value=1.0)  # (batch, words, hidden + 1)
        relation_scores = torch.einsum("bwd,rde,bwe->bwr", dependents, self.relation, gold_heads)
        return Parse(arc_scores, relation_scores)


def _word_means(states: Tensor, words: Tensor, n_words: int) -> Tensor:
    """The mean state of each word's pieces, `(batch, n_words, hidden)`; 0 for a word that only pads."""
    belongs = one_hot(words, n_words + 1)[:, :, 1:].to(states.dtype)  # (batch, seq, words)
    return belongs.mT @ states / belongs.sum(1)[:, :, None].clamp(min=1)


@dataclass(frozen=True)
class Treebank(Preparer):
    """Takes the place of the training set: the sentences of the files `*train*.conllu` in a folder, tokenised.

    Each row has, beside the model's inputs and `length`, `words` (one number a token: its word, from 1; 0 for special
    tokens), `heads` and `relations` (one a word). Counts the sentences that were left out as too long.
    """

    folder: str | Path

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)
        for path in (*files_of(self.folder, "train"), *files_of(self.folder, "dev")):
            read_conllu(path)

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        rows, left_out = _rows(files_of(self.folder, "train"), plm)
        return Prepared(Dataset.from_list(rows), {"sentences_left_out": left_out})

    @torch.no_grad()
    def attachment(self, plm: SharedPLM, objective: DependencyParsing) -> dict[str, float]:
        """`dev_uas`, the unlabelled attachment score: the share of words whose predicted head is right.

        Of the files `*dev*.conllu`, punctuation included; nothing if there are none. Sentences are read, and left out,
        as for training.
        """
        rows, left_out = _rows(files_of(self.folder, "dev"), plm)
        if not rows:
            return {}
        name, right, n_words = "share_right_heads", 0.0, sum(len(row["heads"]) for row in rows)
        collate = Collator(plm.tokenizer, objective.columns)
        with evaluating(plm):
            for _, batch in batches_by_length(Dataset.from_list(rows), collate, plm.device, batch_size=16):
                right += float(plm(objective, batch).parts[name] * objective.sizes(batch)[name])
        return {"dev_uas": round(right / n_words, 4), "dev_sentences_left_out": left_out}


def files_of(folder: str | Path, part: str) -> list[Path]:
    """The files of a treebank whose name has "train" or "dev" in it; the latter need not be there."""
    paths = sorted(Path(folder).glob(f"*{part}*.conllu"))
    if not paths and part == "train":
        raise UserError(f"{folder} has no file *train*.conllu; expected the folder of a treebank in CoNLL-U.")
    return paths


class Sentence(NamedTuple):
    """A tree over words."""

    words: tuple[str, ...]
    heads: tuple[int, ...]  # words are numbered from 1; 0 is the root
    relations: tuple[int, ...]  # to the heads, by their numbers in `RELATIONS`


def read_conllu(path: Path) -> list[Sentence]:
    """The sentences of a file, without words that are written together ("4-5") or are not there ("4.1").

    Raises:
        UserError: a sentence that is no tree with one root and known relations.
    """
    sentences = []
    for block in re.split(r"\n{2,}", path.read_text(encoding="utf-8-sig").strip()):
        rows = [line.split("\t") for line in block.splitlines()]
        try:  # "nmod:poss" is a kind of "nmod"
            words = [(row[1], int(row[6]), RELATIONS.index(row[7].split(":")[0])) for row in rows if row[0].isdecimal()]
            sentences.append(Sentence(*zip(*words, strict=True)))
            fits = max(sentences[-1].heads) <= len(words) and sentences[-1].heads.count(0) == 1
        except (IndexError, TypeError, ValueError):
            fits = False
        if not fits:
            raise UserError(
                f"{path} is no treebank in CoNLL-U: expected sentences with an empty line between them, each with one "
                f"root and relations of Universal Dependencies, not:\n{block[:300]}"
            )
    return sentences


def _rows(paths: list[Path], plm: SharedPLM) -> tuple[list[dict], int]:
    """The sentences of the files as model inputs, and how many were left out: the long, and words without a piece."""
    rows, read, longest = [], text_reader(plm.tokenizer), min(MOST_PIECES, plm.longest)
    sentences = [sentence for path in paths for sentence in read_conllu(path)]
    for words, heads, relations in sentences:
        word_of = [number for number, word in enumerate(words, start=1) for _ in f"{word} "]  # by character
        encoded = dict(read(" ".join(words), return_offsets_mapping=True, verbose=False))
        # by a piece's last character: its first may be the space before the word
        numbers = [word_of[end - 1] if end > start else 0 for start, end in encoded.pop("offset_mapping")]
        if len(words) <= MOST_WORDS and len(numbers) <= longest and len({*numbers} - {0}) == len(words):
            tree = {"words": numbers, "heads": list(heads), "relations": list(relations)}
            rows.append({**encoded, "length": len(numbers), **tree})
    return rows, len(sentences) - len(rows)


def ipt(settings: ParsingSettings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
    """Parsing runs for the given epochs; the published training stops at the best UAS on the development set."""
    treebank, rate = Treebank(settings.treebank), settings.parsing_learning_rate
    parsing = Stage(
        DependencyParsing(),
        rates if rate is None else LearningRates.alike(rate),
        (treebank,),
        epochs=settings.parsing_epochs,
        steps=settings.parsing_steps,
        measure=treebank.attachment,
    )
    return (parsing, Stage(FineTuning(), rates))
