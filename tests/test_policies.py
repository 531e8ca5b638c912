"""Policies that mask certain words: how spans become tokens, and what each policy chooses."""

import copy
import itertools
import math
from dataclasses import replace
from functools import partial
from importlib.metadata import version

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call
from torch.nn.functional import gumbel_softmax
from transformers import BertJapaneseTokenizer

from mtlib.data import sources
from mtlib.data.registry import SETS
from mtlib.diversity.masks_of_policies import describe
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.masking import CountedMasking, WholeWordMasking, maskable_positions
from mtlib.methods import get_method
from mtlib.methods.bias import BIAS_MODELS, predict_out_of_fold
from mtlib.objectives import FineTuning, MaskedLM
from mtlib.paths import SETTINGS_FILE
from mtlib.plm import word_embeddings
from mtlib.policies import POLICIES, TESTBED_ONLY, masking_policy, meta_learned, supervised
from mtlib.policies.attribution import attribution
from mtlib.policies.known import KnownMasking
from mtlib.policies.meta_learned import LearnToMask, MaskScorer, gumbel_choice, meta_loss
from mtlib.policies.pointer import SpanPointer, best_spans, pointer_loss
from mtlib.policies.salient_spans import NUMERALS, SalientSpanMasking, SalientSpans
from mtlib.policies.supervised import PointAtAnswers, SupervisedMasking, edited_spans
from mtlib.runs.config import configure
from mtlib.runs.inputs import read_inputs
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from mtlib.spans import TokenSpans
from mtlib.testbed.generator import generate, shortcut_label
from mtlib.testbed.grammar import load_grammar, tokens
from mtlib.testbed.known_words import cause_spans, shortcut_spans
from tests.conftest import (
    BERT_SPECIALS,
    NO_DROPOUT,
    SENTENCES,
    WORDS,
    architecture,
    batch_of,
    make_batch,
    make_plm,
    record_identity,
    tiny_bert_config,
)
from tests.data.made_up_releases import MADE_UP, expect, write, write_releases


def example_set(rows: list[dict], plm) -> Dataset:
    """Tokenised, with the texts and all else that transforms read."""
    data = Dataset.from_list(rows)
    return tokenise(data, plm.tokenizer, 64, keep=data.column_names)


def masked_words(plm, policy, examples: Dataset, seed: int = 0) -> list[list[str]]:
    """The tokens that a policy masks in each example."""
    batch = {name: examples[name] for name in ("input_ids", "attention_mask", *policy.columns)}
    batch = {
        name: torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in rows], True, policy.columns.get(name, 0)
        )
        for name, rows in batch.items()
    }
    mask = policy(
        batch, maskable_positions(batch, plm.tokenizer), torch.Generator().manual_seed(seed), plm
    )
    return [
        plm.tokenizer.convert_ids_to_tokens(ids[chosen])
        for ids, chosen in zip(batch["input_ids"], mask, strict=True)
    ]


@pytest.fixture
def installed(monkeypatch) -> str:
    """The name of a pipeline of rules in place of a recogniser, as if pip had installed it."""
    pipeline = pytest.importorskip("spacy").blank("en")
    labels = [*NUMERALS, "PERSON", "TIME"]
    rules = [
        {"label": label, "pattern": f"film {word}"}
        for label, word in zip(labels, WORDS, strict=False)
    ]
    more = [{"label": "WORK", "pattern": "warm story"}, {"label": "DATE", "pattern": "filming"}]
    pipeline.add_pipe("entity_ruler").add_patterns([*rules, *more])
    monkeypatch.setattr(
        "mtlib.policies.salient_spans.load_pipeline", {"en_works_sm": pipeline}.__getitem__
    )
    return "en_works_sm"


