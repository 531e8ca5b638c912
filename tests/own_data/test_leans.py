"""`leans` on a classifier that reads one word and nothing else."""

import copy
from collections import Counter

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification
from typer.testing import CliRunner

from mtlib import leans, suspects
from mtlib.cli import app
from mtlib.errors import UserError
from mtlib.own_data.classifier import Classifier, class_numbers
from mtlib.own_data.exchanges import Suspect, exchanged, in_case_of
from mtlib.own_data.leans import paired_interval
from mtlib.own_data.partners import PartnerChooser, Samples, _predicts_nothing, pool_of, rivals_of
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.rows.folding import Finder
from tests.conftest import make_tokenizer, tiny_bert_config

# each brand predicts a label, and so does each opinion
BRANDS = {"acme": "bad", "brill": "good", "corax": "bad", "delta": "good"}
OPINIONS = {"awful": "bad", "great": "good", "boring": "bad", "funny": "good"}
NAMES = ["bad", "good"]
WORDS = [*BRANDS, *OPINIONS, "the", "a", "film", "story", "plot", "is", "was", "by", "desk", "lamp"]


def reader_of(words: dict[str, str], names=NAMES) -> SharedPLM:
    """A BERT whose answer is the label of the words that it knows, by the way it is made.

    A known word's embedding points along the axis of its label, and every other along one of no
    label. One layer adds the mean of all embeddings to the first token, and the head compares the
    axes.
    """
    config = tiny_bert_config(
        vocab_size=len(WORDS) + 5,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
    )
    model = AutoModelForSequenceClassification.from_config(config).eval()
    tokenizer = make_tokenizer(words=WORDS)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = name.endswith("LayerNorm.weight")
            parameter.fill_(1.0 if is_scale else 0.0)
        embeddings = model.bert.embeddings.word_embeddings.weight
        embeddings[:] = torch.tensor([0.0, 0.0, 1.0, -1.0])
        for word, label in words.items():
            side = 1.0 if label == names[1] else -1.0
            token = tokenizer.convert_tokens_to_ids(word)
            embeddings[token] = torch.tensor([-side, side, 0.0, 0.0])
        attention = model.bert.encoder.layer[0].attention
        attention.self.value.weight.copy_(torch.eye(4))
        attention.output.dense.weight.copy_(torch.eye(4))
        model.bert.pooler.dense.weight.copy_(torch.eye(4))
        model.classifier.weight[0, 0] = 20.0
        model.classifier.weight[1, 1] = 20.0
    return SharedPLM(model, AutoModelForMaskedLM.from_config(config), tokenizer)


READS_BRANDS = reader_of(BRANDS)
READS_NOTHING = reader_of({}, [*NAMES, "mixed"])


def reviews(n: int = 120) -> pandas.DataFrame:
    """Every brand and every opinion always goes with its label; no two texts are alike."""
    rows = []
    for i in range(n):
        label = NAMES[i % 2]
        brands = [word for word, side in BRANDS.items() if side == label]
        opinions = [word for word, side in OPINIONS.items() if side == label]
        text = f"the {('film', 'story', 'plot')[i % 3]} by {brands[i // 2 % 2]} was "
        rows.append({"text": f"{text}{opinions[i // 4 % 2]} {i}", "label": label})
    return pandas.DataFrame(rows)


def asked(model, rows=None, words=None, **options) -> pandas.DataFrame:
    rows = reviews() if rows is None else rows
    return leans(model, rows, words, report=lambda _: None, **options).set_index("suspect")


def test_a_model_that_reads_brands_alone_follows_them_alone():
    table = asked(READS_BRANDS)
    assert {*table.index} == {*BRANDS, *OPINIONS}
    assert (table.loc[[*BRANDS], ["follows", "control", "leans"]] == [100, 0, 100]).all(axis=None)
    assert (table.loc[[*OPINIONS], ["follows", "control", "leans", "change"]] == 0).all(axis=None)
    assert (table.loc[[*BRANDS], "change"] < -50).all()
    line = table.loc["acme"]
    assert line.before.replace("acme", "X") in (line.after.replace(word, "X") for word in BRANDS)
    assert {*line.partners.split(", ")} <= {"brill", "delta"}
    assert (line.answer_before, line.answer_after) == (BRANDS["acme"], BRANDS["brill"])
    assert {*table.columns} == {
        *("kind", "label", "marked", "rows", "partners", "follows", "control", "leans"),
        *("low", "high", "change", "before", "answer_before", "after", "answer_after"),
    }


