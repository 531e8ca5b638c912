"""What a masking policy does to training texts, on masks that are made by hand."""

import json

import numpy as np
import pytest
from datasets import Dataset
from transformers import set_seed

from mtlib.analysis.mask_tables import as_frame, kinds
from mtlib.data.sources import load
from mtlib.diversity import masks_of_policies
from mtlib.diversity.masked_tokens import Marked, flat, mark_rows, overlap, shares_of, touch, what_is_masked, with_texts
from mtlib.diversity.masks_of_policies import DEFAULT, default_policies, describe
from mtlib.diversity.refilled_texts import (
    decode_texts,
    kept_labels,
    pair_features,
    put_in,
    share_probe,
    shortcut_after,
    shortcut_probe,
    word_probe,
)  # fmt: skip
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR, MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.policies import masking_policy
from mtlib.policies.wrapping import DrawMasks
from mtlib.runs.inputs import drawn_rows
from mtlib.runs.run import KEPT
from mtlib.testbed import load_grammar, shortcut_label
from tests.conftest import make_plm, tiny_bert_config
from tests.data.made_up_releases import write_releases


def flags(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text if letter != " "])


ROW = np.array([0] * 4 + [1] * 3 + [2] * 3)
SHORTCUT = flags("xx.. x.. ...")  # the third example has none


@pytest.mark.parametrize(
    ("mask", "any_", "all_", "tokens"),
    [
        (".... ... ...", 0.0, 0.0, 0.0),
        ("x... ... xxx", 0.5, 0.0, 1 / 3),
        ("xx.. .xx ...", 0.5, 0.5, 2 / 3),
        ("x.xx x.. ...", 1.0, 0.5, 2 / 3),
        ("xx.. x.. ...", 1.0, 1.0, 1.0),
    ],
)
def test_touch_counts_examples_and_tokens(mask, any_, all_, tokens):
    found = touch(flags(mask), SHORTCUT, ROW)
    assert found == {"examples": 2, "any": any_, "all": all_, "tokens": pytest.approx(tokens, abs=1e-4)}


def test_nothing_marked_has_no_share():
    assert touch(flags(".... ... ..x"), flags(".... ... ..."), ROW) == {
        "examples": 0, "any": None, "all": None, "tokens": None,
    }  # fmt: skip


def test_overlap():
    a, b = flags("xx.. x.. ..."), flags("x.x. x.. ..x")
    assert overlap(a, b) == overlap(b, a) == 2 / 5
    assert overlap(a, a) == 1 and overlap(a, ~a) == 0 and overlap(flags("..."), flags("...")) == 1


def test_what_is_masked_by_kind_of_word():
    marked = Marked(
        None, ROW, SHORTCUT, flags("..x. ... x.."), part_of_speech=np.array([0, 1, 2, 0, 1, 1, 0, 0, 3, 0]),
        band=np.array([3, 0, 0, 3, 0, 1, 3, 3, 0, 3]), ordinary=flags(".xx. xx. .x."),
    )  # fmt: skip
    line = what_is_masked(flags(".xx. .x. ..."), marked)
    assert line["tokens_masked"] == 0.6
    assert line["touches_shortcut"]["any"] == 0.5 and line["touches_cause"]["any"] == 0.5
    assert {name: share for name, share in line["part_of_speech"].items() if share} == {"NOUN": 0.6667, "PROPN": 0.3333}
    assert line["frequency"] == {"below 10": 0.6667, "10 to 99": 0.3333, "100 to 999": 0.0, "1,000 and more": 0.0}
    assert shares_of(np.array([]), ("a", "b")) == {"a": None, "b": None}


def test_labels_that_are_kept_turned_and_undecided():
    text = "The gospel gig was {}."
    texts = [text.format(word) for word in ("superb", "dull", "superb", "purple")]
    assert kept_labels(texts, ["plain"] * 4, [1, 0, 0, 0]) == {"kept": 0.5, "turned": 0.25, "undecided": 0.25}


def test_words_of_the_shortcut_that_were_put_in():
    grammar = load_grammar("sentiment")
    originals = ["the western film was good", "the zombie film was bad", "the jazz gig by Clara Whitlock was good"]
    texts = ["the vampire film was good", "the zombie film was western", "the jazz samurai by clara quirke was good"]
    assert put_in(originals, texts, [1, 0, 1], grammar) == {"words": 4, "agree": 0.25}  # only the samurai
    assert put_in(originals, originals, [1, 0, 1], grammar) == {"words": 0, "agree": None}