class TestSalientSpans:
    TEXTS = ["A warm story of filming", "not good", "filming was slow"]

    @pytest.mark.parametrize("method", ["mask_tuning", "intermediate_pretraining"])
    def test_one_entity_of_each_example_or_else_tokens_at_random(self, installed, method):
        plm = make_plm()
        config = configure(
            "sentiment", method, masking="salient_spans", spacy_pipeline=installed
        ).resolved()
        first, *_ = get_method(method).stages(config.settings, config.rates, plm.tokenizer)
        examples, counts = first.transforms[0](
            plm, example_set([{"text": text} for text in self.TEXTS], plm)
        )
        assert examples["salient_spans"][:] == [
            [0, 0, 1, 1, 0, 2, 2, 0],
            [0, 0, 0, 0],
            [0, 1, 1, 0, 0, 0],
        ]
        assert counts == {"salient_spans_unmarked": 1}
        drawn = [masked_words(plm, first.objective.masking, examples, seed) for seed in range(200)]
        firsts = [tuple(words[0]) for words in drawn]
        assert {*firsts} == {("warm", "story"), ("film", "##ing")}
        assert 70 < firsts.count(("warm", "story")) < 130
        assert {tuple(words[1]) for words in drawn} == {("not",), ("good",)}
        assert all(words[2] == ["film", "##ing"] for words in drawn)

    def test_an_entity_with_an_unknown_word_inside_is_drawn_as_often_as_another(self):
        spans = torch.tensor([[1, 0, 1, 2]]).expand(2000, 4)  # the second token is [UNK]
        masks = SalientSpanMasking()(
            {"salient_spans": spans}, spans > 0, torch.Generator().manual_seed(0)
        )
        assert {tuple(row) for row in masks.tolist()} == {
            (True, False, True, False),
            (False, False, False, True),
        }
        assert masks[:, 0].float().mean().item() == pytest.approx(0.5, abs=0.05)

    def test_numerals_are_no_named_entities(self, installed):
        plm, texts = make_plm(), [f"film {word}" for word in WORDS[: len(NUMERALS) + 2]]
        marks = SalientSpans(installed)(plm, example_set([{"text": text} for text in texts], plm))
        assert [max(row) for row in marks.examples["salient_spans"]] == [0] * len(NUMERALS) + [1, 1]

    def test_the_record_names_the_pipeline_with_its_version(self):
        def recorded(**settings):
            return (
                configure("sentiment", "mask_tuning", **settings)
                .resolved()
                .public()["spacy_pipeline"]
            )

        assert recorded() is None
        assert (
            recorded(masking="salient_spans", spacy_pipeline="torch") == f"torch {version('torch')}"
        )

    def test_what_is_not_installed_is_told(self):
        with pytest.raises(
            UserError, match=r"pip install spacy.*python -m spacy download none_such"
        ):
            SalientSpans("none_such").check(make_plm())


def without(text: str, spans) -> str:
    for start, end in reversed(spans):
        text = text[:start] + " " + text[end:]
    return text


class TestKnownWords:
    def test_by_hand(self):
        def of(spans, text):
            return [text[start:end] for start, end in spans]

        grammar = load_grammar("sentiment")
        sentence = (
            "We saw an orphan book by Petra Novak, and it was anything but awful or out of tune."
        )
        assert of(shortcut_spans(grammar, sentence)[0], sentence) == ["an orphan", "Petra Novak"]
        sentence = "The techno gig was anything but out of tune, as my boss will confirm."
        assert of(cause_spans(grammar, sentence, template="anything-but")[0], sentence) == [
            "out of tune"
        ]
        first, second = "Anna never fed the hens.", "She did not feed the hens, Anna."
        shortcut = shortcut_spans(load_grammar("nli"), first, second)
        assert [of(s, t) for s, t in zip(shortcut, (first, second), strict=True)] == [
            ["Anna", "the", "hens"],
            ["not", "the", "hens", "Anna"],
        ]
        cause = cause_spans(load_grammar("nli"), first, second)
        assert [of(s, t) for s, t in zip(cause, (first, second), strict=True)] == [
            ["never", "fed"],
            ["She", "did", "feed"],
        ]

    def test_bag_of_words_is_at_chance_where_the_shortcut_is_masked(self):
        """The side of the shortcut, from what is left of a sentence; else it is known."""
        grammar = load_grammar("sentiment")
        # the words of opinion say nothing about the shortcut's side
        texts = [
            row["text"] for row in generate(0.0, tasks=["sentiment"])["testbed_sentiment_train"]
        ]
        sides = np.array([shortcut_label(grammar, text) for text in texts])
        masked = [without(text, shortcut_spans(grammar, text)[0]) for text in texts]
        for rows, low, high in ((texts, 0.95, 1), (masked, 0.45, 0.55)):
            found = predict_out_of_fold(
                BIAS_MODELS["bag_of_words"], np.array(rows, dtype=object), sides, 2
            )
            assert low <= (found.argmax(1) == sides).mean() <= high

    @pytest.mark.parametrize("task", ["nli", "paraphrase"])
    def test_the_planted_rule_finds_nothing_where_the_shortcut_is_masked(self, task):
        grammar = load_grammar(task)
        for row in sources.load(f"testbed_{task}_train"):
            first, second = shortcut_spans(grammar, row["text"], row["text_pair"])
            left = without(row["text"], first), without(row["text_pair"], second)
            first, second = ({*tokens(text)} for text in left)
            assert not second & {*first, *grammar.shortcut.get("negation", ())}

    def test_every_sentence_has_its_words_and_none_is_both(self):
        grammar = load_grammar("sentiment")
        for row in sources.load("testbed_sentiment_train"):
            shortcut, _ = shortcut_spans(grammar, row["text"])
            cause, _ = cause_spans(grammar, row["text"], template=row["group"])
            assert shortcut and cause
            assert not any(a < d and c < b for a, b in shortcut for c, d in cause), row

    @given(marked=st.lists(st.booleans(), min_size=1, max_size=9), rate=st.floats(0.1, 1))
    def test_shortcut_first_masks_the_same_share_of_all_and_others_only_where_its_words_are_too_few(
        self, marked, rate
    ):
        marks = torch.tensor([marked])
        policy = masking_policy("known_shortcut_first", rate, None)
        mask = policy({"known_shortcut": marks.long()}, torch.ones_like(marks))
        n = max(1, round(rate * len(marked)))
        assert (mask.sum(), (mask & marks).sum()) == (n, min(n, sum(marked)))

    @pytest.mark.parametrize("name", TESTBED_ONLY)
    def test_other_data_is_refused(self, name, plm):
        with pytest.raises(
            UserError, match=f"masking is '{name}', which knows the testbed's grammar"
        ):
            configure("sentiment", "mask_tuning", masking=name, source="hub")
        (transform,) = masking_policy(name, 0.3, plm.tokenizer).transforms()
        with pytest.raises(UserError, match="'17' is no row of a training set of the testbed"):
            transform(
                plm,
                example_set([{"text": "a good film", "label": 1, "uid": "17", "group": ""}], plm),
            )


