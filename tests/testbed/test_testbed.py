"""The bundled testbed: its bytes, its sets and strength, labels by hand, the language."""

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE, TESTBED_DIR
from mtlib.testbed.generator import (
    SPECS,
    SetSpec,
    Writer,
    agreement,
    generate,
    make_set,
    shortcut_label,
    write,
)
from mtlib.testbed.grammar import N_LABELS, Template, load_grammar

sys.path.insert(0, str(TESTBED_DIR))
from make_datasheet import README, measured, read_sets, texts

GRAMMARS = {task: load_grammar(task) for task in N_LABELS}


@pytest.fixture(scope="module")
def sets():
    return read_sets()


@pytest.fixture(scope="module")
def other():
    """Another seed, since nobody changes the bytes of the committed one."""
    return generate(0.5, seed=1, train_rows=1000)


def sentences_of(rows: list[dict]) -> set[str]:
    return {text for row in rows for text in texts(row) if text}


def share_of_agreement(task: str, rows: list[dict]) -> float:
    """The share of rows whose label is the shortcut's."""
    n_agree = sum(shortcut_label(GRAMMARS[task], *texts(row)) == row["label"] for row in rows)
    return n_agree / len(rows)


# --- the files ---


def test_regeneration_gives_the_committed_bytes(tmp_path):
    write(tmp_path)
    for name in (*(f"{name}.jsonl" for name in SPECS), SETTINGS_FILE):
        assert (tmp_path / name).read_bytes() == (TESTBED_DIR / name).read_bytes(), name


def test_the_page_states_what_is_measured(sets):
    table = {line.split(" | ")[0]: line for line in README.read_text(encoding="utf-8").splitlines()}
    for cells in measured(sets):
        assert table[f"| {cells[0]}"].startswith(f"| {' | '.join(cells)} | "), cells


def test_sizes_columns_and_no_sentence_in_two_sets(other):
    owner = {}
    for name, rows in other.items():
        spec = SPECS[name]
        size = 1000 if name.endswith("_train") else spec.size
        assert len(rows) == (2 * size if spec.edited else size)
        pair = ["text_pair"] if spec.task != "sentiment" else []
        assert all(list(row) == ["text", *pair, "label", "uid", "group"] for row in rows)
        assert len({row["uid"] for row in rows}) == len(rows)
        assert len({frozenset(texts(row)) for row in rows}) == len(rows)
        for text in sentences_of(rows):
            assert owner.setdefault(text, name) == name, text


# --- strength ---


@settings(max_examples=25, deadline=None)
@given(
    task=st.sampled_from(list(N_LABELS)),
    strength=st.floats(0, 1),
    seed=st.integers(0, 9),
    size=st.integers(1, 80),
)
def test_the_shortcut_agrees_as_often_as_the_strength_says(task, strength, seed, size):
    name = f"testbed_{task}_train"
    grammar = GRAMMARS[task]
    k = N_LABELS[task]
    rows = make_set(name, replace(SPECS[name], size=size), grammar, strength, seed, {})
    spurious_labels = {label: Counter() for label in range(k)}
    for row in rows:
        spurious_labels[row["label"]][shortcut_label(grammar, *texts(row))] += 1
    sizes = [counts.total() for counts in spurious_labels.values()]
    assert sum(sizes) == size and max(sizes) - min(sizes) <= 1
    for label, counts in spurious_labels.items():
        assert counts[label] == round(counts.total() * (strength + (1 - strength) ** 2 / k))
        others = [counts[other] for other in range(k) if other != label]
        assert max(others) - min(others) <= 1


def test_what_strength_and_size_leave_alone(sets):
    """Other strengths change training and dev sets, more training rows only the training sets."""
    larger = generate(0.6, tasks=["sentiment"], train_rows=4400)
    assert [*larger] == [name for name, spec in SPECS.items() if spec.task == "sentiment"]
    same = {name for name, rows in larger.items() if rows == sets[name]}
    assert same == {"testbed_contrast", "testbed_counterfactual"}
    assert len(larger["testbed_sentiment_train"]) == 4400
    assert share_of_agreement("sentiment", larger["testbed_sentiment"]) == pytest.approx(
        agreement(0.6, 2), abs=0.001
    )
    smaller = generate(0.9, tasks=["sentiment"], train_rows=10)
    assert smaller["testbed_sentiment"] == sets["testbed_sentiment"]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99))
def test_contrast_pairs_differ_in_their_label_and_share_their_shortcut(seed):
    grammar = GRAMMARS["sentiment"]
    spec = replace(SPECS["testbed_contrast"], size=20)
    rows = make_set("testbed_contrast", spec, grammar, 0.9, seed, {})
    for original, edited in zip(rows[::2], rows[1::2], strict=True):
        pair, half = original["group"].split(":")
        assert half == "original" and edited["group"] == f"{pair}:edited"
        assert edited["label"] == 1 - original["label"]
        assert shortcut_label(grammar, original["text"]) == shortcut_label(grammar, edited["text"])
        kept = Counter(original["text"].lower().split()) & Counter(edited["text"].lower().split())
        assert kept.total() >= 2, original


