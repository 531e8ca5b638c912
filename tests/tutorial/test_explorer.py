"""One text looked at closely: in numbers, as HTML, and with a button for each word."""

import pytest
import torch

from mtlib.tutorial import explorer
from mtlib.tutorial.explorer import click_to_mask, explore, highlight_words
from tests.conftest import ROBERTA_SPECIALS, make_plm, make_tokenizer

TEXT = "the film is very good and funny"


def test_against_the_definition(plm):
    """Stock passes over the whole vocabulary, by hand; dropout is off though the model is training."""
    plm.train()
    exploration = explore(plm, TEXT, masked=[1, 4])
    assert plm.training
    plm.eval()
    ids = plm.tokenizer(TEXT, return_tensors="pt")["input_ids"]  # [CLS] the film is very good and funny [SEP]
    names = plm.tokenizer.convert_ids_to_tokens
    assert exploration.tokens == names(ids[0].tolist()) and list(exploration.fillers) == [2, 5]
    masked, perturbed = ids.clone(), ids.clone()
    masked[0, [2, 5]] = plm.tokenizer.mask_token_id
    with torch.no_grad():
        probabilities = plm.mlm(input_ids=masked).logits[0].softmax(-1)  # (seq, vocab)
        for position, fillers in exploration.fillers.items():
            best = probabilities[position].topk(5)
            assert [token for token, _ in fillers] == names(best.indices.tolist())
            assert [p for _, p in fillers] == pytest.approx(best.values.tolist(), rel=1e-5)
            ordinary = probabilities[position].clone()
            ordinary[[i for i in plm.tokenizer.all_special_ids if i != plm.tokenizer.unk_token_id]] = 0
            perturbed[0, position] = ordinary.argmax()
        before, after = (plm.classifier(input_ids=one).logits[0].softmax(-1).tolist() for one in (ids, perturbed))
    assert exploration.perturbed == names(perturbed[0].tolist())
    assert exploration.classes["original"].tolist() == pytest.approx(before, rel=1e-5)
    assert exploration.classes["refilled"].tolist() == pytest.approx(after, rel=1e-5)
    assert exploration.classes.index.tolist() == ["LABEL_0", "LABEL_1"]


def test_nothing_masked_changes_nothing(plm):
    exploration = explore(plm, TEXT)
    assert exploration.perturbed == exploration.tokens and exploration.fillers == {}
    assert (exploration.classes["original"] == exploration.classes["refilled"]).all()
    assert "<b>" not in exploration._repr_html_()


@pytest.mark.parametrize("double_separator", [False, True])
def test_a_word_is_all_of_its_pieces_in_the_text_that_it_stands_in(double_separator):
    specials = ROBERTA_SPECIALS if double_separator else {}
    tokenizer = make_tokenizer(specials, double_separator) if double_separator else make_tokenizer()
    exploration = explore(make_plm(tokenizer=tokenizer), "a slowly film", [1, 4], text_pair="a story.")
    masked = [exploration.tokens[position] for position in exploration.fillers]
    assert masked == ["slow", "##ly", "story"] and exploration.tokens[-2] == tokenizer.unk_token, "the full stop"


def test_html_is_escaped_and_marked(plm):
    exploration = explore(plm, "a film", [1], n_fillers=1000)
    assert len(exploration.fillers[2]) == plm.config.vocab_size
    assert sum(p for _, p in exploration.fillers[2]) == pytest.approx(1, abs=1e-5)
    odd = explorer.Exploration(["<a>", "film"], ["<a>", "<i>"], {1: [("<i>", 0.75), (",", 0.25)]}, exploration.classes)
    page = odd._repr_html_()
    assert "original: &lt;a&gt; <b>film</b><br>refilled: &lt;a&gt; <mark>&lt;i&gt;</mark>" in page
    assert "“&lt;i&gt;” 75.0%, “,” 25.0%" in page


def test_without_widgets_the_picture_stands(plm):
    shown = click_to_mask(plm, TEXT, [1])
    assert shown._repr_html_() == explore(plm, TEXT, [1])._repr_html_()


def test_a_click_masks_a_word_and_another_lets_it_go(plm, monkeypatch):
    monkeypatch.setattr(explorer, "is_interactive", lambda: True)
    words, output = click_to_mask(plm, TEXT, [1], text_pair="a story").children
    assert [button.description for button in words.children] == [*TEXT.split(), "a", "story"]
    for masked in ([1, 8], [8], []):
        for number, button in enumerate(words.children):
            button.value = number in masked
        assert output.value == explore(plm, TEXT, masked, "a story")._repr_html_()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The film, by Film Inc.", "The <mark>film</mark>, by <mark>Film</mark> Inc."),
        ("<b> (film)! films", "&lt;b&gt; (<mark>film</mark>)! films"),
    ],
)
def test_highlight_words(text, expected):
    assert highlight_words(text, {"film"}) == expected
