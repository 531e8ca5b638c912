"""`leans` on a classifier that reads one word and nothing else."""

import numpy as np
import pandas
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from mtlib import leans
from mtlib.followed_words import paired_interval
from mtlib.plm import SharedPLM
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
    table = asked(reader_of(BRANDS))
    assert {*table.index} == {*BRANDS, *OPINIONS}
    assert (table.loc[[*BRANDS], ["follows", "control", "leans"]] == [100, 0, 100]).all(axis=None)
    assert (table.loc[[*OPINIONS], ["follows", "control", "leans", "change"]] == 0).all(axis=None)
    assert (table.loc[[*BRANDS], "change"] < -50).all()
    line = table.loc["acme"]
    assert line.before.replace("acme", "X") in (line.after.replace(word, "X") for word in BRANDS)
    assert {*line.partners.split(", ")} <= {"brill", "delta"}
    assert {*table.columns} == {
        *("kind", "label", "marked", "rows", "partners", "follows", "control", "leans"),
        *("low", "high", "change", "before", "after"),
    }


def test_marked_words_that_are_followed_stand_first():
    words = pandas.DataFrame({"word": ["funny", "Acme", "brill"], "mask": ["x", "x", ""]})
    table = asked(reader_of(BRANDS), words=words)
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