@pytest.fixture(scope="module")
def plain():
    """A model, and a few sentences as examples."""
    plm = make_plm(tiny_bert_config(**NO_DROPOUT))
    return plm, example_set(
        [{"text": text, "label": i % 2} for i, text in enumerate(SENTENCES)], plm
    )


def prepared(name: str, rate: float, plm, examples: Dataset):
    """A policy by its name, and the examples with what it reads."""
    policy = masking_policy(name, rate, plm.tokenizer)
    for transform in policy.transforms():
        examples = transform(plm, examples).examples
    return policy, examples


class TestRankedPolicies:
    def test_by_frequency_in_the_training_set(self, plain):
        plm, _ = plain
        policy, counted = prepared("frequency_frequent", 0.2, *plain)
        assert counted["token_counts"][0] == [4, 2, 1, 1, 1, 1, 4]
        assert masked_words(plm, policy, counted)[:2] == [["the"], ["the"]]
        rare = masking_policy("frequency_rare", 0.9, plm.tokenizer)
        assert "the" not in masked_words(plm, rare, counted)[0]
        assert len(masked_words(plm, rare, counted)[0]) == 4

    def test_by_part_of_speech(self, plain):
        plm, _ = plain
        policy, tagged = prepared("part_of_speech_content", 0.4, *plain)
        assert set(masked_words(plm, policy, tagged)[1]) <= {"plot", "slow", "boring"}
        function = masking_policy("part_of_speech_function", 0.4, plm.tokenizer)
        assert set(masked_words(plm, function, tagged)[1]) <= {"the", "was", "and"}

    @pytest.mark.parametrize("name", ["bert", "bart"])
    def test_attribution_is_the_derivative_of_the_prediction_to_a_scaled_embedding(self, name):
        plm = architecture(name).double()
        batch = make_batch(plm)
        found = attribution(plm, batch)
        label = plm.eval().classify(batch).argmax(-1)

        def scaled(place: int, factor: float):
            hooks = []
            for shift, module in enumerate(
                word_embeddings(plm.trunk)
            ):  # the decoder reads a place later

                def scale(module, args, output, read=place + shift):
                    factors = torch.ones(output.shape[1], 1, dtype=output.dtype)
                    factors[read : read + 1] = factor
                    return output * factors

                hooks.append(module.register_forward_hook(scale))
            logs = plm.classify(batch).log_softmax(-1)
            for hook in hooks:
                hook.remove()
            return logs.gather(1, label[:, None]).squeeze(1)

        for place in range(batch["input_ids"].shape[1]):
            slope = (scaled(place, 1 + 1e-5) - scaled(place, 1 - 1e-5)) / 2e-5
            torch.testing.assert_close(found[:, place].double(), slope.abs(), rtol=1e-4, atol=1e-8)

    def test_attribution_leaves_the_model_and_the_random_state_as_they_were(self):
        plm = make_plm().train()
        batch = make_batch(plm)
        before = torch.get_rng_state()
        maskable = maskable_positions(batch, plm.tokenizer)
        most, least = (
            masking_policy(name, 0.5, plm.tokenizer)(batch, maskable, torch.Generator(), plm)
            for name in ("attribution_most", "attribution_least")
        )
        assert torch.equal(before, torch.get_rng_state())
        assert plm.training
        assert plm.classifier.dropout.training
        assert all(parameter.grad is None for parameter in plm.parameters())
        scores = attribution(plm, batch)
        assert (
            scores.masked_fill(~most, torch.inf).amin(1) >= scores.masked_fill(~least, 0).amax(1)
        ).all()

    @pytest.mark.parametrize("method", ["augmented", "sequential"])
    def test_a_classifier_that_is_still_new_is_not_asked(self, method):
        with pytest.raises(UserError, match="asks the classifier in training what it leans on"):
            configure("sentiment", method, masking="attribution_least")
        configure("sentiment", "mask_tuning", masking="attribution_least")


