"""A proxy for a person's "does this word fit here?": tags of the two words, and a masked LM's odds between them.

data/plausibility holds its weights, the hand labels, and how well it agrees with those that it was not fitted to
(`fit.py` fits and measures it). It knows grammar better than sense: read its counts beside that agreement.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
import torch

from mtlib.contexts import evaluating
from mtlib.diversity.fillings import filled_text
from mtlib.errors import UserError
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR, PLAUSIBILITY_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import PosProbe, Span

WEIGHTS_FILE = PLAUSIBILITY_DIR / "weights.json"
FEATURES = ("same_part_of_speech", "same_tag", "known_word", "log_odds", "neighbour_log_odds")
NEIGHBOURS = 2
_BATCH = 32
# tags that stand in the same places: "their" and "the", "but" and "since"
_STANDS_AS = {"PRON/PRP$": "DET", "CCONJ": "SCONJ"}
_CLIP = 10.0


@dataclass(frozen=True)
class Evidence:
    """What the judge knows of one filling.

    Args:
        original_tag, filler_tag: from `PosProbe`, each word in its own sentence.
        known_word: the filler's word is one entry of the scorer's vocabulary, or the probe takes it for a name;
            otherwise it may be no word at all ("re" in place of "spell" makes "rebinding").
        log_odds: log p(filler | context) - log p(original | context), in nats, see `word_scores`.
        neighbour_log_odds: the same difference for the two tokens on each side, which a word that does not agree
            with them makes unlikely ("what *is* a librarian earn").
    """

    original_tag: str
    filler_tag: str
    known_word: bool
    log_odds: float
    neighbour_log_odds: float

    @property
    def same_tag(self) -> bool:
        """Part of speech and, where the tags tell, number, tense and degree."""
        return _stands_as(self.original_tag) == _stands_as(self.filler_tag)

    @property
    def same_part_of_speech(self) -> bool:
        """Names count as nouns, possessives as determiners, conjunctions as one."""
        return _part_of_speech(self.original_tag) == _part_of_speech(self.filler_tag)

    def features(self) -> np.ndarray:
        """`(5,)`, in the order of `FEATURES`: 0 or 1, and log-odds divided by 10 and cut off at -1 and 1."""
        odds = np.clip([self.log_odds, self.neighbour_log_odds], -_CLIP, _CLIP) / _CLIP
        return np.array([self.same_part_of_speech, self.same_tag, self.known_word, *odds], dtype=float)


class PlausibilityJudge:
    """plausible <=> bias + sum of weight x feature >= 0, over the five features of `Evidence`.

    Args:
        scorer: the masked LM that gives the odds. The default is the untouched bundled model: for an arm that started
            from it, it is not an independent judge; pass another (a hub model) to have one.
        weights: by feature, and "bias"; default those fitted to the hand labels with the bundled model. Weights for
            another scorer come from `fit_weights` in data/plausibility/fit.py.
    """

    def __init__(self, scorer: SharedPLM | None = None, weights: dict[str, float] | None = None):
        mini = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
        self.scorer = mini if scorer is None else scorer
        self.probe = PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer)
        self.weights = json.loads(WEIGHTS_FILE.read_text()) if weights is None else weights
        if set(self.weights) != {*FEATURES, "bias"}:
            raise UserError(f"weights are given for {sorted(self.weights)}; expected {', '.join(FEATURES)} and bias.")

    def evidence(self, rows: Sequence[dict]) -> list[Evidence]:
        """The evidence on each row, which has `text`, `start`, `end` and `predicted` as from `record_fillings`.

        Each place is judged by itself: other places of the same example are as in the original.
        """
        places = [Span(row["start"], row["end"]) for row in rows]
        filled_places = [Span(row["start"], row["start"] + len(row["predicted"])) for row in rows]
        tags = self.probe.tag([row["text"] for row in rows], places)
        filler_tags = self.probe.tag([filled_text(row) for row in rows], filled_places)
        contexts = [_words(row) for row in rows]
        original = [(before, was, after) for before, was, _, after in contexts]
        filler = [(before, now, after) for before, _, now, after in contexts]
        asked = list(dict.fromkeys(original + filler))  # arms share places, and often fillers
        score = dict(zip(asked, word_scores(self.scorer, asked), strict=True))
        return [
            Evidence(
                original_tag=tag,
                filler_tag=filler_tag,
                known_word=now.pieces == 1 or filler_tag.startswith("PROPN"),
                log_odds=now.log_p - was.log_p,
                neighbour_log_odds=now.neighbours_log_p - was.neighbours_log_p,
            )
            for tag, filler_tag, was, now in zip(
                tags, filler_tags, map(score.get, original), map(score.get, filler), strict=True
            )
        ]

    def __call__(self, rows: Sequence[dict]) -> list[bool]:
        """Whether each filling is plausible, by proxy.

        A filling without a readable word, or in place of none (a blank, half a character: byte-level vocabularies have
        such entries), is implausible.
        """
        readable = [self._has_words(row) for row in rows]
        evidence = iter(self.evidence(list(compress(rows, readable))))
        return [has_words and plausibility_score(next(evidence), self.weights) >= 0 for has_words in readable]

    def _has_words(self, row: dict) -> bool:
        words = row["predicted"].strip(), row["text"][row["start"] : row["end"]].strip()
        return all(reader.tokenizer.tokenize(word) for reader in (self.probe, self.scorer) for word in words)


def plausibility_score(evidence: Evidence, weights: dict[str, float]) -> float:
    """bias + sum of weight x feature."""
    return weights["bias"] + float(evidence.features() @ [weights[name] for name in FEATURES])


class WordScore(NamedTuple):
    """Of a word in a context: its log-probability and its neighbours', in nats, and its number of pieces."""

    log_p: float
    neighbours_log_p: float
    pieces: int