def test_marked_words_that_are_followed_stand_first():
    words = pandas.DataFrame({"word": ["funny", "Acme", "brill"], "mask": ["x", "x", ""]})
    table = asked(READS_BRANDS, words=words)
    assert [*table.index] == ["acme", "brill", "funny"]
    assert [*table["marked"]] == [True, False, True]
    assert table.loc["acme", "low"] > 0 == table.loc["funny", "leans"]


def test_shares_of_single_rows_by_hand():
    """Acme reads bad, and so does one of four rows with it where the model reads opinions."""
    texts = ["the film by acme was great", "the film by acme is great", "a film by acme is great"]
    texts += ["the film by acme was awful", "the film by brill was great"]
    rows = pandas.DataFrame({"text": texts, "label": ["bad"] * 4 + ["good"]})
    partners = pandas.DataFrame({"word": ["acme", "brill"], "label": ["bad", "good"], "z": [2, 1]})
    model = reader_of(BRANDS | OPINIONS)
    line = leans(model, rows, "acme", partners=partners, report=lambda _: None).iloc[0]
    # acme against great is a draw, which the first class (bad) wins; brill and great are good
    assert (line.rows, line.follows, line.control) == (4, 75, 0)
    assert line.low == pytest.approx(100 * paired_interval(*shares("1110", "0000"))[0])


def shares(*rows: str) -> list[np.ndarray]:
    return [np.array([sign == "1" for sign in row]) for row in rows]


def test_newcombes_interval():
    """The first example of Newcombe (1998): 36 pairs of both, 12 and 2 of one, none of neither."""
    first, second = shares("1" * 36 + "1" * 12 + "0" * 2, "1" * 36 + "0" * 12 + "1" * 2)
    assert paired_interval(first, second) == pytest.approx((0.0569, 0.3404), abs=5e-5)
    alike = np.ones(40, dtype=bool)
    assert paired_interval(alike, ~alike) == pytest.approx((0.8756, 1.0), abs=5e-4)


@given(
    st.lists(
        st.tuples(st.sampled_from([*BRANDS]), st.sampled_from([*OPINIONS]), st.booleans()),
        min_size=8,
        max_size=40,
    )
)
@settings(max_examples=15, deadline=None)
def test_words_that_are_not_read_have_0_and_partners_are_never_of_its_label(choices):
    names = [*NAMES, "mixed"]
    texts = [
        f"the {brand} {number} was {opinion}" for number, (brand, opinion, _) in enumerate(choices)
    ]
    labels = [names[(number + is_odd) % 3] for number, (*_, is_odd) in enumerate(choices)]
    rows = pandas.DataFrame({"text": texts, "label": labels})
    words = pandas.DataFrame(
        {
            "word": [*BRANDS, *OPINIONS, "acme"],
            "label": [names[number % 3] for number in range(8)] + ["good"],
            "z": range(9, 0, -1),
        }
    )
    table = leans(READS_NOTHING, rows, words, partners=words, report=lambda _: None)
    label_of = words.groupby("word")["label"].agg(set)
    for line in table.itertuples():
        assert line.leans == line.follows == line.control == 0
        for partner in line.partners.split(", "):
            assert not label_of[partner] & label_of[line.suspect]
    assert {*table["suspect"]} == {word for choice in choices for word in choice[:2]}


@given(st.lists(st.sampled_from(["acme", "Acme", "ACME", "the", "Plot", ",", "…", "(a)"])))
def test_an_exchange_keeps_the_case_and_the_rest_of_the_text(pieces):
    finder = Finder(["acme", "brill"])
    acme, brill = Suspect("acme"), Suspect("brill")
    text = "  ".join(pieces)
    cases = {"acme": "brill", "Acme": "Brill", "ACME": "BRILL"}
    expected = "  ".join(cases.get(piece, piece) for piece in pieces)
    assert exchanged((text,), acme, brill, finder) == (expected,)
    assert exchanged((expected,), brill, acme, finder) == (text,)


@pytest.mark.parametrize(
    ("written", "word", "kind", "expected"),
    [
        ("New York", "old town", "phrase", "Old Town"),
        ("Not good", "very bad", "phrase", "Very bad"),
        ("I", "you", "word", "You"),
        ("HTTP://A.ORG", "http://b.org/X", "address", "http://b.org/X"),
        ("acme", "été", "word", "été"),
    ],
)
def test_the_case_of_a_partner(written, word, kind, expected):
    assert in_case_of(written, Suspect(word, kind)) == expected