@pytest.mark.parametrize("name", POLICIES)
def test_a_tokenizer_without_offsets_is_refused_by_what_finds_words(name, tmp_path):
    """Some tokenizers are still written in Python, and do not know the characters of a token."""
    (tmp_path / "vocab.txt").write_text("\n".join([*BERT_SPECIALS.values(), *WORDS]))
    tokenizer = BertJapaneseTokenizer(
        tmp_path / "vocab.txt", word_tokenizer_type="basic", model_max_length=64
    )
    for transform in masking_policy(name, 0.3, tokenizer).transforms():
        if isinstance(transform, TokenSpans | PointAtAnswers):
            with pytest.raises(
                UserError,
                match=r"BertJapaneseTokenizer does not say which characters .* exact, whole_",
            ):
                transform.check(make_plm(tokenizer=tokenizer))
        else:
            transform.check(make_plm(tokenizer=tokenizer))


# probabilities of start and end; their products by (i, j): 00 .12, 01 .02, 02 .06, 11 .07, 12 .21,
# 22 .03, and the largest of all, (1, 0) .42, is backward
START, END = torch.tensor([[0.2, 0.7, 0.1]]).log(), torch.tensor([[0.6, 0.1, 0.3]]).log()


class TestPointer:
    def test_loss_by_hand(self):
        log = math.log
        start = torch.tensor([[log(1), log(3), -torch.inf], [log(2), log(2), log(4)]])
        end = torch.tensor([[0.0, 0.0, -torch.inf], [log(1), log(2), log(5)]])
        # first row: 3/4 and 1/2; second: 1/2 and 1/4
        loss = pointer_loss(start, end, torch.tensor([1, 2]), torch.tensor([0, 1]))
        assert loss.item() == pytest.approx((log(4 / 3) + log(2) + log(2) + log(4)) / 2)

    def test_span_choice_by_hand(self):
        first, last, scores = best_spans(START, END, 3)
        assert list(zip(first[0].tolist(), last[0].tolist(), strict=True)) == [
            (1, 2),
            (0, 0),
            (1, 1),
        ]
        torch.testing.assert_close(scores[0].exp(), torch.tensor([0.21, 0.12, 0.07]))
        assert best_spans(START[:, :1], END[:, :1], 3)[2].isfinite().tolist() == [
            [True, False, False]
        ]
        assert not best_spans(START, END - torch.inf, 3)[2].isfinite().any()

    @given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 2**31))
    @settings(max_examples=60, deadline=None)
    def test_the_best_span_is_the_first_of_the_best_two(self, n, length, seed):
        """One is looked up, several are sorted; of scores that are few, many are equal."""
        generator = torch.Generator().manual_seed(seed)
        logs = torch.tensor([-torch.inf, -2.0, -1.0])
        start, end = (logs[torch.randint(3, (n, length), generator=generator)] for _ in range(2))
        for one, two in zip(best_spans(start, end), best_spans(start, end, 2), strict=True):
            assert torch.equal(one, two[:, :1])

    def test_a_span_stays_in_one_text_of_a_pair(self):
        """The likeliest start is in the first text, the likeliest end in the second."""
        start = torch.tensor([[0.5, 0.2, 0.0, 0.2, 0.1]]).log()
        end = torch.tensor([[0.1, 0.2, 0.0, 0.1, 0.6]]).log()
        batch = {"span_start": start, "span_end": end}
        maskable = torch.tensor([[True, True, False, True, True]])
        assert SupervisedMasking()(batch, maskable, None).tolist() == [
            [False, False, False, True, True]
        ]
        spans = (part[0].tolist() for part in best_spans(start, end, 10))
        possible = {(i, j) for i, j, score in zip(*spans, strict=True) if score > -math.inf}
        assert possible == {(0, 0), (0, 1), (1, 1), (3, 3), (3, 4), (4, 4)}

    def test_best_span_or_a_draw_of_the_best_by_their_probability(self):
        n = 4000
        batch = {"span_start": START.expand(n, 3), "span_end": END.expand(n, 3)}
        maskable = torch.ones(n, 3).bool()
        assert (
            SupervisedMasking()(batch, maskable, None) == torch.tensor([False, True, True])
        ).all()
        drawn = SupervisedMasking(best_of=2)(batch, maskable, torch.Generator().manual_seed(0))
        assert {tuple(row) for row in drawn.tolist()} == {(False, True, True), (True, False, False)}
        assert drawn[:, 0].float().mean().item() == pytest.approx(0.12 / 0.33, abs=0.03)
        maskable[:, 1] = False
        assert (
            SupervisedMasking()(batch, maskable, None) == torch.tensor([True, False, False])
        ).all()

    def test_padding_does_not_reach_the_network(self):
        pointer = SpanPointer(torch.randn(30, 8), hidden=4)
        narrow, wide = (batch_of([3, 2], pad_to) for pad_to in (0, 9))
        for a, b in zip(
            *(pointer(batch, batch["input_ids"] > 4) for batch in (narrow, wide)), strict=True
        ):
            torch.testing.assert_close(a, b[:, : a.shape[1]])
            assert torch.equal(b.isneginf(), wide["input_ids"] <= 4)

    def test_it_learns_to_point_at_the_words_of_opinion_of_the_testbed(self, plm, monkeypatch):
        monkeypatch.setattr(PointAtAnswers, "epochs", 40)
        rows = [
            {
                "text": f"The film {verb} {deg}{word}.",
                "label": 0,
                "uid": f"sentiment_train-{i}",
                "group": "plain",
            }
            for i, (verb, deg, word) in enumerate(
                itertools.product(["is", "was"], ["", "very "], ["boring", "awful"])
            )
        ]
        examples = example_set(rows * 4, plm)
        with torch.autocast("cpu", torch.bfloat16):  # as in a run in bf16
            result = PointAtAnswers()(plm, examples)
        assert result.counts["supervised_spans"] == 32 and result.counts["supervised_loss"] < 0.5
        assert result.examples["span_start"][0][0] == -math.inf, "[CLS]"
        assert len({*result.examples["span_end"][0]}) > 4, "in float32"
        policy = masking_policy("supervised", 0.05, plm.tokenizer)
        assert masked_words(plm, policy, result.examples)[:2] == [["boring"], ["awful"]]