class _Query(NamedTuple):
    """One pass of the masked LM: tokens `position` to `last` masked, the log-probability of the first one wanted."""

    word: int  # which of the words it scores
    of_neighbour: bool
    encoded: dict
    position: int
    last: int


def word_scores(plm: SharedPLM, words: Sequence[tuple[str, str, str]]) -> list[WordScore]:
    """How likely a masked LM finds each `(before, word, after)`.

    `log_p` is log p(word | before, after). For a word of one piece that is the masked LM's log-probability at its
    place. For one of several pieces it is the sum over pieces j of log p(piece j | pieces before j, with pieces j and
    later masked), the chain rule, which does not reward a rare word for its pieces' giving one another away
    (PLL-word-l2r, Kauf and Ivanova 2023). `neighbours_log_p` is the sum of log p(token | all others) over the two
    ordinary tokens on each side.

    Raises:
        UserError: a word without a token, or behind the model's longest input.
    """
    queries = [query for number, word in enumerate(words) for query in _queries(plm.tokenizer, number, *word)]
    queries.sort(key=lambda query: len(query.encoded["input_ids"]))  # like lengths together: little padding
    sums, n_pieces = np.zeros((len(words), 2)), [0] * len(words)  # (words, [the word, its neighbours])
    with evaluating(plm):
        for first in range(0, len(queries), _BATCH):
            part = queries[first : first + _BATCH]
            for query, log_p in zip(part, _log_p(plm, part), strict=True):
                sums[query.word, int(query.of_neighbour)] += log_p
                n_pieces[query.word] += not query.of_neighbour
    return [WordScore(*log_p, count) for log_p, count in zip(sums.tolist(), n_pieces, strict=True)]


def _queries(tokenizer, number: int, before: str, word: str, after: str) -> list[_Query]:
    text = before + word + after
    encoded = tokenizer(text, truncation=True, return_offsets_mapping=True, return_special_tokens_mask=True)
    offsets, special = encoded.pop("offset_mapping"), encoded.pop("special_tokens_mask")
    start, end = len(before) + len(word) - len(word.lstrip()), len(before) + len(word.rstrip())
    pieces = [i for i, (left, right) in enumerate(offsets) if left < end and start < right and not special[i]]
    if not pieces:
        raise UserError(f"{word!r} has no token in {text!r}; it is blank, or behind the model's longest input.")
    first, last = pieces[0], pieces[-1]
    near = [*range(first - NEIGHBOURS, first), *range(last + 1, last + 1 + NEIGHBOURS)]
    near = [i for i in near if 0 <= i < len(offsets) and not special[i]]
    return [_Query(number, False, encoded, i, last) for i in range(first, last + 1)] + [
        _Query(number, True, encoded, i, i) for i in near
    ]


@torch.no_grad()
def _log_p(plm: SharedPLM, queries: list[_Query]) -> list[float]:
    # on the right: positions are those of the text alone
    batch = plm.tokenizer.pad([query.encoded for query in queries], padding_side="right", return_tensors="pt")
    batch = batch.to(plm.device)
    places = torch.arange(batch["input_ids"].shape[1], device=plm.device)  # (seq,)
    at = torch.tensor([[query.position] for query in queries], device=plm.device)  # (batch, 1)
    last = torch.tensor([[query.last] for query in queries], device=plm.device)  # (batch, 1)
    masked_ids = batch["input_ids"].masked_fill((places >= at) & (places <= last), plm.tokenizer.mask_token_id)
    logits = plm.masked_lm_logits(batch, places == at, masked_ids)  # (batch, vocab)
    original_ids = batch["input_ids"].gather(1, at)  # (batch, 1)
    return logits.float().log_softmax(dim=-1).gather(1, original_ids)[:, 0].tolist()


def _stands_as(tag: str) -> str:
    return _STANDS_AS.get(tag, tag)


def _part_of_speech(tag: str) -> str:
    upos = _stands_as(tag).partition("/")[0]
    return "NOUN" if upos == "PROPN" else upos


def _words(row: dict) -> tuple[str, str, str, str]:
    """(before, original, filled, after), the place grown until it holds whole words in both texts."""
    before, after = row["text"][: row["start"]], row["text"][row["end"] :]
    original, filled = row["text"][row["start"] : row["end"]], row["predicted"]
    left = len(before)
    if original[:1].isalnum() or filled[:1].isalnum():
        while left and before[left - 1].isalnum():
            left -= 1
    right = 0
    if original[-1:].isalnum() or filled[-1:].isalnum():
        while right < len(after) and after[right].isalnum():
            right += 1
    head, tail = before[left:], after[:right]
    return before[:left], head + original + tail, head + filled + tail, after[right:]
