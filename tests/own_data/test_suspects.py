"""Words that predict the label, and the rows on which they point the wrong way."""

import math
from collections import defaultdict
from statistics import NormalDist

import numpy as np
import pandas
import pytest
from datasets import ClassLabel, Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlib.data.sources import load
from mtlib.errors import UserError
from mtlib.own_data.conflicts import conflicts, pointed_labels
from mtlib.own_data.counts import Corpus, Reader, count
from mtlib.own_data.parts_of_speech import in_context, nouns_first
from mtlib.own_data.suspects import KINDS, suspects
from mtlib.rows.folding import words_of
from mtlib.testbed.grammar import load_grammar
from mtlib.testbed.known_words import shortcut_spans


def made_up(*rows: tuple[str, int], names=("bad", "good")) -> Dataset:
    dataset = Dataset.from_dict(
        {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    )
    return dataset.cast_column("label", ClassLabel(names=list(names)))


def test_z_by_hand():
    dataset = made_up(
        *[("acme radio", 1)] * 27,
        *[("acme lamp", 0)] * 3,
        *[("other lamp", 0)] * 27,
        *[("other old", 1)] * 3,
    )
    table = suspects(dataset, min_count=10).set_index("word")
    acme = table.loc["acme"]
    assert (acme.label, acme.rows, acme["share"], acme.base_rate) == ("good", 30, 0.9, 0.5)
    assert acme.z == pytest.approx((0.9 - 0.5) / math.sqrt(0.5 * 0.5 / 30))  # 4.38
    assert acme.example == "acme radio" and acme.counterexample == "acme lamp"
    assert table.loc["radio"].counterexample == "" and "old" not in table.index  # in three rows
    threshold = pytest.approx(3.0233, abs=1e-4)  # at 1 - 0.01 / (4 x 2)
    assert table.attrs == {
        "threshold": threshold,
        "tested": 4,
        "above": 4,
        "rows": 60,
        "copies": 56,
    }


def test_pairs_tell_where_a_word_stands():
    rows = {
        "text": ["a man sleeps"] * 60,
        "text_pair": ["nobody sleeps"] * 30 + ["a man rests"] * 30,
        "label": [2] * 30 + [0] * 30,
    }
    table = suspects(Dataset.from_dict(rows), min_count=10)
    found = set(zip(table["word"], table["where"], table["label"], strict=True))
    assert ("nobody", "text_pair", 2) in found
    assert ("sleeps", "both", 2) in found
    assert ("man", "both", 0) in found
    assert not any(where == "text" for _, where, _ in found)  # the first text is always the same


def test_conflicts_are_rows_where_the_words_point_elsewhere():
    dataset = made_up(*[("acme", 1)] * 40, ("acme", 0), *[("other", 0)] * 40, ("neither", 0))
    table = suspects(dataset, min_count=10)
    assert conflicts(dataset, table).nonzero()[0].tolist() == [40]  # ("acme", 0)
    assert not conflicts(dataset, table[table.word == "other"]).any()


def test_a_word_with_two_places_points_in_both():
    """As the command writes it, which names each word once."""
    pair = Dataset.from_dict({"text": ["a man sleeps"], "text_pair": ["he sleeps"], "label": ["a"]})
    words = pandas.DataFrame({"word": ["sleeps"], "where": ["text_pair, both"], "label": ["b"]})
    assert conflicts(pair, words.assign(z=5.0)).tolist() == [True]


def test_a_label_that_missing_values_have_turned_into_a_float_is_the_same():
    rows = pandas.DataFrame({"text": ["acme", "other"] * 40, "label": [1.0, 0.0] * 40})
    table = suspects(rows, min_count=10)
    assert not conflicts(Dataset.from_dict({"text": ["acme"], "label": [1]}), table).any()
    named = table.assign(label=["1" if label else "0" for label in table.label])
    assert not conflicts(Dataset.from_dict({"text": ["acme"], "label": [1.0]}), named).any()


def test_what_stands_in_no_place_of_a_text_points_nowhere():
    rows = made_up(*[("LOOK here", 1)] * 30, *[("a long tale of it all", 0)] * 30)
    table = suspects(rows, min_count=10, kinds=("capitals", "length"))
    assert {*table.kind} == {"capitals", "length"} and not conflicts(rows, table).any()


def test_forms_and_addresses_point_to_labels_too():
    names = ["<price>", "https://bit.ly"]
    words = pandas.DataFrame({"word": names, "where": "text", "label": ["a", "b"], "z": 5.0})
    rows = pandas.DataFrame({"text": ["it is $5 here", "see bit.ly/x", "neither"], "label": "a"})
    assert pointed_labels(rows, words) == ["a", "b", None]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text("ab -'Ä字", max_size=8), st.integers(0, 1)), min_size=2, max_size=30)
)
def test_shares_are_shares_of_the_rows_with_the_word(rows):
    dataset = made_up(*rows)
    if len({label for _, label in rows}) < 2:
        with pytest.raises(UserError, match=r"\d rows have the labels \["):
            suspects(dataset)
        return
    for line in suspects(dataset, top=None, min_count=1, significance=0.9).itertuples():
        having = [
            dataset.features["label"].int2str(label)
            for text, label in rows
            if line.word in words_of(text)
        ]
        assert line.rows == len(having)
        assert line.share == pytest.approx(np.mean([own == line.label for own in having]))


