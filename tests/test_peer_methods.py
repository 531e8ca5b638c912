"""The methods of other papers as whole runs: each trains, is killed, resumes and is recorded."""

import json
from typing import get_args

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from mtlib.errors import UserError
from mtlib.method import LearningRates
from mtlib.methods import METHODS, get_method
from mtlib.methods.confidence_regularization import AddTeacher, ConfidenceRegularization
from mtlib.methods.table3 import Classification
from mtlib.objectives import FineTuning, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.runs.config import command_line, configure, read_by
from mtlib.runs.inputs import read_inputs
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from tests.conftest import make_plm, make_tokenizer
from tests.data.test_treebank import conllu
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.test_methods import tokenised

# method, its settings, and what its record says beside the usual
PEERS = {
    "learned_mixin": ({}, {"gate", "misled", "gate_misled", "entropy", "bias_accuracy", "bias_calibration_error"}),
    "product_of_experts": ({}, {"bias_loss", "bias_accuracy"}),
    "bias_product": ({}, {"ft_loss", "bias_accuracy"}),
    "reweight": ({"bias": "shortcut"}, {"bias_gold_probability"}),
    "confidence_regularization": ({}, {"teacher_accuracy", "bias_accuracy"}),
    "span_cutoff": ({}, {"cut_loss", "divergence"}),
    "ipt": ({"treebank": "trees"}, {"ft_loss"}),
    "hidden_cut": ({}, {"cut_loss", "divergence"}),
}
# the same, of a classification in Mask-tuning
COMBINED = {
    "product_of_experts": ({"focus": 1.5}, {"bias_loss", "mlm_loss", "bias_accuracy"}),
    "learned_mixin": ({}, {"gate", "entropy", "mlm_loss"}),
    "reweight": ({}, {"bias_gold_probability", "mlm_loss"}),
    "confidence_regularization": ({}, {"teacher_accuracy", "mlm_loss"}),
    "span_cutoff": ({}, {"cut_loss", "mlm_loss"}),
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
        ("task", "bias"), [("nli", "overlap"), ("paraphrase", "lexical_overlap"), ("sentiment", "bag_of_words")]
    )
    def test_each_task_has_its_bias_model(self, task, bias):
        for method, settings in (("reweight", {}), ("mask_tuning", {"classification": "learned_mixin"})):
            (stage,) = self.stages(method, task, **settings)
            (preparer,) = stage.prepare
            assert preparer.model.name == bias and preparer.folds == 5
        (stage,) = self.stages("product_of_experts", task)
        assert stage.objective.halve_others == (bias == "overlap")
        (stage,) = self.stages("product_of_experts", task, bias="shortcut", focus=2)
        assert stage.prepare[0].model.name == "shortcut" and not stage.objective.halve_others
        assert stage.objective.focus == 2

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
        with pytest.raises(UserError, match="parsing_steps is 2, but parsing_epochs is given too"):
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
        assert identity(**experts, focus=None) == identity(**experts) != identity(**experts, focus=2)


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
