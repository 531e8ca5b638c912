"""Every method: its stages, settings and transforms; whole runs, killed, resumed, recorded."""

import json
import shutil
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from mtlib import preparing
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.masking import ExactMasking, GivenWords
from mtlib.method import LearningRates
from mtlib.methods import METHODS, get_method
from mtlib.methods.bias import BIAS_MODELS, AddBias
from mtlib.methods.confidence_regularization import AddTeacher, ConfidenceRegularization
from mtlib.methods.settings import Classification
from mtlib.methods.table3 import Refill
from mtlib.methods.without_words import DeleteMasked
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.policies.wrapping import BlockMasked, DrawMasks
from mtlib.runs import run as runs
from mtlib.runs import training
from mtlib.runs.config import configure, effective_settings
from mtlib.runs.inputs import read_inputs
from mtlib.runs.records import decisive_data, identity, read_records
from tests.conftest import architecture, config, conllu, make_plm, make_tokenizer, train

TEXTS = [
    "not funny",
    "the film is very good and not boring",
    "the plot was slow",
    "a warm story of a film",
] * 5
N_ORDINARY = [2, 8, 4, 6] * 5
EXACT = ExactMasking(0.3)


def tokenised(plm, texts=TEXTS) -> Dataset:
    rows = [dict(plm.tokenizer(text)) for text in texts]
    return Dataset.from_list(
        [row | {"labels": i % 2, "length": len(row["input_ids"])} for i, row in enumerate(rows)]
    )


def changed(masking, change, plm, data, seed: int = 0):
    """A training set that is masked once and changed there, and all that is counted."""
    counts = {}
    for transform in (*masking.transforms(), DrawMasks(masking), change):
        data, more = transform(plm, data, seed)
        counts |= more
    return data.remove_columns("mask"), counts


def always(plm, word: str) -> int:
    """Make the masked LM answer one word everywhere."""
    token = plm.tokenizer.convert_tokens_to_ids(word)
    bias = (
        plm.mlm.final_logits_bias[0]
        if hasattr(plm.mlm, "final_logits_bias")
        else plm.mlm.get_output_embeddings().bias
    )
    with torch.no_grad():
        bias[token] = 1e4
    return token


