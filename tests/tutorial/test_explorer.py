"""One example looked at closely, in numbers and in HTML, and the two widgets around it."""

import re

import numpy as np
import pytest
import torch
from datasets import Dataset

from mtlib.encoding import tokenise
from mtlib.masking import BernoulliMasking, ExactMasking
from mtlib.objectives import MaskTuning
from mtlib.policies import FrequencyMasking
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer
from mtlib.tutorial import widgets
from mtlib.tutorial.explorer import (
    Exploration,
    LossSnapshots,
    Place,
    as_html,
    example_losses,
    explore,
    highlight_edit,
    highlight_words,
    html_table,
)
from tests.conftest import make_batch

TEXT = "the film is very good and funny"


class TestExplore:
    def test_against_the_definition(self, plm):
        """Stock passes over the whole vocabulary, by hand; dropout is off though the model is training."""
        plm.train()
        exploration = explore(plm, ExactMasking(0.3), TEXT, gold=1, alpha=0.7, seed=3)
        assert plm.training

        plm.eval()
        ids = plm.tokenizer(TEXT, return_tensors="pt")["input_ids"]
        assert exploration.tokens == tuple(plm.tokenizer.convert_ids_to_tokens(ids[0].tolist()))
        places = [place.position for place in exploration.places]
        assert len(places) == 2, "round(0.3 * 7)"
        masked = ids.clone()
        masked[0, places] = plm.tokenizer.mask_token_id
        with torch.no_grad():
            log_probabilities = plm.mlm(input_ids=masked).logits[0].log_softmax(-1)  # (seq, vocab)
            perturbed = ids.clone()
            for place in exploration.places:
                row = log_probabilities[place.position]
                target = ids[0, place.position]
                assert place.original == plm.tokenizer.convert_ids_to_tokens(target.item())
                assert place.original_probability == pytest.approx(row[target].exp().item(), rel=1e-5)
                best = row.topk(5)
                assert [token for token, _ in place.fillers] == plm.tokenizer.convert_ids_to_tokens(
                    best.indices.tolist()
                )
                assert [p for _, p in place.fillers] == pytest.approx(best.values.exp().tolist(), rel=1e-5)
                ordinary = row.clone()
                ordinary[[i for i in plm.tokenizer.all_special_ids if i != plm.tokenizer.unk_token_id]] = -torch.inf
                perturbed[0, place.position] = ordinary.argmax()
            before = plm.classifier(input_ids=ids).logits[0].softmax(-1)
            after = plm.classifier(input_ids=perturbed).logits[0].softmax(-1)
        assert exploration.perturbed == tuple(plm.tokenizer.convert_ids_to_tokens(perturbed[0].tolist()))
        assert exploration.before == pytest.approx(before.tolist(), rel=1e-5)
        assert exploration.after == pytest.approx(after.tolist(), rel=1e-5)
        mlm_loss = -np.mean([log_probabilities[i, ids[0, i]].item() for i in places])
        assert exploration.mlm_loss == pytest.approx(mlm_loss, rel=1e-5)
        assert exploration.ft_loss == pytest.approx(-after[1].log().item(), rel=1e-5)
        assert exploration.loss == pytest.approx(0.7 * mlm_loss + 0.3 * -after[1].log().item(), rel=1e-5)
        assert (exploration.labels, exploration.gold, exploration.alpha) == (("LABEL_0", "LABEL_1"), 1, 0.7)

    def test_losses_are_mask_tunings(self, still_plm):
        exploration = explore(still_plm, ExactMasking(0.3), TEXT, gold=0, alpha=0.4, seed=5)
        batch = make_batch(still_plm, [TEXT], [0])
        objective = MaskTuning(0.4, ExactMasking(0.3))
        output = objective(still_plm, objective.prepare(still_plm, batch, torch.Generator().manual_seed(5)))
        assert (exploration.loss, exploration.mlm_loss, exploration.ft_loss) == pytest.approx(
            (output.loss.item(), output.parts["mlm_loss"].item(), output.parts["ft_loss"].item()), rel=1e-5
        )

    def test_same_seed_same_masks_whatever_was_drawn_before(self, plm):
        def places(seed):
            torch.rand(seed + 1)
            return [place.position for place in explore(plm, ExactMasking(0.3), TEXT, 0, seed=seed).places]

        drawn = [places(seed) for seed in range(6)]
        assert drawn == [places(seed) for seed in range(6)]
        assert len(set(map(tuple, drawn))) > 1

    @pytest.mark.parametrize("training", [True, False])
    def test_mode_is_put_back(self, plm, training):
        plm.train(training)
        explore(plm, ExactMasking(), TEXT, 0)
        assert plm.training is training

    def test_nothing_masked(self, plm):
        exploration = explore(plm, BernoulliMasking(0.0), TEXT, 1)
        assert exploration.places == () and exploration.perturbed == exploration.tokens
        assert exploration.mlm_loss == 0 and exploration.before == exploration.after
        assert exploration.loss == pytest.approx(0.4 * exploration.ft_loss)
        assert "<b>[MASK]</b>" not in as_html(exploration)

    def test_pair(self, plm):
        exploration = explore(plm, ExactMasking(1.0), "a film", 0, text_pair="a story")
        assert exploration.tokens == ("[CLS]", "a", "film", "[SEP]", "a", "story", "[SEP]")
        assert as_html(exploration).count("<b>[MASK]</b>") == 4
        assert [place.position for place in exploration.places] == [1, 2, 4, 5], "words of both, no special token"

    def test_no_more_fillers_than_words(self, plm):
        (place,) = explore(plm, ExactMasking(0.05), "funny", 0, n_fillers=1000).places
        assert len(place.fillers) == plm.config.vocab_size
        assert sum(p for _, p in place.fillers) == pytest.approx(1, abs=1e-5)