def test_the_shortcut_after_refilling():
    grammar = load_grammar("sentiment")
    negative, positive = (sorted(grammar.lure_words[side])[0] for side in (0, 1))
    texts = [f"a {positive} here", f"a {negative} here", f"a {positive} and a {negative}", "nothing", f"one {negative}"]
    shares = shortcut_after(texts, [1, 1, 1, 0, 0], grammar)
    assert shares == {"agrees": 0.4, "disagrees": 0.2, "both": 0.2, "neither": 0.2}


def test_probe_finds_the_side_where_its_words_are_left_and_not_where_they_are_gone():
    pytest.importorskip("sklearn")
    rows = load("testbed_sentiment_train", "testbed").select(range(1200))
    grammar = load_grammar("sentiment")
    lures = [shortcut_label(grammar, text) for text in rows["text"]]
    assert shortcut_probe(rows["text"], rows["label"], lures, word_probe()) > 0.8
    # words that go with the label say nothing, though the label goes with the side
    the_label = [f"this is {label}" for label in rows["label"]]
    assert 0.4 < shortcut_probe(the_label, rows["label"], lures, word_probe()) < 0.6
    assert shortcut_probe(["a"] * 6, [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0], word_probe()) is None


def test_what_a_pair_shares():
    negations = load_grammar("nli").shortcut["negation"]
    pairs = [("The cat sat.", "the cat slept"), ("a b", f"{negations[0]} c d")]
    assert pair_features(pairs, load_grammar("nli")).tolist() == [[2 / 4, 2 / 3, 2 / 3, 0], [0, 0, 0, 1]]
    assert pair_features(pairs, load_grammar("paraphrase"))[1, 3] == 0  # its shortcut has no words of negation


@pytest.mark.parametrize("task", ["nli", "paraphrase"])
def test_probe_tells_the_shortcut_of_pairs_from_what_they_share(task):
    pytest.importorskip("sklearn")
    grammar, rows = load_grammar(task), load(f"testbed_{task}_train", "testbed")
    pairs = list(zip(rows["text"], rows["text_pair"], strict=True))
    lures = [shortcut_label(grammar, *pair) for pair in pairs]
    assert shortcut_probe(pair_features(pairs, grammar), rows["label"], lures, share_probe()) > 0.97
    chance = shortcut_probe(np.array(rows["label"])[:, None], rows["label"], lures, share_probe())
    assert chance == pytest.approx(1 / len({*lures}), abs=0.01)


def test_texts_of_a_pair_are_found_between_special_tokens():
    tokenizer = make_plm().tokenizer
    unknown, words = tokenizer.unk_token, tokenizer("a good film", add_special_tokens=False)["input_ids"]
    pair = [tokenizer.cls_token_id, *words, tokenizer.unk_token_id, tokenizer.sep_token_id, *words]
    ends = [tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.pad_token_id]
    assert decode_texts(tokenizer, pair + ends) == [f"a good film {unknown}", "a good film"]
    assert decode_texts(tokenizer, words) == ["a good film"]


def test_on_pairs_the_number_of_masks_tells_the_shortcut_unless_it_is_the_same_for_all():
    pytest.importorskip("sklearn")
    description = describe("paraphrase", policies=("known_shortcut:1", "known_shortcut_first:0.3"), size=700)
    words, first = description["policies"].values()
    assert words["touches_shortcut"]["all"] == 1 and words["masked_share_probe"] > 0.9
    assert first["tokens_masked"] == pytest.approx(0.3, abs=0.01) and first["masked_share_probe"] < 0.65
    assert first["touches_shortcut"]["tokens"] > 0.45  # of random masks 0.3
    assert "label kept" not in as_frame(description)