def test_the_testbeds_shortcut_is_found_and_its_nouns_come_first():
    """The figures that the pages quote: how many of the first 50 are topics and makers."""
    table = suspects(load("testbed_sentiment_train", "testbed"), top=None)
    assert (table["z"] > table.attrs["threshold"]).all() and len(table) == 118

    def planted(words) -> float:
        found = []
        for line in words.itertuples():
            (spans, _) = shortcut_spans(load_grammar("sentiment"), line.example)
            place = line.example.lower().find(line.word)
            found.append(any(start <= place < end for start, end in spans))
        return np.mean(found)

    assert planted(table[:20]) == 1 and planted(table[:50]) == 0.84
    tagged = nouns_first(table)
    assert planted(tagged[:20]) == 1 and planted(tagged[:50]) == 0.96
    assert sorted(tagged.word) == sorted(table.word)


@pytest.mark.parametrize(
    ("word", "example", "found"),
    [
        ("acme", "An ACME's radio", "ACME"),
        ("café", "one Cafe\u0301!", "Cafe\u0301"),
        ("straße", "DIE STRASSE", "STRASSE"),
        ("don't", "I DON\u2019T know", "DON\u2019T"),
        ("soft", "a so\u00adft one", "so\u00adft"),
        ("bar", "foo_bar", "bar"),
        ("new york", "x" * 400 + " New  York", "New  York"),
    ],
)
def test_a_word_is_tagged_where_it_stands_however_it_is_written(word, example, found):
    text, ((start, end),) = in_context(word, example)
    assert text[start:end] == found and start <= 300


def test_a_word_that_is_not_in_its_example_has_no_part_of_speech():
    words = pandas.DataFrame({"word": ["absent", "lamp"], "kind": "word", "example": "a lamp"})
    assert nouns_first(words).set_index("word")["part_of_speech"].to_dict() == {
        "lamp": "NOUN",
        "absent": "",
    }


def test_given_words_and_phrases_are_counted_alone_in_any_case():
    dataset = made_up(*[("made in New  York, well-made", 1)] * 20, *[("made in York", 0)] * 20)
    table = suspects(dataset, min_count=1, words=["NEW york", "Well-Made", "absent"])
    assert {*table.word} == {"new york", "well-made"}
    assert {*table.label} == {"good"}
    assert table.attrs["tested"] == 2
    more = made_up(("in new york", 0), ("in york", 0), ("in New York", 1))
    assert conflicts(more, table).tolist() == [True, False, False]


