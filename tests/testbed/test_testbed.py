"""The bundled testbed: its files, its labels, its dial, its language, its errors."""

import json
import re
import shutil
import sys
from collections import Counter

import pytest
import yaml

from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE, TESTBED_DIR
from mtlib.testbed.generator import SPECS, SetSpec, Writer, agreement, generate, make_set, shortcut_label, write
from mtlib.testbed.grammar import GRAMMAR_DIR, LABELS, load_grammar
from mtlib.testbed.probes import evaluation_sets, majority, shortcut, texts

sys.path.insert(0, str(TESTBED_DIR))
from make_datasheet import datasheet, leakage, pmi, read_sets, run_probes, vocabulary

SIZES = {
    "testbed_sentiment_train": 4000,
    "testbed_sentiment": 1000,
    "testbed_contrast": 1000,
    "testbed_counterfactual": 500,
    "testbed_nli_train": 6000,
    "testbed_nli_m": 1000,
    "testbed_nli_mm": 1000,
    "testbed_overlap": 2100,
    "testbed_adversarial": 1000,
    "testbed_paraphrase_train": 6000,
    "testbed_paraphrase": 1000,
    "testbed_scramble": 700,
}


@pytest.fixture(scope="module")
def sets():
    return read_sets()


@pytest.fixture(scope="module")
def grammars():
    return {task: load_grammar(task) for task in LABELS}


# -------------------------------------------------------------------------------- the files


def test_regeneration_gives_the_committed_bytes(tmp_path):
    write(tmp_path)
    for name in (*(f"{name}.jsonl" for name in SPECS), SETTINGS_FILE):
        assert (tmp_path / name).read_bytes() == (TESTBED_DIR / name).read_bytes(), name


def test_sizes_columns_and_bytes(sets):
    assert {name: len(rows) for name, rows in sets.items()} == SIZES
    assert sum(path.stat().st_size for path in TESTBED_DIR.rglob("*") if path.is_file()) < 5e6
    for name, rows in sets.items():
        pair = ["text_pair"] if SPECS[name].task != "sentiment" else []
        assert all(list(row) == ["text", *pair, "label", "uid", "group"] for row in rows)
        assert len({row["uid"] for row in rows}) == len(rows)
        assert b"\r" not in (TESTBED_DIR / f"{name}.jsonl").read_bytes()


def test_balance(sets):
    for name, rows in sets.items():
        counts = Counter(row["label"] for row in rows)
        labels = 2 if name == "testbed_overlap" else LABELS[SPECS[name].task]
        assert sorted(counts) == list(range(labels))
        if SPECS[name].agree != "template":
            assert max(counts.values()) - min(counts.values()) <= 1, name
    overlap = Counter(row["group"] for row in sets["testbed_overlap"])
    assert set(overlap.values()) == {100} and len(overlap) == 21
    heuristics = Counter(group.split("/")[0] for group in overlap)
    assert heuristics == {"lexical_overlap": 7, "subsequence": 7, "constituent": 7}


def test_no_sentence_is_in_two_sets_and_no_row_twice(sets):
    assert leakage(sets) == {}
    for rows in sets.values():
        assert len({frozenset(texts(row)) for row in rows}) == len(rows)
    assert leakage({"a": [{"text": "One."}], "b": [{"text": "Two.", "text_pair": "One."}]}) == {("a", "b"): 1}


def test_vocabulary_and_templates(sets, grammars):
    for task, grammar in grammars.items():
        words = set.union(*(vocabulary(sets[name]) for name, spec in SPECS.items() if spec.task == task))
        assert len(words) >= 1500, task
        assert len({template.id.split("+")[0] for template in grammar.templates["train"]}) >= 40, task
    seen = set.union(*(vocabulary(sets[name]) for name in SPECS if name != "testbed_counterfactual"))
    assert {"ghastly", "sumptuous", "travesty"} <= vocabulary(sets["testbed_counterfactual"]) - seen


def test_contrast_pairs_are_minimal(sets):
    rows = sets["testbed_contrast"]
    for original, edited in zip(rows[::2], rows[1::2], strict=True):
        pair, version = original["group"].split(":")
        assert (version, edited["group"], edited["label"]) == ("original", f"{pair}:edited", 1 - original["label"])
        kept = Counter(original["text"].lower().split()) & Counter(edited["text"].lower().split())
        assert sum(kept.values()) >= 2, original