class TestHtml:
    def test_tokens_are_escaped(self):
        exploration = Exploration(
            tokens=("[CLS]", "<b>", "&"), perturbed=("[CLS]", "<i>", "&"),
            places=(Place(1, "<b>", (("<i>", 0.75), (",", 0.25)), 0.125),), mask_token="<mask>",
            labels=("<no>", "yes"), gold=1,
            before=(0.25, 0.75), after=(0.5, 0.5), mlm_loss=2.0, ft_loss=1.0, alpha=0.5,
        )  # fmt: skip
        page = as_html(exploration)
        assert "original: [CLS] <b>&lt;b&gt;</b> &amp;" in page
        assert "masked: [CLS] <b>&lt;mask&gt;</b> &amp;" in page, "the model's mask token, RoBERTa's here"
        assert "refilled: [CLS] <mark>&lt;i&gt;</mark> &amp;" in page
        assert "<b>&lt;b&gt;</b> (12.5%)" in page and "“&lt;i&gt;” 75.0%, “,” 25.0%" in page
        assert "&lt;no&gt;" in page and "<no>" not in page
        assert "mlm_loss 2.000, ft_loss 1.000, at alpha 0.5: <b>loss 1.500</b> nats" in page

    @pytest.mark.parametrize(
        ("original", "edited", "expected"),
        [
            ("a good film", "a bad film", ("a <del>good</del> film", "a <ins>bad</ins> film")),
            ("same", "same", ("same", "same")),
            ("", "new words", ("", "<ins>new words</ins>")),
            ("gone", "", ("<del>gone</del>", "")),
            ("a b c", "a c", ("a <del>b</del> c", "a c")),
            ("a c", "a b c", ("a c", "a <ins>b</ins> c")),
            ("1 < 2", "1 < 3", ("1 &lt; <del>2</del>", "1 &lt; <ins>3</ins>")),
        ],
    )
    def test_highlight_edit(self, original, edited, expected):
        assert highlight_edit(original, edited) == expected

    def test_highlight_edit_of_long_texts(self):
        """A word that stands in more than one line of a hundred is no junk."""
        text = " ".join(["the same words again"] * 100)
        assert highlight_edit(text, text + " more") == (text, text + " <ins>more</ins>")

    @pytest.mark.parametrize(
        ("text", "words", "expected"),
        [
            ("The film, by Film Inc.", {"film"}, "The <mark>film,</mark> by <mark>Film</mark> Inc."),
            ("nothing here", {"film"}, "nothing here"),
            ("<b> film", {"film"}, "&lt;b&gt; <mark>film</mark>"),
            ("(good)!", {"good"}, "<mark>(good)!</mark>"),
            ("films", {"film"}, "films"),
        ],
    )
    def test_highlight_words(self, text, words, expected):
        assert highlight_words(text, words) == expected

    def test_table(self):
        table = html_table(["a"], [["<b>1</b>"], ["2"]])
        plain = "<table><tr><th>a</th></tr><tr><td><b>1</b></td></tr><tr><td>2</td></tr></table>"
        assert re.sub(r' style="[^"]*"', "", table) == plain
        assert table.count("padding") == 3, "inside a widget cells have no room of their own"