def test_kinds_are_exchanged_for_their_like_and_as_a_whole():
    names = ["a.org", "desk.org", "<address>", "acme", "<at most 3 words>"]
    kinds = ["address"] * 3 + ["word", "length"]
    labels = ["bad", "good", "good", "bad", "bad"]
    pool = pandas.DataFrame({"word": names, "kind": kinds, "label": labels, "z": range(5, 0, -1)})
    texts = [("https://a.org/x?y=1 acme" if i % 2 else "desk.org is") + f" {i}" for i in range(20)]
    rows = pandas.DataFrame({"text": texts})
    table = leans(READS_BRANDS, rows, partners=pool, report=lambda _: None).set_index("suspect")
    assert {*table.index} == {*names[:4]}
    assert [table.loc[name, "partners"] for name in names[:3]] == ["desk.org", "a.org", "a.org"]
    assert "org" not in table.loc["acme", "partners"]
    assert table.loc["a.org", "after"].startswith("https://desk.org/x?y=1 acme ")


def test_addresses_are_exchanged_for_those_of_their_form():
    names = ["a.org", "b.org/x", "c.org", "@me", "a@b.org", "@you", "#it"]
    pool = [Suspect(name, "address", labels=("bad",)) for name in names]
    pool += [Suspect(f"{name}s", "address", labels=("good",)) for name in names[2:6]]
    partners = [[other.word for other in rivals_of(word, pool)] for word in pool[:7]]
    every = ["c.orgs", "@mes", "a@b.orgs", "@yous"]
    assert partners == [
        ["c.orgs"],
        every,
        ["c.orgs"],
        *[["@mes", "@yous"], ["a@b.orgs"]],
        *[["@mes", "@yous"], every],
    ]
    finder = Finder(["a.org"])
    texts = ("See https://WWW.A.org/a.org and a.org!",)
    site = exchanged(texts, pool[0], Suspect("c.org", "address"), finder)
    assert site == ("See https://WWW.c.org/a.org and c.org!",)
    assert exchanged(texts, pool[0], Suspect("@me", "address"), finder) == ("See @me and @me!",)
    pasted = [Suspect(f"https://{name}.org", "address") for name in "ac"]
    assert exchanged(texts, *pasted, Finder(["https://a.org"])) == site


def test_in_pairs_a_word_is_exchanged_where_it_stands():
    pair = ("acme film", "an Acme, an acme-like plot")
    finder = Finder(["acme", "brill"])
    for where, expected in {
        "text": ("brill film", pair[1]),
        "text_pair": (pair[0], "an Brill, an brill-like plot"),
        "both": ("brill film", "an Brill, an brill-like plot"),
        "either": ("brill film", "an Brill, an brill-like plot"),
    }.items():
        suspect = Suspect("acme", where=where)
        assert exchanged(pair, suspect, Suspect("brill"), finder) == expected
    rows = reviews()
    rows["text_pair"] = "the plot"
    assert set(asked(READS_BRANDS, rows)["where"]) == {"text"}


def test_a_given_word_that_predicts_nothing_is_exchanged_in_either_text_of_a_pair():
    """Two rows have it in the first text, two in the second, two in both; brill has its place."""
    with_acme = [("acme film", "the plot"), ("the film", "acme plot"), ("acme film", "acme plot")]
    rows = pandas.DataFrame(
        [(f"{first} {label}", second, label) for first, second in with_acme for label in NAMES],
        columns=["text", "text_pair", "label"],
    )
    partners = pandas.DataFrame({"word": ["brill"], "label": ["good"], "z": [1]})
    line = leans(READS_BRANDS, rows, "acme", partners=partners, report=lambda _: None).iloc[0]
    assert (line["where"], line.label, line.rows) == ("either", "", 6)
    assert (line.follows, line.control) == (100, 0)
    assert line.after == line.before.replace("acme", "brill")


def test_without_a_word_of_another_label_words_that_predict_nothing_take_its_place():
    said = []
    rows = reviews()
    partners = suspects(rows).query("word in ['acme', 'corax']")
    table = leans(READS_BRANDS, rows, partners=partners, report=said.append)
    assert "acme, corax" in said[0] and "predict nothing" in said[0]
    label_of = BRANDS | OPINIONS
    chosen = {word for line in table["partners"] for word in line.split(", ")}
    assert chosen and not chosen & label_of.keys()
    # the answer is then a draw, which the first class, bad, wins
    assert (table["follows"] == 0).all() and (table["change"] < -45).all()