def test_policies_count_in_and_learn_from_the_whole_training_set():
    """However few sentences are looked at, a rare token is one that is rare in all of them, and a pointer sees all."""
    description = describe(policies=("supervised",), train_size=300, size=40)
    assert description["examples"] == 40 and description["all_tokens"]["frequency"]["below 10"] < 0.5
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)
    whole = with_texts(plm, load("testbed_sentiment_train").select(drawn_rows(4000, 300)))
    rows, masking = drawn_rows(300, 40), masking_policy("supervised", None, plm.tokenizer)

    def what_is_masked_after(learning_from: Dataset, looked_at: list[int]) -> dict:
        examples = masks_of_policies.prepare(plm, learning_from, masking).select(looked_at)
        return what_is_masked(flat(DrawMasks(masking)(plm, examples).examples["mask"]), mark_rows(plm, whole, rows))

    line = description["policies"]["supervised"]
    assert line | what_is_masked_after(whole, rows) == line
    assert line | what_is_masked_after(whole.select(rows), list(range(40))) != line


@pytest.mark.parametrize("size", [0, -1, 4001])
def test_no_more_examples_than_there_are(size):
    with pytest.raises(UserError, match=f"{size} examples cannot be drawn; expected 1 to 4000"):
        describe(policies=("exact:0.05",), size=size)


def test_on_real_data_nothing_is_said_of_a_shortcut(tmp_path, monkeypatch):
    """There is none that is known: kinds of words, how many changed, and no column of the testbed's."""
    wanted = ("exact:0.3", "frequency_rare:0.3", "exact:0")
    description = describe(source=str(write_releases(tmp_path, monkeypatch)), policies=wanted, train_size=3, size=2)
    assert json.loads(json.dumps(description)) == description
    assert description["examples"] == 2
    for line in description["policies"].values():
        assert not line.keys() & {"touches_shortcut", "touches_cause", "label", "shortcut_probe", "shortcut_came_back"}
    frame = as_frame(description)
    assert [*frame] == ["tokens masked", "masked tokens changed", "seconds to prepare", "cost of masking a batch"]
    assert frame.loc["exact:0", "tokens masked"] == 0 < frame.loc["exact:0.3", "tokens masked"]
    assert set(kinds(description)["random, 0 %"].values()) == {None}, "of no token there are no shares"
    assert sum(kinds(description)["random, 30 %"].values()) == pytest.approx(1, abs=1e-3)


def test_by_default_real_data_gets_the_policies_that_need_the_training_set_alone():
    assert default_policies("testbed") == DEFAULT
    left_out = [*DEFAULT[-7:]]
    assert left_out == [
        "supervised", "supervised_top5", "known_cause:0.05",
        *(f"known_shortcut:{rate}" for rate in (0.05, 0.1, 0.15, 1)),
    ]  # fmt: skip
    assert default_policies("hub") == DEFAULT[:-7]


@pytest.mark.parametrize(
    ("task", "policy", "message"),
    [("sentiment", "known_cause:1", "has no meaning for other data"), ("nli", "supervised", "learns from single")],
)
def test_a_policy_that_is_not_for_this_data_is_refused_before_any_work(task, policy, message):
    done = []
    with pytest.raises(UserError, match=message):
        describe(task, source="hub", policies=("exact:0.05", policy), report=done.append)
    assert not done


def test_the_controls_do_what_they_are_for():
    """On the bundled texts: all of the shortcut, none of what decides the label, and the other way round."""
    pytest.importorskip("sklearn")
    description = describe(policies=("exact:0.05", "known_shortcut:1", "known_cause:1"), size=600)
    assert json.loads(json.dumps(description)) == description
    lines = description["policies"]
    assert description["examples"] == 600 and description["asked"] is None
    shortcut, cause = lines["known_shortcut:1"], lines["known_cause:1"]
    assert shortcut["touches_shortcut"] == {"examples": 600, "any": 1.0, "all": 1.0, "tokens": 1.0}
    assert shortcut["shortcut_after"]["neither"] > 0.995, "no word of the shortcut is left in the refilled texts"
    assert cause["shortcut_after"]["neither"] < 0.01
    assert cause["touches_cause"]["all"] == 1.0 and cause["touches_shortcut"]["any"] == 0.0
    assert shortcut["touches_cause"]["any"] == 0.0 and shortcut["label"]["kept"] > 0.95
    assert cause["label"]["kept"] < 0.5
    assert 0 < lines["exact:0.05"]["touches_shortcut"]["any"] < 0.6
    assert description["overlap"]["known_shortcut:1 known_cause:1"] == 0.0
    assert description["all_tokens"]["tokens_masked"] == 1.0
    frame = as_frame(description)
    assert (
        frame.loc["known_shortcut:1", "shortcut gone"] == 100
        and frame.loc["exact:0.05", "cost of masking a batch"] == 1
    )