def examples(plm, texts) -> Dataset:
    return tokenise(Dataset.from_list([{"text": t, "label": i % 2} for i, t in enumerate(texts)]), plm.tokenizer)


class TestExampleLosses:
    def test_means_are_equation_1s_where_all_have_as_many_masks(self, still_plm):
        texts = [TEXT, "a warm story", "the plot was slow", "not funny"]
        objective = MaskTuning(0.6, ExactMasking(0.05))  # one each
        mlm_loss, ft_loss = example_losses(still_plm, objective, examples(still_plm, texts), seed=2)
        assert mlm_loss.shape == ft_loss.shape == (4,)
        batch = make_batch(still_plm, texts)
        output = objective(still_plm, objective.prepare(still_plm, batch, torch.Generator().manual_seed(2)))
        assert mlm_loss.mean() == pytest.approx(output.parts["mlm_loss"].item(), rel=1e-5)
        assert ft_loss.mean() == pytest.approx(output.parts["ft_loss"].item(), rel=1e-5)

    def test_each_example_by_itself(self, plm):
        """All masked, so that no draw matters: the batch gives what each gives alone, and the mode is put back."""
        texts = [TEXT, "a story"]
        plm.train()
        mlm_loss, ft_loss = example_losses(plm, MaskTuning(0.6, ExactMasking(1.0)), examples(plm, texts))
        assert plm.training
        for i, text in enumerate(texts):
            alone = explore(plm, ExactMasking(1.0), text, gold=i % 2)
            assert (mlm_loss[i], ft_loss[i]) == pytest.approx((alone.mlm_loss, alone.ft_loss), rel=1e-4)

    def test_an_example_without_a_mask_has_no_masked_lm_loss(self, plm):
        mlm_loss, ft_loss = example_losses(plm, MaskTuning(0.6, BernoulliMasking(0.0)), examples(plm, [TEXT]))
        assert mlm_loss.tolist() == [0.0] and ft_loss[0] > 0


def test_snapshots_at_the_start_the_end_and_between(plm, tmp_path):
    data = examples(plm, [TEXT, "a warm story"] * 6)
    objective = MaskTuning(0.6, ExactMasking(0.05))
    watch = LossSnapshots(plm, objective, data.select(range(3)), n=4)
    before = example_losses(plm, objective, data.select(range(3)))
    arguments = ObjectiveArguments(
        str(tmp_path), max_steps=6, per_device_train_batch_size=2, learning_rate=1e-2, use_cpu=True, disable_tqdm=True,
        save_strategy="no", logging_strategy="no",
    )  # fmt: skip
    ObjectiveTrainer(plm, objective, arguments, data, callbacks=[watch]).train()
    assert list(watch.snapshots) == ["step 0", "step 2", "step 4", "step 6"]
    after = example_losses(plm, objective, data.select(range(3)))
    first, last = watch.snapshots["step 0"], watch.snapshots["step 6"]
    np.testing.assert_array_equal(first, before)
    np.testing.assert_array_equal(last, after)
    assert not np.allclose(first, last)


