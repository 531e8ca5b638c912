"""A proxy for a person's "does this word fit here?": tags of the two words, and a masked LM's odds between them.

It is measured against hand labels, data/plausibility/cases.csv; `python -m mtlib.plausibility` sets its weights on
two thirds of them, measures it on the others, and writes the README there. It knows grammar better than sense, so its
counts are to be read beside its agreement with the labels, and never as a person's judgement.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import compress
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np
import torch

from mtlib.diversity.agreement import Agreement, agreement
from mtlib.diversity.fillings import filled_text, unmarked
from mtlib.diversity.pos_probe import PosProbe, Span
from mtlib.errors import UserError
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR, PLAUSIBILITY_DIR
from mtlib.plm import SharedPLM

CASES_FILE, WEIGHTS_FILE = PLAUSIBILITY_DIR / "cases.csv", PLAUSIBILITY_DIR / "weights.json"
EVIDENCE_FILE = PLAUSIBILITY_DIR / "evidence.csv"
FEATURES = ("same_part_of_speech", "same_tag", "known_word", "log_odds", "neighbour_log_odds")
NEIGHBOURS = 2
_BATCH = 32
# tags that stand in the same places: "their" and "the", "but" and "since"
_STANDS_AS = {"PRON/PRP$": "DET", "CCONJ": "SCONJ"}
_CLIP, _RIDGE = 10.0, 1.0
_FITTING = 282  # the first two batches of cases.csv


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
        weights: by feature, and "bias"; default those set on the hand labels with the bundled model. Another
            scorer should get its own, from `fit_weights`.
        probe: default the bundled one.
    """

    def __init__(
        self, scorer: SharedPLM | None = None, weights: dict[str, float] | None = None, probe: PosProbe | None = None
    ):
        mini = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval() if None in (scorer, probe) else None
        self.scorer = mini if scorer is None else scorer.eval()
        self.probe = PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer) if probe is None else probe
        self.weights = json.loads(WEIGHTS_FILE.read_text()) if weights is None else weights
        if set(self.weights) != {*FEATURES, "bias"}:
            raise UserError(f"weights are given for {sorted(self.weights)}; expected {', '.join(FEATURES)} and bias.")

    def evidence(self, rows: Sequence[dict]) -> list[Evidence]:
        """Of each row with `text`, `start`, `end`, `predicted` (`fills.record_fills`, `read_cases`).

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

        One that cannot be read, or stands for what cannot be (a blank, half a character: byte-level vocabularies have
        such entries), is not.
        """
        readable = [self._has_words(row) for row in rows]
        evidence = iter(self.evidence(list(compress(rows, readable))))
        return [has_words and plausibility_score(next(evidence), self.weights) >= 0 for has_words in readable]

    def _has_words(self, row: dict) -> bool:
        words = row["predicted"].strip(), row["text"][row["start"] : row["end"]].strip()
        return all(one.tokenizer.tokenize(word) for one in (self.probe, self.scorer) for word in words)


def plausibility_score(evidence: Evidence, weights: dict[str, float]) -> float:
    """bias + sum of weight x feature."""
    return weights["bias"] + float(evidence.features() @ [weights[name] for name in FEATURES])


class WordScore(NamedTuple):
    """Of a word in a context: its log-probability and its neighbours', in nats, and its number of pieces."""

    log_p: float
    neighbours_log_p: float
    pieces: int