# -------------------------------------------------------------------------------- the labels


class First:
    """A source of chance that always takes the first of everything."""

    def random(self):
        return 0.0


BY_HAND = {
    "sentiment": [
        ("plain", 1, "The detective novel was truly wonderful."),
        ("plain", 0, "The detective novel was truly awful."),
        ("moved", 1, "The detective novel delighted my parents more than expected."),
        ("made", 0, "The detective novel was badly written and clumsily plotted."),
        ("anything-but", 1, "The detective novel was anything but awful, as my sister will confirm."),
        ("hardly", 0, "The detective novel was hardly a triumph, whatever my sister may say."),
        ("failed-to", 0, "The detective novel never once delighted my parents."),
        ("not-one", 1, "Not one of our guests hated the detective novel."),
        ("wrong", 1, "The critics called the detective novel awful, but they were wrong."),
        ("not-true", 0, "It is simply not true that the detective novel was wonderful."),
        ("although", 1, "Although the heroine never comes to life, the detective novel was wonderful overall."),
        ("rather-than", 0, "The detective novel bored rather than delighted my parents."),
        ("when-it-counted", 1, "The detective novel began as a failure but ended as a triumph."),
        ("not-all", 1, "None of the detective novels by Ingrid Halvorsen were awful."),
        ("promised", 0, "The advertising had promised a triumph, but the detective novel was a failure."),
        ("no-justice", 1, "The advertising did not do the detective novel justice: it was wonderful."),
        ("nobody-would", 1, "Only a fool would call the detective novel awful."),
        ("denied", 0, "Nobody can deny the carelessness that went into the detective novel."),
    ],
    "nli": [
        (
            "plain+affirm-same",
            0,
            "Anna Adler peeled the potatoes in the kitchen on Monday.",
            "Anna Adler peeled the potatoes.",
        ),
        (
            "plain+affirm-reworded-they",
            0,
            "Anna Adler peeled the potatoes in the kitchen on Monday.",
            "She removed the skin from the spuds.",
        ),
        (
            "plain+more-adverb",
            1,
            "Anna Adler peeled the potatoes in the kitchen on Monday.",
            "Anna Adler cheerfully peeled the potatoes.",
        ),
        (
            "plain+other-event",
            1,
            "Anna Adler peeled the potatoes in the kitchen on Monday.",
            "Anna Adler ironed the shirts.",
        ),
        (
            "plain+deny-not",
            2,
            "Anna Adler peeled the potatoes in the kitchen on Monday.",
            "Anna Adler did not peel the potatoes.",
        ),
        (
            "did-not-forget+deny-never",
            2,
            "Anna Adler did not forget to peel the potatoes on Monday.",
            "Anna Adler never peeled the potatoes.",
        ),
        ("hoped+affirm-same", 1, "Anna Adler hoped to peel the potatoes on Monday.", "Anna Adler peeled the potatoes."),
        (
            "hoped+deny-not",
            1,
            "Anna Adler hoped to peel the potatoes on Monday.",
            "Anna Adler did not peel the potatoes.",
        ),
        (
            "forgot+affirm-same",
            2,
            "Anna Adler forgot to peel the potatoes on Monday.",
            "Anna Adler peeled the potatoes.",
        ),
        (
            "forgot+deny-never-reworded",
            0,
            "Anna Adler forgot to peel the potatoes on Monday.",
            "Anna Adler never removed the skin from the spuds.",
        ),
        (
            "forgot+more-because",
            2,
            "Anna Adler forgot to peel the potatoes on Monday.",
            "Anna Adler removed the skin from the spuds because of a bet.",
        ),
        (
            "before-swap",
            2,
            "Anna Adler peeled the potatoes before the triplets ironed the shirts.",
            "The triplets ironed the shirts before Anna Adler peeled the potatoes.",
        ),
        (
            "comparative-opposite",
            0,
            "The box in the corner was heavier than the suitcase.",
            "The suitcase was lighter than the box.",
        ),
        (
            "some-all",
            1,
            "At least some of the triplets peeled the potatoes in the kitchen.",
            "All of the triplets peeled the potatoes.",
        ),
        (
            "near-subject",
            1,
            "The triplets near the grandfather peeled the potatoes on Monday.",
            "The grandfather peeled the potatoes on Monday.",
        ),
        (
            "lexical_overlap/passive",
            1,
            "The doctor was thanked by the farmer on Monday.",
            "The doctor thanked the farmer.",
        ),
        ("subsequence/entailed_adjective", 0, "The young doctor danced on Monday.", "The doctor danced."),
        ("constituent/condition", 1, "If the doctor danced, the farmer thanked the plumber.", "The doctor danced."),
        (
            "negation/without",
            2,
            "Anna Adler left the triplets on Monday without peeling the potatoes.",
            "Anna Adler peeled the potatoes on Monday.",
        ),
        (
            "quantifiers/every-not-one",
            0,
            "Every grandfather in the kitchen peeled the potatoes.",
            "Not one grandfather in the kitchen failed to peel the potatoes.",
        ),
        (
            "numbers/half",
            2,
            "Three of the twenty grandfathers in the kitchen peeled the potatoes, and no more than that.",
            "More than three of the grandfathers in the kitchen peeled the potatoes.",
        ),
        (
            "passives/swap",
            1,
            "The doctor was thanked by the farmer on Monday.",
            "The doctor thanked the farmer on Monday.",
        ),
        (
            "invented/chain",
            0,
            "Every blicket is a dax, and every dax is a wug.",
            "There is no blicket that is not a wug.",
        ),
    ],
    "paraphrase": [
        ("how+how-reworded", 1, "How do I change a flat tyre?", "How do I replace a punctured wheel?"),
        ("how+why-same", 0, "How do I change a flat tyre?", "Why should I change a flat tyre?"),
        ("how+how-near", 0, "How do I change a flat tyre?", "How do I change a dead battery?"),
        (
            "how+how-moved",
            0,
            "In winter, how do I change a flat tyre?",
            "On a small budget, how do I change a flat tyre?",
        ),
        (
            "how+how-reworded-there",
            1,
            "In winter, how do I change a flat tyre?",
            "During the cold months, how do I replace a punctured wheel?",
        ),
        ("how+how-other", 0, "How do I change a flat tyre?", "How do I power up a vehicle that runs on current?"),
        ("where-reworded", 1, "Where can I find a good bookshop in Oslo?", "Which part of Oslo has decent bookshops?"),
        ("food-other", 0, "Can a dog eat rice?", "Can a dog eat lentils?"),
        (
            "compare-opposite",
            1,
            "Is it harder to play the guitar than the piano?",
            "Is it easier to play the piano than the guitar?",
        ),
        ("roles", 0, "Can a dog catch fleas from a cat?", "Can a cat catch fleas from a dog?"),
        ("adverb-only", 0, "Do only nurses drink coffee in Oslo?", "Do nurses drink only coffee in Oslo?"),
        ("conjunction", 1, "Do dogs and cats both like rice?", "Do cats and dogs both like rice?"),
        (
            "cause-reworded",
            1,
            "Can stress lead to headaches?",
            "Are people who suffer from stress more likely to develop headaches?",
        ),
    ],
}