class TestStages:
    def stages(self, method, task="sentiment", **settings):
        chosen = configure(task, method, **{"learning_rate": 2e-3} | settings).resolved()
        return get_method(method).stages(chosen.settings, chosen.rates, make_tokenizer())

    @pytest.mark.parametrize(
        ("method", "alpha"), [("mask_tuning", 0.6), ("no_integrated_loss", 0.0)]
    )
    def test_one_stage(self, method, alpha):
        (stage,) = self.stages(method, mask_rate=0.2, fill="sample")
        objective = stage.objective
        assert stage.rates == LearningRates.alike(2e-3) and stage.transforms == ()
        assert (objective.alpha, objective.fill) == (alpha, "sample")
        assert objective.masking == ExactMasking(0.2)
        assert type(objective.classification) is FineTuning

    @pytest.mark.parametrize(
        ("method", "change"),
        [
            ("augmented", Refill("sample", keep_original=True)),
            ("perturb_first", Refill("sample")),
            ("sequential", Refill("sample")),
            ("masks_left", Refill(None)),
            ("deleted", DeleteMasked()),
        ],
    )
    def test_fine_tuning_on_texts_that_are_changed_once(self, method, change):
        asked = {"fill": "sample"} if getattr(change, "fill", None) else {}
        *_, stage = self.stages(method, mask_rate=0.2, **asked)
        assert type(stage.objective) is FineTuning
        draw, last = stage.transforms
        # another draw than in the first epoch of the masked LM, if it has been trained before
        stream = "refill" if method == "sequential" else "masks"
        assert draw == DrawMasks(ExactMasking(0.2), stream)
        assert (type(last), vars(last)) == (type(change), vars(change))

    @pytest.mark.parametrize(
        ("method", "rate"), [("sequential", 0.05), ("intermediate_pretraining", 0.15)]
    )
    def test_two_stages(self, method, rate):
        adapt, classify = self.stages(method, masking="original", mlm_head_learning_rate=5e-3)
        assert type(adapt.objective) is MaskedLM
        assert adapt.transforms == ()
        assert type(classify.objective) is FineTuning
        assert adapt.objective.masking.predict_all and adapt.objective.masking.rate == rate
        assert (adapt.rates, classify.rates) == (
            LearningRates.alike(5e-3),
            LearningRates(2e-3, 2e-3, 5e-3),
        )

    @pytest.mark.parametrize(
        ("method", "settings"),
        [
            ("confidence_regularization", {}),
            ("mask_tuning", {"classification": "confidence_regularization", "alpha": 0.4}),
        ],
    )
    def test_the_student_starts_from_the_pretrained_model_and_only_its_stage_is_refilled(
        self, method, settings
    ):
        teacher, student = self.stages(method, **settings)
        assert type(teacher.objective) is FineTuning
        assert (teacher.name, teacher.transforms) == ("teacher", ())
        assert student.start == "pretrained" and student.name == method
        classification = student.objective.classification if settings else student.objective
        assert type(classification) is ConfidenceRegularization
        assert not settings or student.objective.alpha == 0.4

    @pytest.mark.parametrize(
        ("task", "bias"),
        [("nli", "overlap"), ("paraphrase", "lexical_overlap"), ("sentiment", "bag_of_words")],
    )
    def test_each_task_has_its_bias_model(self, task, bias):
        for method, settings in (
            ("reweight", {}),
            ("mask_tuning", {"classification": "learned_mixin"}),
        ):
            (stage,) = self.stages(method, task, **settings)
            assert stage.transforms == (AddBias(BIAS_MODELS[bias]),)
        (stage,) = self.stages("product_of_experts", task)
        assert stage.objective.halve_others == (bias == "overlap")
        (stage,) = self.stages("product_of_experts", task, bias="shortcut", focus=2)
        assert (stage.objective.focus, stage.objective.halve_others) == (2, False)

    def test_parsing_has_a_length_and_a_rate_of_its_own(self):
        asked = {"treebank": "trees", "learning_rate": 2e-5, "classifier_learning_rate": 1e-3}
        parsing, tuning = self.stages("ipt", parsing_steps=7, parsing_learning_rate=5e-6, **asked)
        assert (parsing.steps, parsing.epochs, tuning.steps) == (7, None, None)
        assert parsing.rates == LearningRates.alike(5e-6)
        assert tuning.rates == LearningRates(2e-5, 1e-3, 2e-5)
        parsing, tuning = self.stages("ipt", parsing_epochs=0.5, **asked)
        assert (parsing.steps, parsing.epochs, tuning.epochs) == (None, 0.5, None)
        assert parsing.rates == tuning.rates
        with pytest.raises(UserError, match="parsing_steps is 2, but parsing_epochs is given too"):
            configure("nli", "ipt", treebank="trees", parsing_epochs=1, parsing_steps=2)