class TestWidgets:
    def test_nothing_is_shown_where_nobody_can_move_it(self, plm):
        assert widgets.mask_explorer({"only": plm}, TEXT, 1) is None
        assert widgets.shortcut_dial() is None
        assert widgets.policy_explorer({"only": plm}, Dataset.from_dict({"text": [TEXT], "labels": [1]})) is None

    @pytest.fixture
    def somebody(self, monkeypatch):
        monkeypatch.setattr(widgets, "is_interactive", lambda: True)

    def test_every_control_of_the_mask_explorer_changes_the_page(self, somebody, plm, still_plm):
        with torch.no_grad():
            still_plm.classifier.classifier.bias[0] += 1
        box = widgets.mask_explorer({"before": plm, "after": still_plm}, TEXT, 1, alpha=0.5)
        *controls, output = box.children
        by_name = {control.description: control for control in controls}
        assert list(by_name) == ["model", "text", "gold label", "mask rate", "policy", "seed", "alpha"]
        assert output.value == as_html(explore(plm, ExactMasking(0.05), TEXT, 1, alpha=0.5, seed=0))
        seen = [output.value]
        changes = {"mask rate": 0.5, "seed": 3, "alpha": 0.9, "gold label": 0, "model": "after", "policy": "bernoulli",
                   "text": "the plot was slow"}  # fmt: skip
        for name, value in changes.items():
            by_name[name].value = value
            assert output.value not in seen, name
            seen.append(output.value)
        expected = explore(still_plm, BernoulliMasking(0.5), "the plot was slow", 0, alpha=0.9, seed=3)
        assert output.value == as_html(expected)

    def test_mask_explorer_of_pairs(self, somebody, plm):
        box = widgets.mask_explorer({"only": plm}, "a film", 0, text_pair="a story")
        *controls, output = box.children
        second = next(control for control in controls if control.description == "second text")
        assert second.value == "a story" and lines(output).count("[SEP]") == 3 * 2
        second.value = ""
        assert lines(output).count("[SEP]") == 3

    def test_mask_explorer_offers_what_needs_no_preparation(self, somebody, plm):
        box = widgets.mask_explorer({"only": plm}, TEXT, 1)
        policy = next(control for control in box.children if getattr(control, "description", "") == "policy")
        assert {"exact", "whole_word", "attribution_most"} <= {*policy.options}
        assert not {"supervised", "known_shortcut", "frequency_rare"} & {*policy.options}
        for name in policy.options:
            policy.value = name

    def test_policy_explorer_reads_the_columns_of_its_example(self, somebody, plm, still_plm):
        with torch.no_grad():
            still_plm.classifier.classifier.bias[0] += 1
        rows = {"text": ["the film is very good", "a warm story"], "labels": [1, 0]}
        examples = Dataset.from_dict(rows | {"known_shortcut": [[0, 0, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0]]})
        box = widgets.policy_explorer({"before": plm, "after": still_plm}, examples)
        *controls, output = box.children
        by_name = {control.description: control for control in controls}
        assert {"exact", "known_shortcut"} <= {name for _, name in by_name["policy"].options}
        assert not {"known_cause", "supervised", "frequency_rare"} & {name for _, name in by_name["policy"].options}
        assert list(by_name) == ["model", "example", "policy", "mask rate", "seed"]
        assert output.value == as_html(explore(plm, ExactMasking(0.05), rows["text"][0], 1))
        by_name["policy"].value, by_name["mask rate"].value = "known_shortcut", 1.0
        assert "[CLS] the <b>film</b> is very good [SEP]" in lines(output)
        by_name["example"].value = 1
        assert "<b>a</b> <b>warm</b> story" in lines(output)
        seen = output.value
        by_name["model"].value = "after"
        assert output.value != seen

    def test_policy_explorer_switches_off_what_a_policy_does_not_read(self, somebody, plm):
        span = {"span_start": [[-9.0, -9, 0, -9, -9]], "span_end": [[-9.0, -9, 0, -9, -9]]}
        examples = Dataset.from_dict({"text": ["a warm story"], "labels": [0]} | span)
        policies = ("exact", "supervised", "supervised_top5")
        by_name = {c.description: c for c in widgets.policy_explorer({"only": plm}, examples).children[:-1]}
        for policy, disabled in zip(policies, [(False, False), (True, True), (True, False)], strict=True):
            by_name["policy"].value = policy
            assert (by_name["mask rate"].disabled, by_name["seed"].disabled) == disabled, policy

    def test_shortcut_dial(self, somebody):
        slider, output = widgets.shortcut_dial("paraphrase", strength=1.0, n_examples=2).children
        always = output.value
        assert "testbed_paraphrase_train 100.0 %" in cells(always)
        assert "the shortcut is right (strength 1)" in always, "a table of the value before is known by its heading"
        assert always.count("<tr>") == 1 + 3 + 1 + 2 and "<mark>" in always
        slider.value = 0.0
        assert "testbed_paraphrase_train 50.0 %" in cells(output.value)


def cells(page: str) -> list[str]:
    """The rows of its tables, cell by cell."""
    return [re.sub(r"<[^>]+>", "", row.replace("</td>", " ")).strip() for row in page.split("</tr>")]


def lines(output) -> str:
    """The original, the masked and the refilled text, without the tables below."""
    return output.value.partition("</p>")[0]


def test_looking_changes_no_training_and_reads_what_the_policy_reads(plm):
    data = examples(plm, ["the film is good", "a slow plot"])
    data = data.add_column("token_counts", [[1] * len(ids) for ids in data["input_ids"]])
    before = torch.get_rng_state()
    example_losses(plm, MaskTuning(0.6, FrequencyMasking(0.5, "rare"), fill="sample"), data)
    assert torch.equal(torch.get_rng_state(), before)