class TestTrainingPairs:
    """On real reviews the pointer learns from the training pairs of IMDB-CAD."""

    @pytest.fixture
    def source(self, tmp_path, monkeypatch) -> str:
        return str(write_releases(tmp_path, monkeypatch))

    def test_the_words_that_differ_are_what_it_learns(self, plm, source, monkeypatch):
        review = "It is a bad film, slow and boring. Not good."
        other = "It is a great film, warm and boring. So very good."
        assert [review[a:b] for a, b in edited_spans(review, other)] == ["bad", "slow", "Not"]
        assert [other[a:b] for a, b in edited_spans(other, review)] == ["great", "warm", "So very"]
        for n_words, n_spans in ((10, 1), (11, 0)):  # longer ones are sentences written anew
            assert len(edited_spans("A film " + "so " * n_words, "A film")) == n_spans
        read = []
        monkeypatch.setattr(
            supervised, "load", lambda *key: (read.append(key), sources.load(*key))[1]
        )

        def pointed(**row) -> list[list[str]]:
            examples = example_set([row | {"label": 0}], plm)
            spans = PointAtAnswers(source).training_spans(plm, examples)
            return [
                plm.tokenizer.convert_ids_to_tokens(span.input_ids[span.start : span.end + 1])
                for span in spans
            ]

        assert pointed(text="a film") == [], "cut to the length of the task's own texts"
        assert pointed(text="the film is not a story") == [["very", "bad"], ["good"]]
        assert {*read} == {("imdb_cad_train", source)}, "and never those to evaluate on"
        with pytest.raises(UserError, match="learns from single reviews"):
            pointed(text="a film", text_pair="a story")

    def test_a_run_reads_them_from_its_own_source(self, source, tmp_path, model):
        settings = {
            "source": source,
            "model": str(model),
            "max_length": 64,
            "eval_max_length": 64,
            "epochs": 1,
        }
        chosen = configure(
            "sentiment", "mask_tuning", masking="supervised", sets=("sst2",), **settings
        )
        record = read_records([run(chosen, tmp_path / "out")[0]])[0]
        assert record["cost"]["stages"][0]["supervised_spans"] == 2
        assert [*record["data"]] == ["train", "sst2", "train_spans"]
        assert record["data"]["train_spans"]["rows"] == 2
        assert record_identity(record) == record["identity"]

    def test_only_pairs_that_are_not_the_published_ones_make_another_run(
        self, source, tmp_path, monkeypatch
    ):
        """So records that were made before the pairs were noted are still found."""
        chosen = configure(
            "sentiment", "mask_tuning", masking="supervised", source=source
        ).resolved()
        inputs = read_inputs(chosen)
        descriptions = dict(inputs.descriptions)
        spans = descriptions.pop("train_spans")
        assert inputs.identity == replace(inputs, descriptions=descriptions).identity
        expect(monkeypatch, "imdb_cad_train", sha256=spans["files"][0]["sha256"])
        published, path = read_inputs(chosen).identity, SETS["imdb_cad_train"].files[0].path
        write(tmp_path, path, MADE_UP[path].replace(b"very bad", b"not good"))
        assert read_inputs(chosen).identity != published
        assert (
            "train_spans"
            not in read_inputs(configure("sentiment", "mask_tuning", source=source)).descriptions
        )

    def test_where_the_task_has_pairs_of_texts_they_are_not_read(self):
        with pytest.raises(UserError, match="masking is 'supervised_top5', which learns from sing"):
            configure("nli", "mask_tuning", masking="supervised_top5", source="hub")
        configure("nli", "mask_tuning", masking="supervised_top5")

    def test_pairs_that_cannot_be_read_are_missed_before_any_work(
        self, source, tmp_path, monkeypatch, model
    ):
        (tmp_path / SETS["imdb_cad_train"].files[0].path).unlink()
        monkeypatch.setattr(
            "mtlib.runs.training._Training",
            lambda *args, **kwargs: pytest.fail("has begun to train"),
        )
        chosen = configure(
            "sentiment",
            "mask_tuning",
            masking="supervised",
            source=source,
            model=str(model),
            classification="confidence_regularization",
            sets=("sst2",),
        )
        message = (
            r"train_paired.tsv not found in .*policies supervised and supervised_top5 learn from it"
        )
        with pytest.raises(UserError, match=message):
            run(chosen, tmp_path / "out")
        with pytest.raises(UserError, match=message):
            describe(source=source, policies=("exact:0.05", "supervised"), report=pytest.fail)
        PointAtAnswers().reading_from("testbed").check(make_plm())  # which has its own words


