"""The methods of other papers as whole runs: each trains, is killed, resumes and is recorded."""

import json
import re
from typing import get_args

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from mtlib.errors import UserError
from mtlib.method import AddTeacher
from mtlib.methods import METHODS, get_method
from mtlib.methods.confidence_regularization import ConfidenceRegularization
from mtlib.objectives import FineTuning, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.runs.config import command_line, configure, read_by
from mtlib.runs.inputs import read_inputs
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from mtlib.settings import Classification, LearningRates
from tests.conftest import make_plm, make_tokenizer, tiny_bert_config
from tests.data.test_treebank import conllu
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.test_methods import tokenised

# method, its settings, and what its record says beside the usual
PEERS = {
    "learned_mixin": ({}, {"gate", "misled", "gate_misled", "entropy", "bias_accuracy", "bias_calibration_error"}),
    "product_of_experts": ({}, {"bias_loss", "bias_accuracy"}),
    "bias_product": ({}, {"ft_loss", "bias_accuracy"}),
    "reweight": ({"bias_folds": 1}, {"bias_gold_probability"}),
    "confidence_regularization": ({}, {"teacher_accuracy", "bias_accuracy"}),
    "span_cutoff": ({"cut_ratio": 0.3}, {"cut_loss", "divergence"}),
    "ipt": ({"treebank": "trees"}, {"ft_loss"}),
    "hidden_cut": ({"faithful_to_code": True}, {"cut_loss", "divergence"}),
}
# the same, of a classification in Mask-tuning
COMBINED = {
    "product_of_experts": ({"focus": 1.5, "bias_weight": 0.5}, {"bias_loss", "mlm_loss", "bias_accuracy"}),
    "learned_mixin": ({"entropy_weight": 0.1}, {"gate", "entropy", "mlm_loss"}),
    "reweight": ({"bias_folds": 2}, {"bias_gold_probability", "mlm_loss"}),
    "confidence_regularization": ({}, {"teacher_accuracy", "mlm_loss"}),
    "span_cutoff": ({"cut_ratio": 0.3}, {"cut_loss", "mlm_loss"}),
}
RUNS = [(name, settings, names) for name, (settings, names) in PEERS.items()]
RUNS += [("product_of_experts", {"focus": 2.0}, {"bias_loss"})]
RUNS += [("mask_tuning", {"classification": name} | settings, names) for name, (settings, names) in COMBINED.items()]


class Killed(Exception):
    pass


class KillAt(TrainerCallback):
    """Stops one stage of a run after so many steps."""

    def __init__(self, stage: str, step: int):
        self.stage, self.step = stage, step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step and (self.stage == "" or args.output_dir.endswith(self.stage)):
            raise Killed


@pytest.mark.parametrize(
    ("method", "settings", "names"), RUNS, ids=[f"{m}-{'-'.join(map(str, s.values()))}" for m, s, _ in RUNS]
)
def test_it_trains_is_killed_resumes_and_is_recorded(testbed, model, tmp_path, method, settings, names):  # noqa: F811
    if "treebank" in settings:
        (tmp_path / "trees").mkdir()
        (tmp_path / "trees" / "train.conllu").write_text(conllu())
        settings = {"treebank": str(tmp_path / "trees")}
    chosen = config(model, method=method, epochs=13, batch_size=16, **settings)  # 52 steps, checkpoints at 50 and 52
    whole = read_records([run(chosen, tmp_path / "whole")[0]])[0]
    stages = whole["cost"]["stages"]
    assert names <= whole["history"][-1].keys() | stages[-1].keys()
    assert whole["metrics"] and all(np.isfinite(entry["loss"]) for entry in whole["history"])
    assert {name: whole["config"][name] for name in settings} == {
        name: chosen.public()[name] if name == "treebank" else value for name, value in settings.items()
    }
    last = stages[-1]["name"] if len(stages) > 1 else ""
    for step in (1, 51):  # before the first checkpoint of the last stage, and after it
        with pytest.raises(Killed):
            run(chosen, tmp_path / "killed", callbacks=[KillAt(last, step)])
    resumed = read_records([run(chosen, tmp_path / "killed", keep_model=tmp_path / "model")[0]])[0]
    assert resumed["history"] == whole["history"] and resumed["metrics"] == whole["metrics"]
    kept = SharedPLM.from_pretrained(tmp_path / "model")
    assert kept.config.id2label[0] == "negative", "also where the last stage began anew"
    owns = "product_of_experts" in (method, *settings.values()) or "learned_mixin" in (method, *settings.values())
    assert (tmp_path / "model" / "objective.safetensors").exists() == owns
    words = command_line(chosen)
    assert all(f"--{name.replace('_', '-')}" in words for name in settings)