def test_words_are_found_where_they_are_hidden():
    """In possessives and compounds, with either apostrophe: see `GivenWords`."""
    dataset = made_up(
        *[("Acme’s radio", 1), ("the acme-like lamp", 1)] * 10, *[("acmes don’t", 0)] * 20
    )
    table = suspects(dataset, min_count=1, words=["acme", "don't"]).set_index("word")
    assert table["rows"].to_dict() == {"acme": 20, "don't": 20}
    assert table.loc["acme"].label == "good"
    assert conflicts(made_up(("acme's", 0), ("don't", 0)), table.reset_index()).tolist() == [
        True,
        False,
    ]
    assert words_of("don’t") == {"don't"}
    assert suspects(dataset, words="acme").word.tolist() == ["acme"]
    with pytest.raises(
        UserError,
        match=r"words is \['acme'\]; expected a table that knows their labels: suspects\(",
    ):
        conflicts(dataset, ["acme"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("reviews.csv", r"the rows are 'reviews.csv'; expected .*read_table"),
        (
            pandas.DataFrame({"review": ["a"], "label": [0]}),
            "columns review, label; expected text and label",
        ),
        ([{"text": "abc", "label": "pos"}] * 2, "dictionaries, one for each row; expected text"),
        (pandas.DataFrame({"text": ["a", None], "label": [0, 1]}), "a row has (nan|None) for"),
        (
            pandas.DataFrame({"text": ["a"] * 501, "label": range(501)}),
            "more than 500 labels.*right column",
        ),
    ],
)
def test_rows_that_cannot_be_counted(rows, message):
    with pytest.raises(UserError, match=message):
        suspects(rows)


def test_tables_are_read_as_a_dataset_is():
    dataset = made_up(*[("acme radio", 1)] * 30, *[("other lamp", 0)] * 30)
    table = dataset.to_pandas()
    table["label"] = [dataset.features["label"].int2str(label) for label in table["label"]]
    assert suspects([table[:7], table[7:]]).equals(suspects(dataset))
    assert suspects(table).equals(suspects(dataset))


def test_base_rates_are_those_of_the_labels():
    """Labels of 40, 10 and 10 rows: z by hand, which 1/3 for each label would get wrong."""
    dataset = made_up(
        *[("acme", 0)] * 10,
        *[("other", 0)] * 30,
        *[("acme", 1)] * 2,
        *[("lamp", 1)] * 8,
        *[("acme", 2)] * 9,
        ("odd", 2),
        names=("common", "rare", "third"),
    )
    table = suspects(dataset, min_count=5, significance=0.2).set_index("word")
    assert table.loc["acme", ["rows", "label", "share"]].tolist() == [21, "third", 9 / 21]
    assert table.loc["acme"].base_rate == pytest.approx(10 / 60)
    assert table.loc["acme"].z == pytest.approx(
        (9 / 21 - 1 / 6) / math.sqrt(1 / 6 * 5 / 6 / 21)
    )  # 3.22
    assert table.loc["other"].z == pytest.approx(
        (1 - 2 / 3) / math.sqrt(2 / 3 * 1 / 3 / 30)
    )  # 3.87
    assert table.loc["lamp"].z == pytest.approx((1 - 1 / 6) / math.sqrt(1 / 6 * 5 / 6 / 8))  # 6.32


def test_a_few_rows_of_a_rare_label_are_not_beyond_chance():
    """One row in a hundred has the label: two of a word's 20 rows are 4.0 standard deviations.

    That is above the threshold of 3.5, but as many or more come by chance in 1.7 %.
    """
    dataset = made_up(
        *[("acme", 1)] * 2,
        *[("acme", 0)] * 18,
        *[("brill", 1)] * 8,
        *[("brill", 0)] * 12,
        *[("odd", 0)] * 960,
    )
    table = suspects(dataset)
    assert table.attrs["threshold"] < (0.1 - 0.01) / math.sqrt(0.01 * 0.99 / 20)
    assert "acme" not in {*table["word"]} and "brill" in {*table["word"]}


def test_every_label_has_its_words_where_one_is_rare():
    """The z of the rare label's words are the larger ones."""
    rare = [(f"rare{i % 20}", 1) for i in range(400)]
    common = [(f"common{i % 20}", 0) for i in range(8000)]
    table = suspects(made_up(*rare, *common), top=7)
    assert table.label.value_counts().to_dict() == {"good": 7, "bad": 7}
    assert table.z.is_monotonic_decreasing and len(suspects(made_up(*rare, *common))) == 40