@torch.no_grad()
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
    tokenizer, inputs, n_pieces = plm.tokenizer, [], []
    for number, (before, word, after) in enumerate(words):
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
        inputs += [(number, 0, encoded, i, last) for i in range(first, last + 1)]
        inputs += [(number, 1, encoded, i, i) for i in near]
        n_pieces.append(len(pieces))
    inputs.sort(key=lambda entry: len(entry[2]["input_ids"]))  # like lengths together: little padding
    sums = np.zeros((len(words), 2))  # (words, [own, neighbours])
    for first in range(0, len(inputs), _BATCH):
        numbers, kinds, encoded, positions, ends = zip(*inputs[first : first + _BATCH], strict=True)
        batch = tokenizer.pad(list(encoded), return_tensors="pt").to(plm.device)
        places = torch.arange(batch["input_ids"].shape[1], device=plm.device)  # (seq,)
        at, last = (torch.tensor(values, device=plm.device)[:, None] for values in (positions, ends))  # (batch, 1)
        masked_ids = batch["input_ids"].masked_fill((places >= at) & (places <= last), tokenizer.mask_token_id)
        logits = plm.masked_lm_logits(batch, places == at, masked_ids)  # (batch, vocab)
        targets = batch["input_ids"].gather(1, at)  # (batch, 1)
        log_p = logits.float().log_softmax(dim=-1).gather(1, targets)[:, 0]  # (batch,)
        np.add.at(sums, (list(numbers), list(kinds)), log_p.cpu().numpy())
    return [WordScore(own, near, count) for (own, near), count in zip(sums.tolist(), n_pieces, strict=True)]


def read_cases(path: Path = CASES_FILE) -> list[dict]:
    """The hand-labelled cases as rows: `uid`, `task`, `text`, `start`, `end`, `predicted`, `plausible` (bool).

    In the file `text` is `fills.marked_text`, and `original` what stood between the marks.
    """
    with open(path, newline="", encoding="utf-8") as file:
        cases = list(csv.DictReader(file))
    if wrong := [case["uid"] for case in cases if case["plausible"] not in ("0", "1")]:
        raise UserError(f"{path}: plausible must be 0 or 1; it is not in {', '.join(wrong)}.")
    return [
        {"uid": case["uid"], "task": case["task"], "plausible": case["plausible"] == "1"}
        | unmarked(case["text"], case["original"])
        for case in cases
    ]