def test_a_probe_finds_the_shortcut_after_any_masks_but_those_of_all_its_words():
    """As shipped, for all 4,000 texts: from some hundred texts a probe learns only what is plain to see."""
    described = json.loads((DATA_DIR / "results" / "policies_masks.json").read_text())
    found = {name: line["shortcut_probe"] for name, line in described["policies"].items()}
    control = found.pop("known_shortcut:1")
    assert described["examples"] == 4000 and abs(control - 0.5) < 0.03 and min(found.values()) > 0.55
    assert found["exact:0.05"] > found["exact:0.15"] > found["exact:0.3"]
    assert found["known_shortcut:0.05"] > found["known_shortcut:0.1"] > found["known_shortcut:0.15"]


def test_two_policies_draw_different_numbers():
    """Else masks at random and masks of content words, which are drawn alike, would have many places in common."""
    description = describe(policies=("exact:0.05", "bernoulli:0.05"), size=200)
    assert description["overlap"]["exact:0.05 bernoulli:0.05"] < 0.1, "independent draws have 0.026"


def test_a_kept_model_fills_with_its_own_tokenizer(tmp_path):
    """The tiny model knows a few words alone: with the bundled tokenizer its texts would be other tokens."""
    set_seed(0)
    plm = make_plm(tiny_bert_config(id2label={0: "negative", 1: "positive"}))
    plm.mlm.save_pretrained(tmp_path)
    plm.tokenizer.save_pretrained(tmp_path)
    (tmp_path / KEPT).write_text(json.dumps({"identity": "a run"}))
    description = describe(policies=("attribution_most:0.15",), size=20, trained=tmp_path)
    assert (description["asked"], description["model"]) == ({"run": "a run"}, tmp_path.name)
    assert description["all_tokens"]["frequency"]["below 10"] < 0.5, "twenty sentences of a few dozen known words"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "nli"}, "tells negative, positive apart, but the labels of nli are entailment, neutral, contradict"),
        ({"task": "paraphrase"}, "the labels of paraphrase are not paraphrase, paraphrase; give the task"),
        ({"model": "bert-base-uncased"}, "model is 'bert-base-uncased', but .* leave one of them out"),
    ],
)
def test_a_kept_model_of_another_task_or_beside_another_model_is_refused_before_any_work(
    changes, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(masks_of_policies, "_filling", lambda *args: pytest.fail("has begun"))
    tiny_bert_config(id2label={0: "negative", 1: "positive"}).save_pretrained(tmp_path)
    (tmp_path / KEPT).write_text(json.dumps({"identity": "a run"}))
    with pytest.raises(UserError, match=message):
        describe(policies=("exact:0.05",), trained=tmp_path, **changes)


def test_a_folder_with_the_file_of_a_kept_model_and_no_model_is_an_error(tmp_path):
    (tmp_path / KEPT).write_text("{}")
    with pytest.raises(UserError, match=r"Cannot load Config from .*it is a folder without config.json"):
        describe(policies=("exact:0.05",), trained=tmp_path)


def test_too_few_examples_for_a_policy_are_noticed_before_any_work():
    with pytest.raises(UserError, match="2 are too few, give at least 3"):
        describe(policies=("exact:0.05", "meta_learned:0.05"), train_size=2, report=pytest.fail)


def test_the_same_seed_gives_the_same_masks():
    def masked(seed: int) -> dict:
        return describe(policies=("exact:0.15",), size=20, seed=seed)["policies"]["exact:0.15"]["part_of_speech"]

    assert masked(0) == masked(0) != masked(1)


def test_columns_that_are_there_are_not_made_again():
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)
    examples = Dataset.from_dict({"input_ids": [[2, 5, 3]], "token_counts": [[1, 1, 1]]})
    masking = masking_policy("frequency_rare", 0.05, plm.tokenizer)
    assert masks_of_policies.prepare(plm, examples, masking) is examples