@pytest.mark.parametrize(
    ("method", "stage", "settings"),
    [
        ("ipt", "dependency_parsing", {"parsing_steps": 60, "parsing_learning_rate": 1e-2}),
        ("intermediate_pretraining", "masked_lm", {"pretraining_steps": 60}),
    ],
)
def test_it_is_killed_in_its_first_stage_and_resumes(testbed, model, tmp_path, method, stage, settings):  # noqa: F811
    if method == "ipt":
        settings = settings | {"treebank": str(tmp_path)}
        for part in ("train", "dev"):
            (tmp_path / f"{part}.conllu").write_text(conllu())
    chosen = config(model, method=method, **settings)
    whole = read_records([run(chosen, tmp_path / "whole")[0]])[0]
    for step in (1, 55):  # before the checkpoint at 50, and after it
        with pytest.raises(Killed):
            run(chosen, tmp_path / "killed", callbacks=[KillAt(stage, step)])
    resumed = read_records([run(chosen, tmp_path / "killed")[0]])[0]
    assert resumed["history"] == whole["history"] and resumed["metrics"] == whole["metrics"]
    first, last = whole["cost"]["stages"]
    assert (first["name"], first["steps"], last["steps"]) == (stage, 60, 8)
    assert resumed["cost"]["stages"][0] == first | {"seconds": resumed["cost"]["stages"][0]["seconds"]}
    assert method != "ipt" or first["dev_uas"] > 0.8, "it was trained on the trees of the development file"


@pytest.mark.parametrize("settings", [{}, {"method": "mask_tuning", "classification": "confidence_regularization"}])
def test_a_bad_file_of_word_vectors_is_told_before_the_teacher_trains(tmp_path, settings):
    pretrained = make_plm(tiny_bert_config(num_labels=3))
    pretrained.mlm.save_pretrained(tmp_path / "model")
    pretrained.tokenizer.save_pretrained(tmp_path / "model")
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("a 0.1 0.2\nthe 0.1 nan\n")
    chosen = configure("nli", **{"method": "confidence_regularization"} | settings, model=str(tmp_path / "model"),
                       bias="overlap", bias_vectors=str(vectors), train_size=64, max_length=64,
                       sets=("testbed_nli_m",))  # fmt: skip
    with pytest.raises(UserError, match=r"line 2: 'the' is not followed by 2 finite numbers"):
        run(chosen, tmp_path / "out", callbacks=[KillAt("teacher", 1)])