@pytest.mark.parametrize(("bad", "good", "chosen"), [(3, 2, True), (2, 2, False), (4, 1, False)])
def test_a_word_that_predicts_nothing_has_five_rows_and_no_label_of_its_own(bad, good, chosen):
    counts = Counter(bad=bad, good=good)
    assert _predicts_nothing(counts, Counter(bad=50, good=50)) == chosen


def test_a_folder_of_transformers_whose_labels_fit(tmp_path):
    READS_BRANDS.classifier.save_pretrained(tmp_path / "plain")
    READS_BRANDS.tokenizer.save_pretrained(tmp_path / "plain")
    READS_BRANDS.save_pretrained(tmp_path / "ours")
    expected = asked(READS_BRANDS)
    for name in ("plain", "ours"):
        pandas.testing.assert_frame_equal(asked(tmp_path / name), expected)
    numbered = reviews().assign(label=lambda rows: rows["label"].map({"bad": "0", "good": "1"}))
    with pytest.raises(UserError, match=r"label '0', and the model's are bad, good"):
        asked(READS_BRANDS, numbered)
    named = ["label", "answer_before", "answer_after"]
    pandas.testing.assert_frame_equal(
        asked(READS_BRANDS, numbered, labels=["0", "1"]).drop(columns=named),
        expected.drop(columns=named),
    )
    floats = numbered.assign(label=numbered["label"].map(float))
    assert {*asked(READS_BRANDS, floats, labels=["0", "1"])["label"]} == {"0", "1"}
    READS_BRANDS.mlm.save_pretrained(tmp_path / "plain")
    with pytest.raises(UserError, match="lacks 2 weights"):
        asked(tmp_path / "plain")


def test_rows_in_which_the_model_cannot_read_the_word_do_not_count():
    rows = reviews()
    far = rows.assign(text="the film by the lamp was by " + rows["text"])
    said = []
    table = leans(READS_BRANDS, far, "acme", max_length=8, report=said.append)
    assert table.empty and "left out: acme" in said[0]
    assert (
        asked(READS_BRANDS, pandas.concat([rows, far]), "acme", max_length=8)["rows"].item() == 30
    )


def test_a_word_that_the_model_reads_as_unknown_is_left_out():
    rows = reviews()
    rows["text"] = rows["text"].str.replace("acme", "zorvik")
    said = []
    table = leans(READS_BRANDS, rows, report=said.append)
    assert "left out: zorvik;" in said[0]
    assert {*table["suspect"]} == {"brill", "corax", "delta", *OPINIONS}


def test_a_word_that_the_bundled_model_reads_as_unknown_is_no_partner_either():
    """Its tokenizer, unlike the one above, reads "[UNK]" in a text as four tokens."""
    texts = [f"the {('борщ', 'plot')[i % 2]} film was {i}" for i in range(80)]
    rows = pandas.DataFrame({"text": texts, "label": NAMES * 40})
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)
    said = []
    table = leans(plm, rows, labels=NAMES, report=said.append).set_index("suspect")
    assert [*table.index] == ["plot"] and "борщ" not in table.loc["plot", "partners"]
    assert "left out: борщ;" in said[0]


def test_a_word_whose_only_rival_is_its_companion_is_exchanged_for_neutral_words():
    rows = reviews()
    rows["text"] = [f"{text} brill" if "acme" in text else text for text in rows["text"]]
    said = []
    partners = pandas.DataFrame({"word": ["acme", "brill"], "label": NAMES, "z": [5, 5]})
    table = leans(READS_BRANDS, rows, partners=partners, report=said.append).set_index("suspect")
    assert "can take the place of acme; exchanged for words that predict nothing" in said[0]
    assert "brill" not in table.loc["acme", "partners"]
    assert table.loc["brill", "partners"] == "acme"


def test_lines_of_a_list_to_mark():
    """A word that predicts two labels has two lines; capitals and length are not asked about."""
    rows = reviews()
    listed = ["acme", "acme", "brill", "<capitals>", "<at most 3 words>"]
    words = pandas.DataFrame({"word": listed, "mask": ["yes", "", None, "", ""]})
    table = asked(READS_BRANDS, rows, words)
    assert table["marked"].to_dict() == {"acme": True, "brill": False}