class TestSettings:
    def test_what_a_method_does_not_read_is_none_in_its_record(self):
        perturbation = {"mask_rate", "masking", "fill"}
        others = {"alpha", "shared", "update", "mlm_head_learning_rate"}
        for method, read in {
            "fine_tuning": set(),
            "mask_tuning": perturbation | others,
            "augmented": perturbation,
            "no_integrated_loss": {*perturbation, "shared"},
            "sequential": {*perturbation, "mlm_head_learning_rate"},
            "perturb_first": perturbation,
            "intermediate_pretraining": {*perturbation, "mlm_head_learning_rate"} - {"fill"},
        }.items():
            resolved = configure("nli", method).resolved()
            record = resolved.public()
            assert {name for name in perturbation | others if record[name] is not None} == read, (
                method
            )
            assert configure(**resolved.values()) == resolved

    def test_mask_tuning_reads_what_the_methods_read_whose_losses_it_takes(self):
        losses = {*get_args(Classification)} & METHODS.keys()
        given = {setting: None for method in losses for setting in METHODS[method].reads}
        for name in losses:
            values = given | {"method": "mask_tuning", "classification": name, "bias": "overlap"}
            effective = effective_settings(values).keys() & given.keys()
            assert effective == {*METHODS[name].reads}, name

    def test_what_the_loss_reads_is_part_of_what_identifies_a_run(self, testbed, model):
        def identity(**settings):
            return read_inputs(config(model, **settings).resolved()).identity

        ours = identity(method="reweight")
        assert (
            identity(method="reweight", bias="bag_of_words")
            == ours
            != identity(method="reweight", bias="shortcut")
        )
        assert (
            identity(classification="fine_tuning")
            == identity()
            != identity(classification="span_cutoff")
        )
        experts = {"classification": "product_of_experts"}
        assert (
            identity(**experts, focus=None) == identity(**experts) != identity(**experts, focus=2)
        )

    def test_given_words_are_a_setting_of_every_method_that_masks(self):
        for name, method in METHODS.items():
            assert ("words" in method.reads) == ("masking" in method.reads), name
        settings = configure(
            "sentiment", "masks_left", words=["plot", " New  York", "plot"]
        ).settings
        assert settings.words == ("New York", "plot")
        assert configure("sentiment", "masks_left", words="plot").settings.words == ("plot",)
        policy = settings.policy(make_tokenizer())
        assert isinstance(policy, GivenWords)
        assert policy.spans.words == ("New York", "plot")

    @pytest.mark.parametrize(
        "other", [{"mask_rate": 0.1}, {"masking": "whole_word"}, {"spacy_pipeline": "torch"}]
    )
    def test_where_words_are_given_other_settings_of_masks_are_refused(self, other):
        with pytest.raises(
            UserError, match=f"{min(other)} is .*, but words are given, all of which"
        ):
            configure("sentiment", "masks_left", words=["plot"], **other)

    def test_given_words_identify_a_run_and_none_are_no_setting(self, testbed, model):
        def inputs(**settings):
            return read_inputs(config(model, method="masks_left", **settings).resolved())

        none, some = inputs(), inputs(words=["plot", "film"])
        of_older_record = {name: value for name, value in none.public.items() if name != "words"}
        data = decisive_data(none.descriptions)
        assert identity(of_older_record, none.model_sha256, data) == none.identity
        assert inputs(words=()).identity == none.identity
        assert inputs(words=["film", "plot"]).identity == some.identity != none.identity
        assert inputs(words=["film"]).identity != some.identity
        as_read = json.loads(json.dumps(some.public))
        assert identity(as_read, some.model_sha256, data) == some.identity
        assert as_read["words"] == ["film", "plot"] and none.public["words"] is None
        assert as_read["masking"] is None and as_read["mask_rate"] is None