@pytest.fixture
def real_testbed(tmp_path, monkeypatch):
    """The first sentences of the bundled testbed, as if that were all of it."""
    folder = tmp_path / "testbed"
    folder.mkdir()
    (folder / SETTINGS_FILE).write_text('{"strength": 0.9, "seed": 0}')
    for name in ("testbed_sentiment_train", "testbed_sentiment"):
        lines = (sources.TESTBED_DIR / f"{name}.jsonl").read_text().splitlines(keepends=True)
        (folder / f"{name}.jsonl").write_text("".join(lines[:32]))
    monkeypatch.setattr(sources, "TESTBED_DIR", folder)


OTHER_METHODS = {
    "frequency_rare": "augmented",
    "supervised": "sequential",
    "part_of_speech_content": "intermediate_pretraining",
}


@pytest.mark.parametrize(
    ("policy", "method"), [(name, OTHER_METHODS.get(name, "mask_tuning")) for name in POLICIES]
)
def test_methods_take_every_policy_by_its_name(
    method, policy, real_testbed, model, tmp_path, request, monkeypatch
):
    monkeypatch.setattr(
        meta_learned, "LearnToMask", partial(LearnToMask, steps=5)
    )  # 200 would take 7 seconds
    settings = {} if policy.startswith("supervised") else {"mask_rate": 1.0}
    if policy == "salient_spans":
        settings["spacy_pipeline"] = request.getfixturevalue("installed")
    chosen = configure(
        "sentiment",
        method,
        masking=policy,
        model=str(model),
        max_length=64,
        epochs=1,
        sets=("testbed_sentiment",),
        precision="float32",
        **settings,
    )
    record = read_records([run(chosen, tmp_path / "out")[0]])[0]
    assert record["config"]["masking"] == policy and math.isfinite(record["history"][-1]["loss"])