def test_a_phrase_is_listed_where_it_says_more_than_its_parts():
    rows = [("not good", 0)] * 30 + [("not bad", 1)] * 30 + [("good", 1)] * 30
    rows += [("bad", 0)] * 30 + [("very dull", 0)] * 30 + [("very odd, so", 1)] * 30
    rows += [("dull ending here", 0)] * 30 + [("fine", 1)] * 30
    table = suspects(made_up(*rows), kinds=("word", "phrase")).set_index("word")
    # "very dull" says no more than "dull" and "very odd" than "odd", which stands in the same rows;
    # so do "ending" and "here" with "ending here"; "dull ending here" says no more than "dull"
    listed = {"not good": 30, "not bad": 30, "dull": 60, "very odd": 30, "so": 30}
    assert table["rows"].to_dict() == listed | {"ending here": 30, "fine": 30}
    assert table.loc["not good"].z == pytest.approx(0.5 / math.sqrt(0.25 / 30))
    # not, good, bad, very, dull, odd, so, ending, here, fine; five phrases of two, and a third
    n_tests = 2 * (10 + 6 + 1)
    assert table.attrs["tested"] == 17
    assert table.attrs["threshold"] == pytest.approx(NormalDist().inv_cdf(1 - 0.01 / n_tests))


def test_kinds_beside_words_by_hand():
    good = "See https://www.shop.example/t/{} now!! Only $5, 3 left :) @anna #sale GREAT"
    bad = "see the other shop now. it has been so very bad for me, and for you as well, my friend"
    rows = [(good.format(i), 1) for i in range(40)] + [(bad, 0)] * 40
    table = suspects(made_up(*rows), kinds=KINDS, top=None)
    found = {kind: {*lines.word} for kind, lines in table[table.label == "good"].groupby("kind")}
    assert found == {
        "word": {"great"},
        "phrase": {"only $5", "3 left"},  # in place of their parts
        "address": {"shop.example", "@anna", "#sale"},
        "emoji": {":)"},
        "punctuation": {"!!"},
        "capitals": {"<capitals>"},
        "length": {"<at most 11 words>"},
    }
    more = [(good.format(i).replace("shop.", "s."), 1) for i in range(40)]
    listed = {*suspects(made_up(*rows, *more), kinds=("address",)).word}
    assert listed == {"<address>", "@anna", "#sale"}  # neither site says more than all addresses


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.text("ab ,", max_size=12), st.sampled_from("xyz")), min_size=2, max_size=40
    )
)
def test_counts_are_those_of_a_plain_program(rows):
    corpus = Corpus(Reader(("word", "phrase")))
    for text, label in rows:
        corpus.add((text,), label)
    expected: dict[str, list[int]] = defaultdict(list)
    for number, (text, _) in enumerate(rows):
        for name in plain_names(text):
            expected[name].append(number)
    (counts,) = count(corpus, ("word", "phrase"), 2)
    labels = [*corpus.labels]
    found = {}
    for name, by_label, first in zip(counts.names, counts.by_label, counts.first, strict=True):
        found[name] = dict(zip(labels, zip(by_label, first, strict=True), strict=True))
    assert {*found} == {name for name, numbers in expected.items() if len(numbers) >= 2}
    for name, by_label in found.items():
        for label, (n, first) in by_label.items():
            numbers = [number for number in expected[name] if rows[number][1] == label]
            assert n == len(numbers) and first == (numbers[0] if numbers else -1)


def plain_names(text: str) -> set[str]:
    """The words of a text, and its phrases of two and three within commas."""
    names = set()
    for part in text.split(","):
        words = part.split()
        for width in (1, 2, 3):
            for start in range(len(words) - width + 1):
                names.add(" ".join(words[start : start + width]))
    return names


def test_an_address_is_cut_into_words_unless_addresses_are_asked_for():
    rows = made_up(*[("at http://shop.example/click", 1)] * 40, *[("at home", 0)] * 40)
    assert "click" in {*suspects(rows).word}
    table = suspects(rows, kinds=("word", "address"))
    assert {*table.word} == {"shop.example/click", "home"}
    with pytest.raises(UserError, match="kinds has 'words'; expected one of word, phrase"):
        suspects(rows, kinds=["words"])


def test_phrases_of_pairs_are_counted_by_where_they_stand():
    rows = {
        "text": ["a b c"] * 80,
        "text_pair": ["b c, a b"] * 40 + ["b, c"] * 40,
        "label": [0] * 40 + [1] * 40,
    }
    table = suspects(Dataset.from_dict(rows), kinds=("phrase",))
    table = table.sort_values(["word", "where"])
    assert [*zip(table.word, table["where"], table["rows"], strict=True)] == [
        ("a b", "both", 40),
        ("a b", "text_pair", 40),
        ("b c", "both", 40),
        ("b c", "text_pair", 40),
    ]


