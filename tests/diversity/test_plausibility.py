"""The plausibility proxy, its part-of-speech probe, the script that fits it, and the numbers printed about them."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from mtlib.diversity.plausibility import (
    FEATURES,
    WEIGHTS_FILE,
    Evidence,
    PlausibilityJudge,
    plausibility_score,
    word_scores,
)
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR, MINI_MODEL_DIR, MINI_POS_DIR, PLAUSIBILITY_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import PosProbe, Span
from tests.conftest import make_plm

sys.path.insert(0, str(PLAUSIBILITY_DIR))
import fit

FLOOR = 0.9  # of the hand-tagged sentences; the probe has 94 % on web text


@pytest.fixture(scope="module")
def mini() -> SharedPLM:
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()


@pytest.fixture(scope="module")
def probe(mini) -> PosProbe:
    return PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer)


# --------------------------------------------------------------------------------------------------------------- probe


def hand_tagged() -> list[tuple[str, Span, str]]:
    """(text, place of a word, tag) of each word in pos_sentences.txt."""
    words = []
    for line in (Path(__file__).parent / "pos_sentences.txt").read_text().splitlines():
        pairs = [word.split("/", 1) for word in line.split()]
        text = " ".join(word for word, _ in pairs)
        start = 0
        for word, tag in pairs:
            words.append((text, Span(start, start + len(word)), tag))
            start += len(word) + 1
    return words


def test_probe_tags_plain_sentences(probe):
    texts, places, tags = zip(*hand_tagged(), strict=True)
    assert set(tags) <= set(probe.tags)
    predicted = probe.tag(texts, places)
    right = sum(a == b for a, b in zip(predicted, tags, strict=True))
    assert right / len(tags) >= FLOOR, Counter(pair for pair in zip(tags, predicted, strict=True) if pair[0] != pair[1])


def test_probe_reads_a_word_from_any_of_its_pieces(probe):
    text = "the actors were unforgettable"
    assert len(probe.tokenizer("unforgettable")["input_ids"]) > 3
    tags = {probe.tag([text], [Span(start, start + 2)])[0] for start in range(16, 28)}
    assert tags == {"ADJ/JJ"}
    assert probe.tag([], []) == []


def test_probe_is_small_and_its_card_is_its_report():
    files = list(MINI_POS_DIR.iterdir())
    assert sum(path.stat().st_size for path in files if path.suffix == ".safetensors") < 40_000
    settings = json.loads((MINI_POS_DIR / "probe.json").read_text())
    card = (MINI_POS_DIR / "README.md").read_text()
    for name in ("dev", "test"):
        score = settings[name]
        line = f"| {name} | {score['words']:,} | {100 * score['accuracy']:.1f} | {100 * score['upos_accuracy']:.1f} |"
        assert line in card
        right = sum(tag["correct"] for tag in score["per_tag"].values())
        assert right / score["words"] == pytest.approx(score["accuracy"])
    assert max(settings["dev_by_layer"], key=settings["dev_by_layer"].get) == str(settings["layer"])


def test_probe_reads_alike_with_a_tokenizer_that_pads_on_the_left(mini, probe, monkeypatch):
    texts, places = ["a film", "she opened the door ."], [[Span(2, 6)], [Span(4, 10)]]
    expected = probe.states(texts, places)
    monkeypatch.setattr(mini.tokenizer, "padding_side", "left")
    for (state,), (same,) in zip(probe.states(texts, places), expected, strict=True):
        assert torch.equal(state, same)


def test_probe_refuses_what_does_not_fit(mini, probe, tmp_path):
    with pytest.raises(UserError, match="hidden size 16"):
        plm = make_plm()
        PosProbe(plm.trunk, plm.tokenizer, probe.weight, probe.bias, probe.tags, 2)
    with pytest.raises(UserError, match="holds no probe"):
        PosProbe.load(tmp_path, mini.trunk, mini.tokenizer)
    with pytest.raises(UserError, match="no token"):
        probe.tag(["a film"], [Span(1, 2)])


# -------------------------------------------------------------------------------------------------------- odds, scores


def test_word_score_is_the_masked_lms_log_probability(mini):
    batch = dict(mini.tokenizer(["she opened the door ."], return_tensors="pt"))
    mask = batch["input_ids"] == mini.tokenizer.convert_tokens_to_ids("door")
    with torch.no_grad():
        log_p = mini.masked_lm_logits(batch, mask).log_softmax(dim=-1)[0]
    (score,) = word_scores(mini, [("she opened the", " door", " .")])
    assert score.log_p == pytest.approx(log_p[batch["input_ids"][mask]].item(), abs=1e-4)
    assert score.pieces == 1 and score.neighbours_log_p < 0


def test_word_of_several_pieces_is_scored_left_to_right(mini):
    (score,) = word_scores(mini, [("it was", " unforgettable", " .")])
    ids = mini.tokenizer("it was unforgettable .", return_tensors="pt")["input_ids"]
    assert score.pieces == ids.shape[1] - 5
    total = 0.0
    for place in range(3, 3 + score.pieces):
        masked = ids.clone()
        masked[0, place : 3 + score.pieces] = mini.tokenizer.mask_token_id
        with torch.no_grad():
            logits = mini.mlm(masked).logits[0, place]
        total += logits.log_softmax(dim=-1)[ids[0, place]].item()
    assert score.log_p == pytest.approx(total, abs=1e-3)
    with pytest.raises(UserError, match="no token"):
        word_scores(mini, [("it was", " ", "good")])


def test_evidence_of_clear_cases(mini):
    judge = PlausibilityJudge(scorer=mini)
    text = "The dogs are running through the snow."
    row = {"text": text, "start": text.index(" dogs"), "end": text.index(" are")}
    fits, number, nonsense, no_word = judge.evidence(
        [row | {"predicted": word} for word in (" children", " dog", " of", " zqdogs")]
    )
    assert fits.same_tag and fits.original_tag == "NOUN/NNS"
    assert number.same_part_of_speech and not number.same_tag
    assert not nonsense.same_part_of_speech and nonsense.log_odds < fits.log_odds
    assert fits.known_word and not no_word.known_word
    assert plausibility_score(fits, judge.weights) > plausibility_score(number, judge.weights)
    assert judge([row | {"predicted": " of"}]) == [False]
    assert judge.evidence([]) == [] and judge([]) == []


def test_what_cannot_be_read_is_implausible(mini):
    """Byte-level vocabularies have entries of a blank, or of half a character."""
    judge, text = PlausibilityJudge(scorer=mini), "The dogs are running through the snow."
    row = {"text": text, "start": text.index(" dogs"), "end": text.index(" are")}
    rows = [row | {"predicted": filler} for filler in (" ", " dogs", "\ufffd", "")]
    rows.append({"text": "The \ufffd barks.", "start": 3, "end": 5, "predicted": " dog"})
    (alone,) = judge([rows[1]])
    assert judge(rows) == [False, alone, False, False, False] and alone


def test_possessives_stand_as_determiners_and_names_as_nouns():
    def pair(a: str, b: str) -> tuple[bool, bool]:
        evidence = Evidence(a, b, True, 0.0, 0.0)
        return evidence.same_tag, evidence.same_part_of_speech

    assert pair("DET", "PRON/PRP$") == (True, True)
    assert pair("CCONJ", "SCONJ") == (True, True)
    assert pair("NOUN/NN", "PROPN/NNP") == (False, True)
    assert pair("VERB/VBD", "VERB/VBZ") == (False, True)
    assert pair("VERB/VBD", "AUX/VBD") == (False, False)


def test_rule_is_the_printed_sum():
    evidence = Evidence("NOUN/NN", "NOUN/NNS", False, -50.0, 5.0)
    assert evidence.features().tolist() == [1, 0, 0, -1, 0.5]
    weights = dict(zip(FEATURES, (1.0, 2.0, 4.0, 8.0, 16.0), strict=True)) | {"bias": 0.5}
    assert plausibility_score(evidence, weights) == 0.5 + 1 - 8 + 8
    with pytest.raises(UserError, match="expected same_part"):
        PlausibilityJudge(weights={"bias": 0.0})


def test_fitted_weights_call_as_many_plausible_as_are_labelled_so():
    cases = [Evidence("DET", ("DET", "ADP")[i % 3 == 0], i % 2 == 0, i - 10, (7 * i) % 11 - 5) for i in range(40)]
    labels = [(i * i) % 5 < 2 for i in range(40)]
    weights = fit.fit_weights(cases, labels)
    assert abs(sum(plausibility_score(case, weights) >= 0 for case in cases) - sum(labels)) <= 1
    assert fit.fit_weights(cases, labels, ["log_odds"])["same_tag"] == 0
    assert set(fit.fit_weights(cases, labels, []).values()) == {0.0, fit.fit_weights(cases, labels, [])["bias"]}
    with pytest.raises(UserError, match="same label"):
        fit.fit_weights(cases, [True] * 40)


# --------------------------------------------------------------------------------------------------------------- cases


def test_cases_are_well_formed():
    cases = fit.read_cases()
    written = (PLAUSIBILITY_DIR / "own_sentences.txt").read_text().splitlines()
    bundled = {
        text
        for path in (DATA_DIR / "testbed").glob("*.jsonl")
        for row in map(json.loads, path.read_text().splitlines())
        for text in (row["text"], row.get("text_pair"))
    }
    assert len(cases) >= 160 and len({case["uid"] for case in cases}) == len(cases)
    for part in (cases[: fit.N_FITTING], cases[fit.N_FITTING :]):
        assert 0.2 < sum(case["plausible"] for case in part) / len(part) < 0.8
    for case in cases:
        assert case["text"] in (written if case["task"] == "own" else bundled), case["uid"]
        assert case["predicted"].strip() != case["text"][case["start"] : case["end"]].strip()


def test_measured_counts_add_up():
    measured = fit.measure([True, True, False, False, False], [True, False, True, False, False])
    assert (measured.both_plausible, measured.only_label, measured.only_rule, measured.both_implausible) == (1, 1, 1, 2)
    assert measured.agreement.percent == pytest.approx(60)


def test_shipped_evidence_is_the_judges():
    """Of every twentieth case. Odds may differ in the last digits between machines."""
    cases, shipped = fit.read_cases()[::20], fit.read_evidence()[::20]
    fresh = PlausibilityJudge().evidence(cases)
    for ours, theirs in zip(fresh, shipped, strict=True):
        assert ours.log_odds == pytest.approx(theirs.log_odds, abs=0.02)
        assert ours.neighbour_log_odds == pytest.approx(theirs.neighbour_log_odds, abs=0.05)
    differing = [ours for ours, theirs in zip(fresh, shipped, strict=True)
                 if (ours.original_tag, ours.filler_tag, ours.known_word)
                 != (theirs.original_tag, theirs.filler_tag, theirs.known_word)]  # fmt: skip
    assert len(differing) <= 1  # a tie between two tags may fall otherwise elsewhere


def test_page_and_weights_are_what_is_measured():
    weights, measured = fit.measure_rules(fit.read_evidence())
    assert weights == pytest.approx(json.loads(WEIGHTS_FILE.read_text()), abs=2e-3)
    printed, fresh = (PLAUSIBILITY_DIR / "README.md").read_text(), fit.card(weights, measured)
    numbers = re.compile(r"[+-]?\d+\.\d+|\d+")
    assert numbers.sub("#", printed) == numbers.sub("#", fresh)
    assert [float(x) for x in numbers.findall(printed)] == pytest.approx(
        [float(x) for x in numbers.findall(fresh)], abs=2e-3
    )