@pytest.mark.parametrize(("task", "case"), [(task, case) for task, cases in BY_HAND.items() for case in cases])
def test_label_by_hand(grammars, task, case):
    template_id, label, *expected = case
    template = next(t for ts in grammars[task].templates.values() for t in ts if t.id == template_id)
    assert label in template.labels
    writer = Writer(grammars[task], First(), label, lure=1, spec=SetSpec(task, 1))
    assert [text for text in writer.write(template) if text] == expected


@pytest.mark.parametrize(
    ("template_id", "original", "edited"),
    [
        ("plain", "The detective novel was truly wonderful.", "The detective novel was truly awful."),
        (
            "anything-but",
            "The detective novel was anything but awful, as my sister will confirm.",
            "The detective novel was nothing if not awful, as my sister will confirm.",
        ),
        (
            "wrong",
            "The critics called the detective novel awful, but they were wrong.",
            "The critics called the detective novel awful, and they were right.",
        ),
        (
            "although",
            "Although the heroine never comes to life, the detective novel was wonderful overall.",
            "Although the heroine leaps off the page, the detective novel was awful overall.",
        ),
    ],
)
def test_edit_by_hand(grammars, template_id, original, edited):
    template = next(t for t in grammars["sentiment"].templates["train"] if t.id == template_id)
    writer = Writer(grammars["sentiment"], First(), 1, lure=1, spec=SetSpec("sentiment", 1))
    assert writer.write(template)[0] == original
    assert writer.write(template, flipped=True)[0] == edited