def test_out_of_distribution_the_shortcut_fails(other):
    share = {name: share_of_agreement(spec.task, other[name]) for name, spec in SPECS.items()}
    assert share["testbed_contrast"] == 0.5  # right in one of each pair, never in both
    assert share["testbed_counterfactual"] == 0.1
    assert share["testbed_adversarial"] == 0
    assert share["testbed_overlap"] < 0.3
    assert share["testbed_scramble"] < 0.15


def test_settings_that_cannot_be():
    for wrong in ({"strength": 1.01}, {"train_rows": 0}):
        with pytest.raises(UserError, match=f"{next(iter(wrong))} is .*; expected"):
            generate(**wrong)
    one = Template("one", (0,), 1, "is it so?", "so is it?")
    grammar = replace(GRAMMARS["paraphrase"], templates={"scramble": [one]})
    spec = SPECS["testbed_scramble"]
    message = r"too few sentences for testbed_scramble.*smaller train_rows"
    with pytest.raises(UserError, match=message):
        make_set("testbed_scramble", spec, grammar, 0.9, 0, {})


# --- the labels ---


class First:
    """A source of chance that always takes the first of everything."""

    def random(self):
        return 0.0


BY_HAND = yaml.safe_load(Path(__file__).with_name("by_hand.yaml").read_text())
CASES = [(task, case) for task in BY_HAND for case in BY_HAND[task]]


@pytest.mark.parametrize(("task", "case"), CASES, ids=[case["template"] for _, case in CASES])
def test_label_and_edit_by_hand(task, case):
    template = GRAMMARS[task].template(case["template"])
    assert case["label"] in template.labels
    writer = Writer(GRAMMARS[task], First(), case["label"], spurious_label=1, spec=SetSpec(task, 1))
    assert writer.write(template) == (case["text"], case.get("text_pair"))
    if "edited" in case:
        edited, _ = writer.write(template, flipped=True)
        assert edited == case["edited"]


def test_shortcut_by_hand():
    nli = GRAMMARS["nli"]
    paraphrase = GRAMMARS["paraphrase"]
    sentiment = GRAMMARS["sentiment"]
    assert shortcut_label(nli, "The nurse left.", "The nurse did not sleep.") == 2
    assert shortcut_label(nli, "The nurse left in a hurry.", "The nurse left.") == 0
    assert shortcut_label(nli, "The nurse left in a hurry.", "She went away.") == 1
    assert shortcut_label(paraphrase, "Can a dog eat rice?", "Can a cat eat rice?") == 1
    assert shortcut_label(paraphrase, "Can a dog eat rice?", "Is it safe to feed my dog?") == 0
    assert shortcut_label(sentiment, "The zombie film was wonderful.") == 0
    assert shortcut_label(sentiment, "The novel by Mei Tanaka was awful.") == 1


# --- the language ---


def test_articles_spacing_capitals_and_punctuation(other):
    forms = GRAMMARS["nli"].forms
    marks = re.compile(
        r"[{}\[\]|=_~+]"  # of a template
        r"|  | [.,;:!?]|[.,;:!?]{2}|[,;:](?=\S)"  # spaces and punctuation
        r"|[.?!] [a-z]"  # a sentence without a capital
    )
    for sentence in set().union(*map(sentences_of, other.values())):
        assert re.fullmatch(r"[A-Z].*[.?!]", sentence), sentence
        assert not marks.search(sentence), sentence
        after_a = set(re.findall(r"\b[Aa] ([AEIOUaeiou][\w-]*)", sentence))
        assert after_a <= set(forms["a_before"]), sentence
        after_an = set(re.findall(r"\b[Aa]n ([^AEIOUaeiou\W][\w-]*)", sentence))
        assert after_an <= set(forms["an_before"]), sentence
        assert not re.search(r"\b(\w+) \1\b", sentence.lower()), sentence


def test_agreement(other):
    wrong = re.compile(
        r"\b(she|he|it) (are|were|have|do)\b"
        r"|\b(they|we) (is|was|has|does)\b|\bI (is|are|were|has)\b"
        r"|\b(both|all of the|most of the|none of the|some of the) [\w' -]*s (was|is|has)\b"
        r"|\bthe (villagers|neighbours|children|farmers|police|pupils|guests|hikers) (was|is|has)\b"
        r"|\b(did not|did|to) (?!shred|feed|weed)\w+ed (the|a|an)\b"
        r"|\b(two|three|four|five|six|seven|eight|nine|ten) \w+ (was|is)\b",
        re.IGNORECASE,
    )
    for rows in other.values():
        for row in rows:
            assert not wrong.search(" ".join(filter(None, texts(row)))), row