class TestChangedOnce:
    @pytest.mark.parametrize("name", ["bert", "roberta", "bart"])
    def test_every_masked_place_and_no_other_is_filled_in_input_order(self, name):
        plm = architecture(name)
        data, good = tokenised(plm), always(plm, "good")
        refilled, counts = changed(EXACT, Refill(), plm.train(), data, seed=1)
        assert plm.training
        n_changed = 0
        for old, new, n in zip(data, refilled, N_ORDINARY, strict=True):
            assert {**old, "input_ids": 0} == {**new, "input_ids": 0}
            filled = [b for a, b in zip(old["input_ids"], new["input_ids"], strict=True) if a != b]
            assert {*filled} <= {good}
            assert round(0.3 * n) - old["input_ids"].count(good) <= len(filled) <= 0.3 * n + 0.5
            n_changed += len(filled)
        assert counts == {"masked": sum(round(0.3 * n) for n in N_ORDINARY), "changed": n_changed}
        assert refilled.features["input_ids"] == data.features["input_ids"]

    @pytest.mark.parametrize("name", ["bert", "bart"])
    def test_it_is_what_the_model_fills_in_example_by_example(self, name):
        plm = architecture(name).eval()
        data = tokenised(plm, TEXTS[:4])
        together, _ = changed(ExactMasking(1.0), Refill(), plm, data)
        for row, new in zip(data, together, strict=True):
            batch = {key: torch.tensor([row[key]]) for key in plm.tokenizer.model_input_names}
            special = torch.isin(batch["input_ids"], torch.tensor(plm.tokenizer.all_special_ids))
            assert plm.fill_masks(batch, ~special).perturbed_ids[0].tolist() == new["input_ids"]

    @pytest.mark.parametrize("settings", [{}, {"fill": "sample"}])
    def test_a_seed_decides_and_nothing_else(self, plm, settings):
        """Dropout is in the model's configuration, but not in the refill."""
        data, refill = tokenised(plm), Refill(**settings)
        state = torch.get_rng_state()
        first, _ = changed(EXACT, refill, plm, data, seed=0)
        assert torch.equal(torch.get_rng_state(), state)
        torch.rand(1)
        assert changed(EXACT, refill, plm, data, seed=0)[0][:] == first[:]
        assert changed(EXACT, refill, plm, data, seed=1)[0][:] != first[:]

    def test_augmented_keeps_the_original_and_one_refilled_copy(self, plm):
        data = tokenised(plm)
        both, _ = changed(EXACT, Refill(keep_original=True), plm, data)
        assert list(both) == [*data, *changed(EXACT, Refill(), plm, data)[0]]

    def test_barred_words_are_never_filled_in(self, plm):
        policy = GivenWords(["film", "very good", "plot"])

        def given(texts) -> Dataset:
            data = tokenise(
                Dataset.from_dict({"text": texts, "label": [1] * len(texts)}),
                plm.tokenizer,
                keep={"text"},
            )
            return policy.spans(plm, data).examples

        def fillings() -> set[str]:
            examples, _ = changed(
                policy, Refill("sample"), plm, given(["the film is very good", "a plot"] * 300)
            )
            return {
                word
                for row in plm.tokenizer.batch_decode(list(examples["input_ids"]))
                for word in row.split()
            }

        barred = {"film", "very", "good", "plot"}
        texts = [*self.GIVEN, "not very funny, very", "very"]
        assert barred <= fillings()
        assert BlockMasked(policy)(plm, given(texts)).counts == {"barred": 3}, (
            "`very` is masked in one of four"
        )
        assert barred & fillings() == {"very"}
        half = given(["a film, a very good plot", "very"])  # `very` is masked in one of two
        assert BlockMasked(policy)(plm, half).counts == {"barred": 4}

    GIVEN = ["the film is very good", "funny", "a boring plot"]

    @pytest.mark.parametrize(
        ("change", "left"),
        [
            (Refill(None), ["the [MASK] is [MASK] [MASK]", "funny", "a boring [MASK]"]),
            (DeleteMasked(), ["the is", "funny", "a boring"]),
        ],
    )
    def test_words_masked_or_deleted(self, plm, change, left):
        """Deleted they are as if they had never been there."""
        data = Dataset.from_dict({"text": self.GIVEN, "label": [1] * 3})
        given = tokenise(data, plm.tokenizer, keep={"text"})
        found, counts = changed(GivenWords(["film", "very good", "plot"]), change, plm, given)
        expected = [dict(plm.tokenizer(text)) for text in left]
        for name in expected[0]:
            assert [row[name] for row in found] == [row[name] for row in expected], name
        assert [len(marks) for marks in found["given_words"]] == found["length"][:]
        assert counts["masked"] == 4


def test_the_teacher_answers_for_every_example_in_its_place(plm):
    data = tokenised(plm)
    examples, counts = AddTeacher()(plm.train(), data)
    assert plm.training
    for row in (0, 1, 7):
        inputs = {name: torch.tensor([data[row][name]]) for name in plm.tokenizer.model_input_names}
        expected = plm.eval().classify(inputs).softmax(-1)[0]
        torch.testing.assert_close(torch.tensor(examples[row]["teacher_probabilities"]), expected)
    right = [np.argmax(row["teacher_probabilities"]) == row["labels"] for row in examples]
    assert counts == {"teacher_accuracy": round(float(np.mean(right)), 4)}
    assert examples.remove_columns("teacher_probabilities")[:] == data[:]
    with pytest.raises(
        UserError, match="AddTeacher reads the column 'labels', but the examples have only"
    ):
        AddTeacher()(plm, data.remove_columns("labels"))


# --- whole runs ---


def recorded(config, out, **options) -> dict:
    return read_records([runs.run(config, out, **options)[0]])[0]