class TestStages:
    def stages(self, method, task="nli", **settings):
        chosen = configure(task, method, **settings).resolved()
        return get_method(method).stages(chosen.settings, chosen.rates, make_tokenizer())

    def test_the_student_starts_from_the_pretrained_model_and_only_its_stage_is_refilled(self):
        for method, settings in (
            ("confidence_regularization", {}),
            ("mask_tuning", {"classification": "confidence_regularization", "alpha": 0.4}),
        ):
            teacher, student = self.stages(method, **settings)
            assert type(teacher.objective) is FineTuning and (teacher.name, teacher.prepare) == ("teacher", ())
            assert student.start == "pretrained" and student.name == method
            classification = student.objective.classification if settings else student.objective
            assert type(classification) is ConfidenceRegularization
        assert student.objective.alpha == 0.4

    @pytest.mark.parametrize(
        ("given", "teacher_rates", "asked"),
        [
            ({}, LearningRates(1e-4, 1e-4, 1e-4), 1e-4),
            ({"mlm_head_learning_rate": 1e-3}, LearningRates(1e-4, 1e-4, 1e-4), 1e-4),
            ({"learning_rate": 5e-4}, LearningRates(5e-4, 5e-4, 5e-4), None),
            ({"classifier_learning_rate": 1e-3}, LearningRates(5e-4, 1e-3, 5e-4), None),
            ({"learning_rate": 5e-4, "teacher_learning_rate": 3e-4}, LearningRates(3e-4, 3e-4, 3e-4), 3e-4),
        ],
    )
    def test_a_teacher_has_the_rates_of_fine_tuning_unless_some_were_given(self, given, teacher_rates, asked):
        """Those of Mask-tuning, five times higher with the bundled model, make a poor teacher."""
        settings = {"classification": "confidence_regularization"} | given
        chosen = configure("nli", "mask_tuning", **settings).resolved()
        assert chosen.settings.teacher_learning_rate == chosen.resolved().settings.teacher_learning_rate == asked
        teacher, student = self.stages("mask_tuning", **settings)
        assert teacher.rates == teacher_rates and student.rates == chosen.rates
        assert student.rates.trunk == 5e-4, "the student's stay Mask-tuning's"

    def test_where_the_teacher_has_the_rates_of_the_run_no_rate_of_its_own_is_recorded(self):
        for method, settings in (("confidence_regularization", {}), ("mask_tuning", {}),
                                 ("mask_tuning", {"classification": "confidence_regularization", "model": "some/hub"}),
                                 ("mask_tuning", {"classification": "reweight"})):  # fmt: skip
            chosen = configure("nli", method, **settings).resolved()
            assert getattr(chosen.settings, "teacher_learning_rate", None) is None, (
                "or finished runs would have another identity"
            )

    @pytest.mark.parametrize(
        ("method", "settings", "reached"),
        [
            ("learned_mixin", {"entropy_weight": 0.1}, {"entropy_weight": 0.1}),
            ("product_of_experts", {"bias_weight": 0.5, "focus": 2}, {"bias_weight": 0.5, "focus": 2}),
            ("product_of_experts", {"bias_learning_rate": 0.02}, {"learning_rate": 0.02, "halve_others": True}),
            (
                "span_cutoff",
                {"cut_ratio": 0.3, "cut_weight": 0.5, "divergence_weight": 0.2, "faithful_to_code": True},
                {"ratio": 0.3, "cut_weight": 0.5, "divergence_weight": 0.2, "faithful_to_code": True},
            ),
        ],
    )
    def test_its_settings_reach_its_loss_alone_and_in_mask_tuning(self, method, settings, reached):
        (alone,) = self.stages(method, **settings)
        (combined,) = self.stages("mask_tuning", classification=method, **settings)
        for objective in (alone.objective, combined.objective.classification):
            assert {name: getattr(objective, name) for name in reached} == reached

    def test_mask_tuning_reads_what_the_methods_read_whose_losses_it_takes(self):
        given = {setting: None for method in COMBINED for setting in METHODS[method].reads}
        for name in {*get_args(Classification)} & METHODS.keys():
            values = given | {"task": "nli", "classification": name, "bias": "overlap"}
            assert read_by("mask_tuning", values).keys() & given.keys() == {*METHODS[name].reads}, name

    def test_mask_tuning_with_cross_entropy_is_as_it_was(self):
        (stage,) = self.stages("mask_tuning")
        assert type(stage.objective) is MaskTuning and type(stage.objective.classification) is FineTuning
        assert stage.prepare == () and stage.name == "mask_tuning"

    @pytest.mark.parametrize(
        ("task", "bias"), [("nli", "Overlap"), ("paraphrase", "LexicalOverlap"), ("sentiment", "BagOfWords")]
    )
    def test_each_task_has_its_bias_model(self, task, bias):
        for method, settings in (("reweight", {}), ("mask_tuning", {"classification": "learned_mixin"})):
            (stage,) = self.stages(method, task, **settings)
            (preparer,) = stage.prepare
            assert type(preparer.model).__name__ == bias and preparer.folds == 5
        (stage,) = self.stages("product_of_experts", task)
        assert stage.objective.halve_others == (bias == "Overlap")
        (stage,) = self.stages("product_of_experts", task, bias="shortcut", bias_weight=0.5, focus=2)
        assert type(stage.prepare[0].model).__name__ == "Shortcut" and not stage.objective.halve_others
        assert (stage.objective.bias_weight, stage.objective.focus) == (0.5, 2)

    @pytest.mark.parametrize("faithful", [False, True])
    def test_product_of_experts_with_the_features_of_its_own_paper(self, faithful):
        (stage,) = self.stages("product_of_experts", bias="token_overlap", faithful_to_code=faithful)
        assert stage.objective.halve_others
        bias_model = stage.prepare[0].model
        assert (type(bias_model).__name__, bias_model.faithful_to_code) == ("TokenOverlap", faithful)
        with pytest.raises(UserError, match=r"bias is 'token_overlap'.*give bias overlap too"):
            self.stages("product_of_experts", bias="token_overlap", bias_vectors="few.vec")

    def test_overlap_has_the_vectors_and_the_features_that_were_asked_for(self, tmp_path):
        (tmp_path / "few.vec").write_text("cat 1 2\n")
        asked = {"bias_vectors": str(tmp_path / "few.vec"), "faithful_to_code": True}
        (stage,) = self.stages("reweight", bias_vectors=asked["bias_vectors"])
        assert (stage.prepare[0].model.vectors, stage.prepare[0].model.faithful_to_code) == (
            asked["bias_vectors"],
            False,
        )
        for method, settings in (
            ("product_of_experts", {}),
            ("mask_tuning", {"classification": "product_of_experts"}),
        ):
            (stage,) = self.stages(method, **settings, **asked)
            bias_model = stage.prepare[0].model
            assert (bias_model.vectors, bias_model.faithful_to_code) == (asked["bias_vectors"], True)
            public = configure("nli", method, **settings, **asked).public()
            assert re.fullmatch(r"few\.vec \([0-9a-f]{12}\)", public["bias_vectors"])

    def test_parsing_has_a_length_and_a_rate_of_its_own(self):
        asked = {"parsing_steps": 7, "parsing_learning_rate": 5e-6}
        parsing, tuning = self.stages(
            "ipt", treebank="trees", learning_rate=2e-5, classifier_learning_rate=1e-3, **asked
        )
        assert (parsing.steps, parsing.epochs, tuning.steps) == (7, None, None)
        assert parsing.rates == LearningRates(5e-6, 5e-6, 5e-6) and tuning.rates == LearningRates(2e-5, 1e-3, 2e-5)
        parsing, tuning = self.stages("ipt", treebank="trees", parsing_epochs=0.5)
        assert (parsing.steps, parsing.epochs, tuning.epochs) == (None, 0.5, None) and parsing.rates == tuning.rates
        words = command_line(configure("nli", "ipt", treebank="trees", **asked))
        assert words[-4:] == ["--parsing-steps", "7", "--parsing-learning-rate", "5e-06"]
        with pytest.raises(UserError, match="parsing_epochs and parsing_steps are both given; leave one out"):
            configure("nli", "ipt", treebank="trees", parsing_epochs=1, parsing_steps=2)

    def test_the_bias_model_is_part_of_what_identifies_a_run(self, testbed, model):  # noqa: F811
        def identity(**settings):
            chosen = config(model, **settings).resolved()
            return read_inputs(chosen).identity

        ours = identity(method="reweight")
        assert identity(method="reweight", bias="bag_of_words") == ours != identity(method="reweight", bias="shortcut")
        plain = identity(method="mask_tuning")
        assert identity(method="mask_tuning", classification="fine_tuning") == plain
        assert identity(method="mask_tuning", classification="span_cutoff") != plain
        experts = {"method": "mask_tuning", "classification": "product_of_experts"}
        assert identity(**experts, bias_weight=1) == identity(**experts) != identity(**experts, focus=2)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"method": "reweight", "bias": "overlap"},
                "bias is 'overlap'; for sentiment it is one of bag_of_words, sho",
            ),
            (
                {"method": "mask_tuning", "bias": "shortcut"},
                "bias is 'shortcut', but classification is 'fine_tuning', which does not read it; leave it out, or "
                "give classification product_of_experts or learned_mixin or",
            ),
            ({"method": "mask_tuning", "bias_folds": 2}, "bias_folds is 2, but classification is 'fine_tuning'"),
            ({"method": "mask_tuning", "faithful_to_code": True}, "or give classification product_of_experts or span_"),
            (
                {"method": "mask_tuning", "focus": 0.0},
                "focus is 0.0, but classification is 'fine_tuning', which does not read it; leave it out, or give "
                "classification product_of_experts too",
            ),
            (
                {"method": "mask_tuning", "classification": "product_of_experts", "entropy_weight": 0.1},
                "entropy_weight is 0.1, but classification is 'product_of_experts', which does not read it",
            ),
            (
                {"method": "mask_tuning", "classification": "learned_mixin", "cut_ratio": 0.3},
                "cut_ratio is 0.3, but .*give classification span_cutoff too",
            ),
            (
                {"method": "product_of_experts", "faithful_to_code": True},
                "faithful_to_code is True, but bias is 'bag_of_words', which does not read it; leave it out, or take a",
            ),
            ({"method": "reweight", "faithful_to_code": True}, "reweight does not read it"),
            ({"method": "reweight", "bias_vectors": "few.vec"}, "bias_vectors is 'few.vec', but bias is 'bag_of_w"),
            (
                {"task": "nli", "method": "reweight", "bias": "lexical_overlap", "bias_vectors": "few.vec"},
                "but bias is 'lexical_overlap', which does not read it; leave it out, or give bias overlap too",
            ),
            ({"task": "nli", "method": "reweight", "bias_vectors": "few.vec"}, "'few.vec', which is no file"),
            ({"method": "mask_tuning", "attribution_every": 2}, "attribution_every is 2, but masking is 'exact'"),
            (
                {"method": "mask_tuning", "classification": "learned_mixin", "bias_learning_rate": 0.01},
                "bias_learning_rate is 0.01, but classification is 'learned_mixin', which does not read it",
            ),
            ({"method": "mask_tuning", "masking": "supervised", "mask_rate": 0.3}, "a span of its own length"),
            (
                {"method": "reweight", "bias": "shortcut", "source": "hub"},
                "'shortcut', which is planted in the testbed",
            ),
            ({"method": "reweight", "bias": "words"}, "bias is 'words'; expected one of by_task"),
            (
                {"method": "mask_tuning", "classification": "reweight", "teacher_learning_rate": 1e-4},
                "teacher_learning_rate is 0.0001, but .*give classification confidence_regularization too",
            ),
            ({"method": "reweight", "bias_folds": 0}, "bias_folds is 0"),
            ({"method": "span_cutoff", "cut_ratio": 1.5}, "cut_ratio is 1.5"),
            ({"method": "span_cutoff", "bias": "shortcut"}, "span_cutoff does not read it"),
            ({"method": "mask_tuning", "classification": "ipt"}, "classification is 'ipt'; expected one of"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, model, settings, message):  # noqa: F811
        with pytest.raises(UserError, match=message):
            config(model, **settings)


def test_the_teacher_answers_for_every_example_in_its_place():
    plm = make_plm()
    data = tokenised(plm)
    state = torch.get_rng_state()
    examples, counts = AddTeacher()(plm.train(), data, batch_size=3)
    assert plm.training and torch.equal(torch.get_rng_state(), state)
    for row in (0, 1, 7):
        inputs = {name: torch.tensor([data[row][name]]) for name in plm.tokenizer.model_input_names}
        expected = plm.eval().classify(inputs).softmax(-1)[0]
        torch.testing.assert_close(torch.tensor(examples[row]["teacher_probabilities"]), expected)
    right = [np.argmax(row["teacher_probabilities"]) == row["labels"] for row in examples]
    assert counts == {"teacher_accuracy": round(float(np.mean(right)), 4)}
    assert json.dumps(counts) and examples.remove_columns("teacher_probabilities")[:] == data[:]
    with pytest.raises(UserError, match="AddTeacher reads the labels, but the examples have no column `labels`, only"):
        AddTeacher()(plm, data.remove_columns("labels"))
