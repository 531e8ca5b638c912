"""The part-of-speech probe on the bundled model."""

import json
import runpy
from collections import Counter
from pathlib import Path

import pytest
import torch

from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import PosProbe, Span

FLOOR = 0.9  # of the hand-tagged sentences; the probe has 94 % on web text


@pytest.fixture(scope="module")
def mini() -> SharedPLM:
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()


@pytest.fixture(scope="module")
def probe(mini) -> PosProbe:
    return PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer)


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
    assert (MINI_POS_DIR / "README.md").read_text() == runpy.run_path(MINI_POS_DIR / "train.py")["card"](settings)
    for name in ("dev", "test"):
        score = settings[name]
        right = sum(tag["correct"] for tag in score["per_tag"].values())
        assert right / score["words"] == pytest.approx(score["accuracy"])
    assert max(settings["dev_by_layer"], key=settings["dev_by_layer"].get) == str(settings["layer"])


def test_probe_reads_alike_with_a_tokenizer_that_pads_on_the_left(mini, probe, monkeypatch):
    texts, places = ["a film", "she opened the door ."], [[Span(2, 6)], [Span(4, 10)]]
    expected = probe.states(texts, places)
    monkeypatch.setattr(mini.tokenizer, "padding_side", "left")
    for (state,), (same,) in zip(probe.states(texts, places), expected, strict=True):
        assert torch.equal(state, same)