class Watch(TrainerCallback):
    """Weights at the start and the end of each stage."""

    def __init__(self):
        self.started, self.ended = [], []

    def on_train_begin(self, args, state, control, **kwargs):
        self.started.append(
            {name: tensor.clone() for name, tensor in kwargs["model"].state_dict().items()}
        )

    def on_train_end(self, args, state, control, **kwargs):
        self.ended.append(
            {name: tensor.clone() for name, tensor in kwargs["model"].state_dict().items()}
        )


class TestAblations:
    def test_nothing_masked_makes_perturb_first_fine_tuning(self, testbed, model, tmp_path):
        plain = recorded(config(model, method="fine_tuning"), tmp_path)
        same = recorded(config(model, method="perturb_first", mask_rate=0.0), tmp_path)
        assert same["metrics"] == plain["metrics"] and same["history"] == plain["history"]

    def test_augmented_sees_twice_the_examples(self, testbed, model, tmp_path):
        record = recorded(config(model, method="augmented"), tmp_path)
        (stage,) = record["cost"]["stages"]
        assert (record["cost"]["steps"], record["cost"]["examples_seen"], stage["masked"]) == (
            16,
            256,
            64,
        )
        assert stage["changed"] <= 64 and stage["seconds"] == record["cost"]["train_seconds"]

    def test_sequential_goes_on_from_the_adapted_masked_lm(self, testbed, model, tmp_path):
        watch = Watch()
        record = recorded(config(model, method="sequential"), tmp_path, callbacks=[watch])
        assert all(
            torch.equal(a, b)
            for a, b in zip(watch.ended[0].values(), watch.started[1].values(), strict=True)
        )
        moved = {
            name
            for name, tensor in watch.started[0].items()
            if not torch.equal(tensor, watch.ended[0][name])
        }
        assert any("encoder" in name for name in moved)
        assert not any("classifier.classifier" in name for name in moved)
        stages = record["cost"]["stages"]
        assert [(stage["name"], stage["steps"], stage.get("masked")) for stage in stages] == [
            ("masked_lm", 8, None), ("fine_tuning", 8, 64),
        ]  # fmt: skip
        assert [entry["stage"] for entry in record["history"]] == ["masked_lm"] * 8 + [
            "fine_tuning"
        ] * 8


class Steps(TrainerCallback):
    """Counts the steps of each stage.

    After five of them it copies the run's folder `out`: as a process leaves it that is killed then.
    """

    def __init__(self, out: Path):
        self.out = out
        self.steps: dict[str, int] = {}

    def on_step_end(self, args, state, control, **kwargs):
        stage = Path(args.output_dir).name
        self.steps[stage] = self.steps.get(stage, 0) + 1
        if self.steps[stage] == 5:
            shutil.copytree(self.out, self.out.with_name(f"killed in {stage}"))


# a method and its settings, and what its record says beside the usual
RUNS = [
    ("sequential", {"barred": True, "mask_rate": 0.6}, {"masked", "changed", "barred"}),
    ("learned_mixin", {}, {"gate", "entropy", "bias_accuracy"}),
    ("product_of_experts", {}, {"bias_loss", "bias_accuracy"}),
    ("bias_product", {}, {"ft_loss", "bias_accuracy"}),
    ("reweight", {"bias": "shortcut"}, {"bias_gold_probability"}),
    ("confidence_regularization", {}, {"teacher_accuracy", "bias_accuracy"}),
    ("span_cutoff", {}, {"cut_loss", "divergence"}),
    ("hidden_cut", {}, {"cut_loss", "divergence"}),
    ("ipt", {"parsing_learning_rate": 1e-2, "treebank": "trees"}, {"ft_loss"}),
    (
        "mask_tuning",
        {"classification": "product_of_experts", "focus": 1.5},
        {"bias_loss", "mlm_loss", "bias_accuracy"},
    ),
    ("mask_tuning", {"classification": "learned_mixin"}, {"gate", "entropy", "mlm_loss"}),
    ("mask_tuning", {"barred": True, "mask_rate": 0.6}, {"barred", "mlm_loss"}),
    (
        "mask_tuning",
        {"classification": "confidence_regularization"},
        {"teacher_accuracy", "mlm_loss"},
    ),
]


