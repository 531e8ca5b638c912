"""IPT, intermediate parser training: biaffine dependency parsing, then fine-tuning (Glavaš & Vulić 2021)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
from datasets import Dataset
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, pad

from mtlib.contexts import evaluating
from mtlib.encoding import Collator, batches_by_length
from mtlib.marking import check_offsets
from mtlib.method import LearningRates, Method, Prepared, Preparer, Stage
from mtlib.methods.treebank import RELATIONS, Sentence, development_files, read_conllu, training_files
from mtlib.objectives import FineTuning, Objective, ObjectiveOutput, require_built
from mtlib.plm import SharedPLM
from mtlib.settings import Above0, Count, Name, Settings
from mtlib.tokens import text_reader

NO_WORD = -100  # pads heads and relations; cross_entropy leaves it out
MOST_WORDS, MOST_PIECES = 105, 128  # of Glavaš & Vulić; longer sentences are left out


def parsing_losses(arc_scores: Tensor, relation_scores: Tensor, heads: Tensor, relations: Tensor) -> dict[str, Tensor]:
    """The terms of L = CE(arc, gold head) + CE(relation at the gold head, gold relation), means over the words.

    Args:
        arc_scores: of each candidate (the root, then the words) as head of each word, `(batch, words, 1 + words)`.
        relation_scores: of each word with its gold head, `(batch, words, relations)`.
        heads, relations: gold, `(batch, words)`; `NO_WORD` where there is none.

    Returns:
        `arc_loss` and `relation_loss`: scalars, nats, float32.
    """
    n_words = (heads != NO_WORD).sum().clamp(min=1)

    def mean(scores: Tensor, gold: Tensor) -> Tensor:
        scores = scores.float().flatten(0, 1)
        return cross_entropy(scores, gold.flatten(), ignore_index=NO_WORD, reduction="sum") / n_words

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
        right = (parse.arc_scores.argmax(-1) == heads).sum()
        parts["share_right_heads"] = right / (heads != NO_WORD).sum().clamp(min=1)
        return ObjectiveOutput(parts, {"arc_loss": 1.0, "relation_loss": 1.0})

    def parse(self, plm: SharedPLM, batch: dict) -> Parse:
        """The scores of a batch with `words` and gold `heads`; the argmax of `arc_scores` is the predicted head."""
        output, heads = plm.trunk_output(batch), batch["heads"]
        states = output.encoder_last_hidden_state if plm.config.is_encoder_decoder else output.last_hidden_state
        words = _word_means(states, batch["words"], heads.shape[1])  # (batch, words, hidden)
        candidates = torch.cat([text_state(plm, output, batch)[:, None], words], dim=1)  # (batch, 1 + words, hidden)
        dependents = pad(words, (0, 1), value=1.0)  # (batch, words, hidden + 1)
        arc_scores = dependents @ self.arc @ candidates.mT
        no_word = pad(heads == NO_WORD, (1, 0), value=False)  # (batch, 1 + words)
        arc_scores = arc_scores.float().masked_fill(no_word[:, None], -torch.inf)
        places = heads.clamp(min=0)[:, :, None].expand(-1, -1, candidates.shape[-1])
        gold_heads = pad(candidates.gather(1, places), (0, 1), value=1.0)  # (batch, words, hidden + 1)
        relation_scores = torch.einsum("bwd,rde,bwe->bwr", dependents, self.relation, gold_heads)
        return Parse(arc_scores, relation_scores)


def text_state(plm: SharedPLM, output, batch: dict) -> Tensor:
    """A state of each whole text in what the trunk gave back, `(batch, hidden)`, where nothing is classified.

    The pooler's where there is one (BERT), the last `</s>` of the decoder (BART), else the first token (RoBERTa).
    """
    if getattr(output, "pooler_output", None) is not None:
        return output.pooler_output
    states = output.last_hidden_state  # (batch, seq, hidden)
    if not plm.config.is_encoder_decoder:
        return states[:, 0]
    places = torch.arange(states.shape[1], device=states.device)
    last = ((batch["input_ids"] == plm.config.eos_token_id) * places).argmax(1)  # (batch,)
    return states[torch.arange(len(states), device=states.device), last]


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
        training_files(self.folder)
        for path in development_files(self.folder):
            read_conllu(path)  # a mistake in it would otherwise come to light after the training
        check_offsets(plm.tokenizer, self)

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        rows, left_out = _rows(training_files(self.folder), plm)
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


def _rows(paths: list[Path], plm: SharedPLM) -> tuple[list[dict], int]:
    """The sentences of the files as model inputs, and how many were left out."""
    sentences = [sentence for path in paths for sentence in read_conllu(path)]
    read = text_reader(plm.tokenizer)
    rows = [_tokenised(sentence, read) for sentence in sentences if len(sentence.words) <= MOST_WORDS]
    kept = [row for row in rows if row is not None and row["length"] <= _most_pieces(plm)]
    return kept, len(sentences) - len(kept)


def _most_pieces(plm: SharedPLM) -> int:
    return min(MOST_PIECES, plm.longest)


def _tokenised(sentence: Sentence, tokenizer) -> dict | None:
    """The sentence as model inputs; None where a word has no piece of its own."""
    text = " ".join(sentence.words)
    word_of = [number for number, word in enumerate(sentence.words, start=1) for _ in f"{word} "]  # by character
    encoded = dict(tokenizer(text, return_offsets_mapping=True))
    # by a piece's last character: its first may be the space before the word
    words = [word_of[end - 1] if end > start else 0 for start, end in encoded.pop("offset_mapping")]
    if len({*words} - {0}) < len(sentence.words):
        return None
    relations = [RELATIONS.index(relation) for relation in sentence.relations]
    return {**encoded, "length": len(words), "words": words, "heads": sentence.heads, "relations": relations}


class ParsingSettings(Settings):
    treebank: Annotated[Name, Field(description="folder with a treebank in CoNLL-U, for example UD English-EWT")]
    parsing_epochs: Annotated[Above0 | None, Field(description="of parsing (default: as in fine-tuning)")] = None
    parsing_steps: Annotated[Count | None, Field(description="of parsing, instead of epochs")] = None
    parsing_learning_rate: Annotated[
        Above0 | None, Field(description="of parsing, for trunk and parser (default: those of fine-tuning)")
    ] = None

    def unread(self) -> dict[str, str]:
        return {} if self.parsing_epochs is None else {"parsing_steps": "parsing_epochs is given too"}


def _stages(settings: ParsingSettings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
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


IPT = Method(
    "ipt", "IPT", "dependency parsing on a treebank, then fine-tuning",
    _stages, ParsingSettings, paper="IPT-standard", colour="#999933", marker="d",
)  # fmt: skip