@pytest.mark.parametrize(
    ("classes", "labels", "numbers"),
    [
        (["Good", "bad", "good"], ["Good", "bad", "good"], [0, 1, 2]),
        (["GOOD", "bad"], ["good", "Bad"], [0, 1]),
        (["Good", "bad", "good"], ["GOOD", "bad"], None),
        (["LABEL_0", "LABEL_1"], ["0", "1"], [0, 1]),
        (["LABEL_0", "LABEL_1"], ["1", "2"], None),
    ],
)
def test_the_numbers_of_classes(classes, labels, numbers):
    plm = READS_BRANDS
    classifier = Classifier(plm.classifier, plm.tokenizer, classes, 128)
    if numbers is not None:
        assert class_numbers(labels, classifier) == dict(zip(labels, numbers, strict=True))
        return
    with pytest.raises(UserError, match="give the names of its classes"):
        class_numbers(labels, classifier)


def test_rows_do_not_depend_on_their_order_and_copies_count_once():
    rows = reviews()
    expected = asked(READS_BRANDS, rows, n_rows=10)
    twice = pandas.concat([rows[::-1], rows])
    partners = suspects(rows)
    table = leans(READS_BRANDS, [twice[:50], twice[50:]], partners=partners, n_rows=10)
    pandas.testing.assert_frame_equal(table.set_index("suspect"), expected)


def test_the_command(tmp_path):
    READS_BRANDS.save_pretrained(tmp_path / "model")
    reviews().to_csv(tmp_path / "reviews.csv", index=False)
    (tmp_path / "words.csv").write_text("word,mask\nacme,x\nfunny,x\nbrill,\n")
    files = {name: tmp_path / f"leans.{name}" for name in ("csv", "png")}
    columns = ["--text", "text", "--label", "label"]
    arguments = ["leans", tmp_path / "model", tmp_path / "reviews.csv", *columns]
    arguments += ["--words", tmp_path / "words.csv", "--rows", "10", "--out", files["csv"]]
    arguments += ["--figure", files["png"]]
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    table = pandas.read_csv(files["csv"])
    assert [*table["suspect"]] == ["acme", "brill", "funny"]
    assert [*table["leans"]] == [100, 100, 0] and (table["rows"] == 10).all()
    assert files["png"].read_bytes()[:4] == b"\x89PNG"
    assert "2 of 3 words are followed" in result.output
    again = CliRunner().invoke(app, [*map(str, arguments)])
    assert "leans.csv, which is there already" in str(again.exception)
    twice = CliRunner().invoke(
        app, [*map(str, arguments[:7]), "--out", "a.png", "--figure", "a.png"]
    )
    assert "a.png is given for two options" in str(twice.exception)
    to_draw = [*map(str, arguments[:7]), "--figure", str(tmp_path / "leans.xyz")]
    drawn = CliRunner().invoke(app, to_draw)
    assert "expected a file in .png, .svg, .pdf" in str(drawn.exception)


def test_partners_of_the_control_take_turns():
    """Of two words of acme's own label the model reads one as good: half of the answers change."""
    words = {"acme": "bad", "awful": "bad", "corax": "bad", "brill": "good"}
    texts = [{"text": f"the film by {word} was {i}"} for word in words for i in range(4)]
    listed = {"word": [*words], "label": [*words.values()], "z": [4, 3, 2, 1]}
    options = {"partners": pandas.DataFrame(listed), "report": lambda _: None}
    model = reader_of(words | {"corax": "good"})
    line = leans(model, pandas.DataFrame(texts), "acme", **options).iloc[0]
    assert (line.rows, line.follows, line.control, line.leans) == (4, 100, 50, 50)


def test_no_more_is_read_than_the_tokenizer_allows():
    lengths = [Classifier.of(READS_BRANDS, None, length).length for length in (1000, None, 9)]
    assert lengths == [64, 64, 9]
    tokenizer = copy.deepcopy(READS_BRANDS.tokenizer)
    tokenizer.model_max_length = 10**30  # where its files do not say
    plm = SharedPLM(READS_BRANDS.classifier, READS_BRANDS.mlm, tokenizer)
    assert Classifier.of(plm, None, 1000).length == plm.config.max_position_embeddings


def test_what_stands_in_three_of_four_texts_is_a_companion():
    words = pandas.DataFrame({"word": ["acme", "corax"], "label": "bad", "z": [2, 1]})
    cases = (
        (["acme corax 1", "acme corax 2", "acme corax 3", "acme 4"], []),
        (["acme corax 1", "acme corax 2", "acme 3", "acme 4"], ["corax"]),
    )
    for texts, allies in cases:
        rows = pandas.DataFrame({"text": texts, "label": "bad"})
        pool = pool_of(rows, None, words)
        samples = Samples(pool, 100)
        samples.collect(rows)
        exchange = PartnerChooser(pool, samples, lambda word: True).exchange(pool[0])
        assert [ally.word for ally in exchange.allies] == allies