def trees_of(folder, method: str, settings: dict) -> dict:
    """The settings, with a treebank written for a method that parses."""
    if method != "ipt":
        return settings
    (folder / "trees").mkdir()
    for part in ("train", "dev"):
        (folder / "trees" / f"{part}.conllu").write_text(conllu())
    return settings | {"treebank": str(folder / "trees"), "parsing_steps": 60}


@pytest.mark.parametrize(
    ("method", "settings", "names"),
    RUNS,
    ids=[f"{m}-{'-'.join(map(str, s.values()))}" for m, s, _ in RUNS],
)
def test_it_trains_and_is_recorded(testbed, model, tmp_path, method, settings, names):
    settings = trees_of(tmp_path, method, settings)
    chosen = config(model, method=method, epochs=1, sets=("testbed_sentiment",), **settings)
    record = recorded(chosen, tmp_path / "out", keep_model=True)
    stages = record["cost"]["stages"]
    assert names <= record["history"][-1].keys() | stages[-1].keys()
    assert record["metrics"] and all(np.isfinite(entry["loss"]) for entry in record["history"])
    public = chosen.public()
    assert all(record["config"][name] == public[name] for name in settings)
    assert method != "ipt" or stages[0]["dev_uas"] > 0.8, (
        "it was trained on the trees of the development file"
    )
    (folder,) = (path.with_suffix("") for path in (tmp_path / "out").glob("*.json"))
    kept = SharedPLM.from_pretrained(folder)
    assert kept.config.id2label[0] == "negative", "also where the last stage began anew"


# two stages, of which one may begin anew
RESUMED = [
    ("sequential", {"barred": True, "mask_rate": 0.6}),  # what it bars is not in the checkpoint
    ("mask_tuning", {"classification": "confidence_regularization"}),
]


@pytest.mark.parametrize(("method", "settings"), RESUMED)
def test_a_run_killed_in_either_stage_ends_as_the_uninterrupted_one(
    testbed, model, tmp_path, monkeypatch, method, settings
):
    """A stage has eight steps and a checkpoint after four."""
    monkeypatch.setattr(training, "FEWEST_STEPS_BETWEEN_SAVES", 4)
    prepared, keep = [], preparing._keep
    monkeypatch.setattr(preparing, "_keep", lambda *given: prepared.append(given) or keep(*given))
    chosen = config(model, method=method, sets=("testbed_sentiment",), **settings)
    watched = Steps(tmp_path / "whole")
    whole = recorded(chosen, watched.out, callbacks=[watched])
    first, second = watched.steps
    assert watched.steps == {first: 8, second: 8} and whole["cost"]["interruptions"] == 0
    for killed, left in ((first, {first: 4, second: 8}), (second, {second: 4})):
        out = tmp_path / f"killed in {killed}"
        resumed_steps = Steps(tmp_path / "elsewhere" / killed)
        resumed_steps.out.mkdir(parents=True)
        prepared.clear()
        resumed = recorded(chosen, out, callbacks=[resumed_steps])
        assert resumed_steps.steps == left, "what was done before is not done again"
        assert resumed["history"] == whole["history"] and resumed["metrics"] == whole["metrics"]
        assert resumed["cost"]["interruptions"] == 1
        for ours, theirs in zip(resumed["cost"]["stages"], whole["cost"]["stages"], strict=True):
            assert ours | {"seconds": 0} == theirs | {"seconds": 0}
        assert {path.suffix for path in out.glob("[!.]*")} == {".json", ".npz"}
    assert not prepared, "what is kept is not made again"


def test_without_the_masked_lm_loss_a_separate_masked_lm_stays_as_it_was(tmp_path):
    """no_integrated_loss with --separate: x̂ is made by a frozen masked LM."""
    plm = make_plm(shared=False)
    before = {name: tensor.clone() for name, tensor in plm.state_dict().items()}
    train(tmp_path, MaskTuning(0.0, EXACT), plm, max_steps=12)
    after = plm.state_dict()
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved and all(name.startswith("classifier.") for name in moved)