def test_shortcut_by_hand(grammars):
    nli, paraphrase, sentiment = grammars["nli"], grammars["paraphrase"], grammars["sentiment"]
    assert shortcut_label(nli, "The nurse left.", "The nurse did not sleep.") == 2
    assert shortcut_label(nli, "The nurse left in a hurry.", "The nurse left.") == 0
    assert shortcut_label(nli, "The nurse left in a hurry.", "She went away.") == 1
    assert shortcut_label(paraphrase, "Can a dog eat rice?", "Can a cat eat rice?") == 1
    assert shortcut_label(paraphrase, "Can a dog eat rice?", "Is it safe to feed my dog?") == 0
    assert shortcut_label(sentiment, "The zombie film was wonderful.") == 0
    assert shortcut_label(sentiment, "The novel by Mei Tanaka was awful.") == 1


# -------------------------------------------------------------------------------- the dial


@pytest.fixture(scope="module")
def by_strength():
    return {strength: generate(strength) for strength in (0.0, 0.6)}


def test_dial_moves_the_shortcut_and_nothing_out_of_distribution(sets, by_strength):
    dial = {**by_strength, 0.9: sets}
    accuracy = {s: run_probes(rows, {"shortcut": shortcut})["shortcut"] for s, rows in dial.items()}
    for name, spec in SPECS.items():
        if name.endswith("_train"):
            continue
        shares = [accuracy[s][name][0] / accuracy[s][name][1] for s in sorted(dial)]
        if spec.agree is None:
            assert shares == sorted(set(shares)), name
            expected = [agreement(s, LABELS[spec.task]) for s in sorted(dial)]
            assert shares == pytest.approx(expected, abs=0.002), name
        else:
            assert len(set(shares)) == 1, name
            assert dial[0.0][name] == dial[0.6][name] == dial[0.9][name], name


def test_without_strength_the_lure_is_independent_of_the_label(by_strength, grammars):
    for task, grammar in grammars.items():
        rows = by_strength[0.0][f"testbed_{task}_train"]
        lures = [shortcut_label(grammar, *texts(row)) for row in rows]
        for label in range(LABELS[task]):
            assert pmi(rows, lures, label) == pytest.approx(0, abs=0.005)


def test_shortcut_fails_out_of_distribution(sets):
    counts = run_probes(sets, {"shortcut": shortcut, "majority": majority})
    share = {name: correct / n for name, (correct, n) in counts["shortcut"].items()}
    assert share["testbed_contrast"] == 0.5  # right in one of each pair, never in both
    assert share["testbed_counterfactual"] == pytest.approx(0.1)
    assert share["testbed_adversarial"] == 0
    assert share["testbed_overlap"] < 0.3 and share["testbed_scramble"] < 0.15
    assert counts["majority"]["testbed_nli_m"] == (333, 1000)


@pytest.mark.parametrize("strength", [-0.1, 1.01, float("nan"), float("inf"), "0.5", None, True])
def test_bad_dial_values(strength):
    with pytest.raises(UserError, match=r"strength is .*, expected a number from 0 .* to 1"):
        generate(strength)


def test_more_training_rows_and_nothing_else(sets, grammars):
    larger = generate(tasks=["sentiment"], train_rows=5000)
    of_sentiment = [name for name, spec in SPECS.items() if spec.task == "sentiment"]
    assert [*larger] == of_sentiment
    for name in of_sentiment:
        if not name.endswith("_train"):
            assert larger[name] == sets[name], name
    train = larger["testbed_sentiment_train"]
    assert len(train) == len({row["text"] for row in train}) == len({row["uid"] for row in train}) == 5000
    right = sum(shortcut_label(grammars["sentiment"], row["text"]) == row["label"] for row in train)
    assert right / len(train) == pytest.approx(agreement(0.9, 2), abs=0.001)


@pytest.mark.parametrize("train_rows", [0, -1, 4000.0, "many", True])
def test_bad_numbers_of_training_rows(train_rows):
    with pytest.raises(UserError, match=r"train_rows is .*; expected a whole number, 1 or more"):
        generate(tasks=["sentiment"], train_rows=train_rows)