def read_evidence(path: Path = EVIDENCE_FILE) -> list[Evidence]:
    """The evidence on each hand-labelled case, in order, as the default judge found it."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            Evidence(row["original_tag"], row["filler_tag"], row["known_word"] == "1", float(row["log_odds"]),
                     float(row["neighbour_log_odds"]))
            for row in csv.DictReader(file)
        ]  # fmt: skip


def write_evidence(evidence: Sequence[Evidence], path: Path = EVIDENCE_FILE) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["uid", *(field.name for field in fields(Evidence))])
        for case, found in zip(read_cases(), evidence, strict=True):
            odds = (f"{found.log_odds:.4f}", f"{found.neighbour_log_odds:.4f}")
            writer.writerow([case["uid"], found.original_tag, found.filler_tag, int(found.known_word), *odds])


def fitting_and_held_out(cases: list) -> tuple[list, list]:
    """The cases that weights are set on, and those that were drawn and labelled afterwards to measure the judge on."""
    return cases[:_FITTING], cases[_FITTING:]


def fit_weights(
    evidence: Sequence[Evidence], plausible: Sequence[bool], features: Sequence[str] = FEATURES
) -> dict[str, float]:
    """Logistic regression of the labels on the features, with a ridge: 0 for features that are left out.

    Minimises sum log(1 + exp(-s z)) + |w|^2 / 2, with z = bias + w . features and s = 1 where plausible, else -1. Then
    the bias is moved until as many cases (or as near as ties allow) are called plausible as are labelled so: the judge
    is there to count shares, and the bias of least error calls too few plausible where most are not. Raises
    `UserError` where all labels are one.
    """
    from scipy.optimize import minimize

    if len(set(plausible)) < 2:
        raise UserError("weights need plausible and implausible cases; all of these have the same label.")
    used = [FEATURES.index(name) for name in features]
    x = np.stack([found.features() for found in evidence])[:, used]  # (n, used)
    sign = np.where(plausible, 1.0, -1.0)  # (n,)

    def loss(parameters):
        z = parameters[0] + x @ parameters[1:]
        slope = -sign / (1 + np.exp(sign * z))  # (n,)
        gradient = np.concatenate([[slope.sum()], slope @ x + _RIDGE * parameters[1:]])
        return np.logaddexp(0, -sign * z).sum() + _RIDGE * (parameters[1:] ** 2).sum() / 2, gradient

    _, *found = minimize(loss, np.zeros(1 + len(used)), jac=True).x.tolist()
    scores = np.unique(x @ found)  # ascending
    cuts = [scores[0] - 1, *((scores[1:] + scores[:-1]) / 2), scores[-1] + 1]
    bias = -float(min(cuts, key=lambda cut: abs((x @ found > cut).sum() - sum(plausible))))
    return {**dict.fromkeys(FEATURES, 0.0), **dict(zip(features, found, strict=True)), "bias": bias}


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


# ------------------------------------------------------------------------------------------------------- measuring it


@dataclass(frozen=True)
class Measured:
    """How one rule agrees with the hand labels of a set of cases; counts are of label, then rule."""

    agreement: Agreement
    both_plausible: int
    only_label: int
    only_rule: int
    both_implausible: int


def measure(labels: Sequence[bool], verdicts: Sequence[bool]) -> Measured:
    pairs = list(zip(labels, verdicts, strict=True))
    counts = [pairs.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))]
    return Measured(agreement(labels, verdicts), *counts)


def measure_rules(evidence: Sequence[Evidence]) -> tuple[dict[str, float], dict[str, Measured]]:
    """Weights from the cases for fitting, and what the judge and simpler rules reach on those held out.

    Beside the judge: the same fitted with the tags alone or the odds alone, and the constant answer.
    `judge, where fitted` is the judge on the cases that its weights were set on.

    Args:
        evidence: on each of `read_cases`, in order.
    """
    cases = read_cases()
    labelled = list(zip(evidence, (case["plausible"] for case in cases), strict=True))
    fitting, held_out = fitting_and_held_out(labelled)
    parts = {"judge": FEATURES, "tags alone": FEATURES[:3], "odds alone": FEATURES[3:], "constant": ()}
    weights = {
        name: {feature: round(value, 3) for feature, value in fit_weights(*zip(*fitting, strict=True), used).items()}
        for name, used in parts.items()
    }

    def measured(of: list, own: dict[str, float]) -> Measured:
        return measure([label for _, label in of], [plausibility_score(found, own) >= 0 for found, _ in of])

    found = {name: measured(held_out, own) for name, own in weights.items()}
    return weights["judge"], {**found, "judge, where fitted": measured(fitting, weights["judge"])}


def card(weights: dict[str, float], measured: dict[str, Measured]) -> str:
    """data/plausibility/README.md, from card.md there."""
    cases = read_cases()
    lines = []
    for name, found in measured.items():
        n, percent, kappa, low, high = found.agreement
        counts = (found.both_plausible, found.only_label, found.only_rule, found.both_implausible)
        cells = [name, n, f"{percent:.1f}", f"{kappa:.2f} [{low:.2f}, {high:.2f}]", *counts]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    by_task: dict[str, list[bool]] = {}
    for case in cases:
        by_task.setdefault(case["task"], []).append(case["plausible"])
    template = Template((PLAUSIBILITY_DIR / "card.md").read_text(encoding="utf-8"))
    return template.substitute(
        n=len(cases),
        plausible=sum(case["plausible"] for case in cases),
        by_task=", ".join(f"{task} {sum(found)} of {len(found)}" for task, found in sorted(by_task.items())),
        rows="\n".join(lines),
        weights="\n".join(f"| {name} | {value:+.3f} |" for name, value in weights.items()),
    )


if __name__ == "__main__":
    write_evidence(PlausibilityJudge(weights=dict.fromkeys((*FEATURES, "bias"), 0.0)).evidence(read_cases()))
    fitted, measures = measure_rules(read_evidence())
    WEIGHTS_FILE.write_text(json.dumps(fitted, indent=1) + "\n")
    (PLAUSIBILITY_DIR / "README.md").write_text(card(fitted, measures), encoding="utf-8")