class TestMetaLearned:
    @pytest.mark.parametrize("name", ["bert", "mpnet", "modernbert", "bart"])
    def test_it_is_two_steps_of_gradient_descent_and_has_their_slope(self, name):
        """The choice is left soft for its slope, since a rounded one has none."""
        plm = architecture(name).double().eval()
        text, train, held_out = (
            make_batch(plm, SENTENCES[i:] + SENTENCES[:i], labels=[0, 1, 1, 0]) for i in range(3)
        )
        maskable = maskable_positions(text, plm.tokenizer)
        weights = gumbel_choice(torch.zeros(maskable.shape).double(), maskable)
        found = meta_loss(plm, weights, text, train, held_out, step_size=0.3)
        stepped = copy.deepcopy(plm)
        for objective, batch in (
            (MaskedLM(), text | {"mask": weights.bool()}),
            (FineTuning(), train),
        ):
            stepped.zero_grad()
            objective(stepped, batch).loss.backward()
            with torch.no_grad():
                for parameter in stepped.parameters():
                    parameter -= 0 if parameter.grad is None else 0.3 * parameter.grad
        # the objectives sum in single precision
        assert found.item() == pytest.approx(FineTuning()(stepped, held_out).loss.item(), rel=1e-5)
        assert attribution(plm, text).shape == maskable.shape, (
            "which finds the embeddings of every architecture"
        )

    def test_gradient_by_the_policys_parameters_is_the_slope(self):
        plm = make_plm(tiny_bert_config(**NO_DROPOUT)).double().eval()
        text, train, held_out = (
            make_batch(plm, SENTENCES[i:] + SENTENCES[:i], labels=[0, 1, 1, 0]) for i in range(3)
        )
        scorer = MaskScorer(plm.trunk.get_input_embeddings().weight, hidden=3).double()

        def loss(value):
            torch.manual_seed(1)
            scores = functional_call(scorer, {"head.weight": value}, (text,))
            maskable = maskable_positions(text, plm.tokenizer)
            choice = gumbel_softmax(scores.masked_fill(~maskable, -torch.inf), dim=1)
            return meta_loss(plm, choice, text, train, held_out, step_size=0.3)

        assert torch.autograd.gradcheck(loss, scorer.head.weight, eps=1e-5, rtol=1e-3, atol=1e-9)

    def test_a_choice_is_a_draw_of_one_maskable_token(self):
        scores = torch.tensor([[math.log(3), 0.0, 9.0]]).expand(20_000, 3)
        draws = gumbel_choice(scores, torch.tensor([[True, True, False]]).expand(20_000, 3))
        assert draws.mean(0).tolist() == pytest.approx([0.75, 0.25, 0], abs=0.015)
        assert {*draws.flatten().tolist()} == {0, 1}
        assert not gumbel_choice(scores, scores > 9).any(), "where there is none"

    def test_the_transform_learns_leaves_the_model_alone_and_can_be_repeated(self, plain):
        plm, _ = plain
        rows = [{"text": text, "label": i % 2} for i, text in enumerate(SENTENCES * 5)]
        before = copy.deepcopy(plm.state_dict())
        learn = LearnToMask(steps=3, batch_size=4)
        examples = example_set(rows, plm)
        made, again = (learn(plm, examples) for _ in range(2))
        first, last = (made.counts[f"meta_learned_{which}_loss"] for which in ("first", "last"))
        assert math.isfinite(first) and first == last, "of fewer than 20 steps all count for both"
        assert made.examples["meta_scores"][:] == again.examples["meta_scores"][:]
        assert [len(row) for row in made.examples["meta_scores"]] == examples["length"][:]
        assert all(torch.equal(tensor, before[name]) for name, tensor in plm.state_dict().items())
        policy = masking_policy("meta_learned", 0.5, plm.tokenizer)
        assert [len(words) for words in masked_words(plm, policy, made.examples)[:4]] == [
            2,
            3,
            2,
            1,
        ]
        learn(plm, example_set(rows[:2], plm))  # one to learn from, one to be judged on

    def test_two_trunks_are_refused_for_no_gradient_reaches_the_scorer(self):
        with pytest.raises(UserError, match="this model has two trunks; load it with shared=True"):
            LearnToMask().check(make_plm(shared=False))

    def test_masks_are_a_draw_by_the_scores(self):
        scores = torch.tensor([[math.log(3), 0.0]]).expand(2000, 2)
        policy = masking_policy("meta_learned", 0.5, None)
        masks = policy({"meta_scores": scores}, scores > -1, torch.Generator().manual_seed(0))
        assert masks[:, 0].float().mean().item() == pytest.approx(0.75, abs=0.04)

    def test_it_finds_the_word_whose_masking_helps_and_is_judged_on_examples_of_their_own(
        self, monkeypatch
    ):
        """On a loss that falls where one token is masked, which is not the untrained scorer's."""
        plm, trained_on, judged_on = make_plm(tiny_bert_config(**NO_DROPOUT), seed=1), set(), set()
        scorer = MaskScorer(plm.trunk.get_input_embeddings().weight)
        good = plm.tokenizer.convert_tokens_to_ids("good")
        texts = [f"{' '.join(pair)} is good" for pair in itertools.product(WORDS[:4], WORDS[4:9])]
        examples = example_set([{"text": text, "label": 0} for text in texts], plm)
        batch = make_batch(plm, texts)

        def loss(plm, weights, text, train, held_out, rate):
            trained_on.update(plm.tokenizer.batch_decode([*text["input_ids"], *train["input_ids"]]))
            judged_on.update(plm.tokenizer.batch_decode(held_out["input_ids"]))
            return -(weights * (text["input_ids"] == good)).sum()

        def finds():
            return (
                batch["input_ids"].gather(1, scorer(batch)[:, 1:-1].argmax(1, keepdim=True) + 1)
                == good
            ).float()

        before = finds().mean()
        monkeypatch.setattr(meta_learned, "meta_loss", loss)
        LearnToMask(steps=60).fit(scorer, plm, examples)
        assert before < 0.5 and finds().all()
        assert (len(trained_on), len(judged_on)) == (16, 4) and not trained_on & judged_on