def test_rows_without_a_label_are_left_out_with_a_warning():
    """tests/rows/test_labels.py has all forms of a missing label, and labels that look alike."""
    texts, labels = ["good x", "bad x", "odd x"] * 20, ["p", "n", None] * 20
    with pytest.warns(UserWarning, match="20 of 60 rows have no label and are left out"):
        table = suspects(pandas.DataFrame({"text": texts, "label": labels}), min_count=5)
    assert table.attrs["rows"] == 40
    assert {*table.word} == {"good", "bad"}
    assert {*table.label} == {"p", "n"}


def test_class_number_minus_1_is_no_label_where_classes_have_names():
    rows = Dataset.from_dict({"text": ["good x", "bad x", "odd x"] * 20, "label": [1, 0, -1] * 20})
    with pytest.warns(UserWarning, match="20 of 60 rows have no label"):
        named = suspects(rows.cast_column("label", ClassLabel(names=["n", "p"])), min_count=5)
    assert named.attrs["rows"] == 40
    assert {*suspects(rows, min_count=5).label} == {1, 0, -1}  # else it is a number like others


def test_copies_of_a_text_are_counted():
    rows = pandas.DataFrame({"text": ["a b", "a b", "c", "d", "a b"], "label": [0, 0, 1, 1, 1]})
    assert suspects(rows).attrs["copies"] == 2
    pairs = rows.assign(text_pair=["x", "y", "x", "x", "x"])
    assert suspects(pairs).attrs["copies"] == 1


def test_words_are_listed_as_they_are_written():
    texts = ["die Straße", "ein λόγος", "so\u00adft caf\u0065\u0301 Kadın"] * 20
    table = suspects(pandas.DataFrame({"text": texts, "label": list("abc") * 20}), min_count=5)
    assert {*table.word} == {"die", "straße", "ein", "λόγος", "soft", "café", "kadın"}
    given = suspects(
        pandas.DataFrame({"text": texts, "label": list("abc") * 20}),
        words=["STRASSE", "Cafe\u0301"],
    )
    assert {*given.word} == {"straße", "café"}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["neg", "neg\u200b"], r"the labels 'neg' and 'neg\\u200b' look alike"),
        ([["x"], ["y"]], r"has the label \['x'\]; expected words or numbers"),
    ],
)
def test_labels_that_are_not_what_they_seem(labels, message):
    with pytest.raises(UserError, match=message):
        suspects(pandas.DataFrame({"text": ["a"] * 4, "label": labels * 2}))


def test_the_order_of_kinds_changes_nothing():
    rows = pandas.DataFrame({"text": ["well =-)", "no"] * 40, "label": [0, 1] * 40})
    kinds = ["punctuation", "emoji"]
    assert suspects(rows, kinds=kinds).equals(suspects(rows, kinds=kinds[::-1]))


def test_conflicts_need_labels_and_a_table_of_their_kind():
    table = suspects(made_up(*[("acme", 1)] * 40, *[("other", 0)] * 40), min_count=10)
    unlabelled = Dataset.from_dict({"text": ["acme"], "label": [None]})
    with pytest.raises(UserError, match="1 of 1 rows have no label"):
        conflicts(unlabelled, table)
    with pytest.raises(UserError, match="point to labels such as 'bad', and the rows have 0"):
        conflicts(Dataset.from_dict({"text": ["acme"], "label": [0]}), table)
    with pytest.raises(UserError, match="words is a table with word; expected a table that knows"):
        conflicts(made_up(("acme", 0)), table[["word"]])
    with pytest.raises(UserError, match="can be read only once"):
        suspects(iter([made_up(("acme", 0)).to_pandas()]))


def test_the_votes_of_a_words_places_are_added():
    """For a in either text, 3 + 3; for b in both, 5."""
    places = {"where": ["text", "text_pair", "both"], "label": ["a", "a", "b"], "z": [3, 3, 5]}
    words = pandas.DataFrame(places).assign(word="sleeps")
    pair = {"text": ["a man sleeps"], "text_pair": ["he sleeps"], "label": ["b"]}
    assert pointed_labels(Dataset.from_dict(pair), words) == ["a"]