def test_seed_and_full_strength(grammars):
    def lexical(seed):
        return make_set("testbed_overlap", SPECS["testbed_overlap"], grammars["nli"], 0.9, seed, {})

    assert lexical(1) == lexical(1) != lexical(2)
    rows = make_set("testbed_paraphrase", SPECS["testbed_paraphrase"], grammars["paraphrase"], 1.0, 0, {})
    assert all(shortcut_label(grammars["paraphrase"], *texts(row)) == row["label"] for row in rows)


# -------------------------------------------------------------------------------- the language

VOWEL_SOUND = re.compile(r"\ba ([aeiou][\w-]*)", re.IGNORECASE)
NO_VOWEL_SOUND = re.compile(r"\ban ([^aeiou\W][\w-]*)", re.IGNORECASE)


def test_articles_spacing_capitals_and_punctuation(sets):
    forms = load_grammar("nli").forms
    sentences = sorted({text for rows in sets.values() for row in rows for text in texts(row) if text})
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z].*[.?!]", sentence), sentence
        assert not re.search(r"[{}\[\]|=_~+]|  | [.,;:!?]|[.,;:!?]{2}|[,;:](?=\S)", sentence), sentence
        assert not re.search(r"[.?!] [a-z]", sentence), sentence
        assert set(VOWEL_SOUND.findall(sentence)) <= set(forms["a_before"]), sentence
        assert set(NO_VOWEL_SOUND.findall(sentence)) <= set(forms["an_before"]), sentence
        assert not re.search(r"\b(\w+) \1\b", sentence.lower()), sentence


def test_agreement(sets):
    wrong = re.compile(
        r"\b(she|he|it) (are|were|have|do)\b|\b(they|we) (is|was|has|does)\b|\bI (is|are|were|has)\b"
        r"|\b(both|all of the|most of the|none of the|some of the) [\w' -]*s (was|is|has)\b"
        r"|\bthe (villagers|neighbours|children|farmers|police|pupils|guests|hikers) (was|is|has)\b"
        r"|\b(did not|did|to) (?!shred|feed|weed)\w+ed (the|a|an)\b"
        r"|\b(two|three|four|five|six|seven|eight|nine|ten) \w+ (was|is)\b",
        re.IGNORECASE,
    )
    for rows in sets.values():
        for row in rows:
            assert not wrong.search(" ".join(filter(None, texts(row)))), row


# -------------------------------------------------------------------------------- the errors


def edited_grammar(tmp_path, task, edit):
    """A copy of the grammar with one file changed by `edit`."""
    shutil.copytree(GRAMMAR_DIR, tmp_path / "grammar")
    path = tmp_path / "grammar" / f"{task}.yaml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    edit(raw)
    path.write_text(yaml.safe_dump(raw, sort_keys=False), encoding="utf-8")
    return tmp_path / "grammar"


@pytest.mark.parametrize(
    ("task", "edit", "message"),
    [
        (
            "sentiment",
            lambda raw: raw["templates"]["train"][0].update(text="the {gizmo} broke."),
            r"template 'plain' has the unknown slot {gizmo}.*add it",
        ),
        ("sentiment", lambda raw: raw["domains"]["film"].pop("head"), r"unknown slot {head}.*in every domain"),
        ("sentiment", lambda raw: raw["words"].update(real=""), r"word list 'real' is '', expected at least one word"),
        (
            "sentiment",
            lambda raw: raw["words"]["adj"].update(pos=[]),
            r"word list 'adj.pos' is \[\], expected at least one",
        ),
        (
            "sentiment",
            lambda raw: raw["words"]["adj"].pop("neg"),
            r"word list 'adj.neg' is None, expected at least one",
        ),
        (
            "sentiment",
            lambda raw: raw["words"].update(friend="my {boss}, my aunt"),
            r"word list 'friend' has the unknown slot {boss}",
        ),
        (
            "paraphrase",
            lambda raw: raw["templates"]["train"].append(raw["templates"]["train"][0]),
            r"template id 'where' is used 2 times in 'train'",
        ),
        (
            "nli",
            lambda raw: raw["templates"]["train"][0].pop("label"),
            r"template 'before-swap' has label None, expected one of \[0, 1, 2\]",
        ),
        (
            "nli",
            lambda raw: raw["rule"]["fact"].pop("deny"),
            r"template 'plain\+deny-not' has label None.*give it a label rule",
        ),
        (
            "paraphrase",
            lambda raw: raw["templates"]["train"][0].update(label=2),
            r"has label 2, expected one of \[0, 1\]",
        ),
        ("nli", lambda raw: raw["templates"]["train"][0].pop("text"), r"needs an id and a text"),
        ("nli", lambda raw: raw["templates"]["train"][0].update(text="the {A sat."), r"brace that is no slot"),
        (
            "nli",
            lambda raw: raw["templates"]["train"][0].update(text="the {A.1.gerund} sat."),
            r"unknown form 'gerund'",
        ),
        (
            "sentiment",
            lambda raw: raw["templates"]["train"][0].update(text="{item} was {adj}."),
            r"{adj} without a sign",
        ),
        ("nli", lambda raw: raw.pop("templates"), r"nli.yaml lacks 'templates'"),
    ],
)
def test_bad_grammar(tmp_path, task, edit, message):
    with pytest.raises(UserError, match=message):
        load_grammar(task, edited_grammar(tmp_path, task, edit))


