"""The part-of-speech probe on the bundled model."""

import json
import runpy
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import torch

from mtlib.paths import MINI_POS_DIR
from mtlib.policies.pos_probe import PosProbe

FLOOR = 0.9  # of the hand-tagged sentences; the probe has 94 % on web text


@pytest.fixture(scope="module")
def probe() -> PosProbe:
    return PosProbe.bundled()


def hand_tagged() -> list[tuple[str, list[tuple[int, int]], list[str]]]:
    """(text, spans of its words, their tags) of each line of pos_sentences.txt."""
    sentences = []
    for line in (Path(__file__).parent / "pos_sentences.txt").read_text().splitlines():
        words, tags = zip(*(word.split("/", 1) for word in line.split()), strict=True)
        spans = []
        start = 0
        for word in words:
            spans.append((start, start + len(word)))
            start += len(word) + 1
        sentences.append((" ".join(words), spans, list(tags)))
    return sentences


def test_probe_tags_plain_sentences(probe):
    texts, spans, tags = zip(*hand_tagged(), strict=True)
    found = chain.from_iterable(probe.tag(texts, spans))
    pairs = list(zip(chain.from_iterable(tags), found, strict=True))
    assert {tag for tag, _ in pairs} <= {*probe.tags}
    wrong = [pair for pair in pairs if pair[0] != pair[1]]
    assert 1 - len(wrong) / len(pairs) >= FLOOR, Counter(wrong)


def test_probe_reads_a_word_from_any_of_its_pieces(probe):
    text = "the actors were unforgettable"
    assert len(probe.tokenizer("unforgettable")["input_ids"]) > 3
    assert {*probe.tag([text], [[(start, start + 2) for start in range(16, 28)]])[0]} == {"ADJ/JJ"}
    assert probe.tag([text], [[(3, 4)]]) == [[None]] and probe.tag([], []) == []


def test_probe_is_small_and_its_card_is_its_report():
    files = list(MINI_POS_DIR.iterdir())
    assert sum(path.stat().st_size for path in files if path.suffix == ".safetensors") < 40_000
    settings = json.loads((MINI_POS_DIR / "probe.json").read_text())
    card = runpy.run_path(MINI_POS_DIR / "train.py")["card"]
    assert (MINI_POS_DIR / "README.md").read_text() == card(settings)
    for name in ("dev", "test"):
        score = settings[name]
        right = sum(tag["correct"] for tag in score["per_tag"].values())
        assert right / score["words"] == pytest.approx(score["accuracy"])
    assert max(settings["dev_by_layer"], key=settings["dev_by_layer"].get) == str(settings["layer"])


def test_probe_reads_alike_with_a_tokenizer_that_pads_on_the_left(probe, monkeypatch):
    texts, places = ["a film", "she opened the door ."], [[(2, 6)], [(4, 10)]]
    expected = probe.states(texts, places)
    monkeypatch.setattr(probe.tokenizer, "padding_side", "left")
    for (state,), (same,) in zip(probe.states(texts, places), expected, strict=True):
        assert torch.equal(state, same)