STILL = make_plm(tiny_bert_config(**NO_DROPOUT))


def made_columns(policy, maskable) -> dict:
    """Some numbers for every column that a policy reads, the padding where there is no token."""
    columns = {}
    for name, padding in policy.columns.items():
        generator = torch.Generator().manual_seed(1)
        numbers = torch.randint(0, 3, (int(maskable.sum()),), generator=generator)
        columns[name] = torch.full(maskable.shape, padding).masked_scatter(
            maskable, numbers.to(torch.tensor(padding))
        )
    return columns


@pytest.mark.parametrize("name", POLICIES)
@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    seed=st.integers(0, 2**31),
    extra=st.integers(1, 9),
    left=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_every_policy_spares_specials_ignores_padding_and_counts(name, lengths, seed, extra, left):
    plm, masks = STILL, []
    for pad_to in (0, max(lengths) + 2 + extra):
        batch = batch_of(
            lengths,
            pad_to,
            left=left and pad_to > 0 and name in ("exact", "bernoulli", "whole_word"),
        )
        maskable = maskable_positions(batch, plm.tokenizer)
        policy = masking_policy(name, 0.3, plm.tokenizer)
        batch |= made_columns(policy, maskable)
        mask, again = (
            policy(batch, maskable, torch.Generator().manual_seed(seed), plm) for _ in range(2)
        )
        assert torch.equal(mask, again) and not (mask & ~maskable).any()
        masks.append(mask[batch["attention_mask"].bool()])
        counts = [max(1, round(0.3 * n)) for n in lengths]
        if isinstance(policy, KnownMasking) and not policy.then_others:
            (marks,) = (batch[column] > 0 for column in policy.columns)
            assert not (mask & ~marks).any()
            assert mask.sum(1).tolist() == [
                min(m, k) for m, k in zip(marks.sum(1).tolist(), counts, strict=True)
            ]
        elif isinstance(policy, CountedMasking) and not isinstance(
            policy, WholeWordMasking | SalientSpanMasking
        ):
            assert mask.sum(1).tolist() == [min(n, k) for n, k in zip(lengths, counts, strict=True)]
    assert torch.equal(*masks)