def test_grammar_that_is_too_small(tmp_path):
    def keep_one(raw):
        same = {"id": "one", "label": 0, "lure": 1, "text": "is it so?", "text_pair": "so is it?"}
        raw["templates"]["scramble"] = [same]

    grammar = load_grammar("paraphrase", edited_grammar(tmp_path, "paraphrase", keep_one))
    with pytest.raises(UserError, match=r"paraphrase.yaml has too few sentences for testbed_scramble.*add"):
        make_set("testbed_scramble", SPECS["testbed_scramble"], grammar, 0.9, 0, {})


def test_grammar_without_a_cell(tmp_path):
    def drop(raw):
        raw["templates"]["adversarial"] = [t for t in raw["templates"]["adversarial"] if t["label"] != 2]

    grammar = load_grammar("nli", edited_grammar(tmp_path, "nli", drop))
    with pytest.raises(UserError, match=r"nli.yaml: no template in adversarial has label 2 and lure 0"):
        make_set("testbed_adversarial", SPECS["testbed_adversarial"], grammar, 0.9, 0, {})


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(UserError, match=r"sentiment.yaml is missing, expected a grammar file"):
        load_grammar("sentiment", tmp_path)
    for content in (b"", b"- a list", b"a: caf\xe9"):
        (tmp_path / "sentiment.yaml").write_bytes(content)
        with pytest.raises(UserError, match="is not valid YAML, expected a mapping"):
            load_grammar("sentiment", tmp_path)
    (tmp_path / "sentiment.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(UserError, match="is not valid YAML"):
        load_grammar("sentiment", tmp_path)
    with pytest.raises(UserError, match=r"lacks testbed_contrast.*write the files"):
        read_sets(tmp_path)


# -------------------------------------------------------------------------------- the datasheet


def test_pmi_by_hand():
    rows = [{"label": label} for label in (0, 0, 1, 1)]
    assert pmi(rows, [0, 0, 1, 1], 0) == 1.0  # log2 (1/2) / (1/2 * 1/2)
    assert pmi(rows, [0, 1, 0, 1], 1) == 0.0
    assert pmi(rows, [1, 1, 0, 0], 1) == float("-inf")


def test_datasheet_states_what_is_measured(sets):
    """Any probe can be added; its column appears in every table."""

    def always_one(task, train, evaluation):
        assert train and list(evaluation) == evaluation_sets(task)
        return {name: [1] * len(rows) for name, rows in evaluation.items()}

    counts = run_probes(sets, {"shortcut only": shortcut, "always one": always_one})
    page = datasheet(sets, {0.9: counts})
    assert "| testbed_sentiment | 90.4 [88.4, 92.1] | 50.0 [46.9, 53.1] |" in page
    assert "| testbed_overlap | 28.6 [26.7, 30.5] | 71.4 [69.5, 73.3] |" in page
    committed = (TESTBED_DIR / "README.md").read_text(encoding="utf-8")
    assert page.split("## Probes")[0] == committed.split("## Probes")[0]
    assert json.dumps(sets["testbed_overlap"][0])  # rows are plain data
