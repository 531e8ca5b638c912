"""The paper's ablation methods: what each trains on, and at which settings two of them are the same."""

import re

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.method import LearningRates
from mtlib.methods import METHODS, get_method
from mtlib.methods.table3 import IntermediateSettings, Refill
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.runs import run as runs
from mtlib.runs.config import command_line, configure, read_by
from mtlib.runs.records import read_records
from tests.conftest import make_plm, make_tokenizer, tiny_bert_config
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.test_plm import architecture
from tests.test_trainer import NO_DROPOUT, train

TEXTS = ["not funny", "the film is very good and not boring", "the plot was slow", "a warm story of a film"] * 5
N_ORDINARY = [2, 8, 4, 6] * 5
EXACT = ExactMasking(0.3)


def tokenised(plm, texts=TEXTS) -> Dataset:
    rows = [dict(plm.tokenizer(text)) for text in texts]
    return Dataset.from_list([row | {"labels": i % 2, "length": len(row["input_ids"])} for i, row in enumerate(rows)])


def always(plm, word: str) -> int:
    """Make the masked LM answer one word everywhere."""
    token = plm.tokenizer.convert_tokens_to_ids(word)
    bias = plm.mlm.final_logits_bias[0] if hasattr(plm.mlm, "final_logits_bias") else plm.mlm.cls.predictions.bias
    with torch.no_grad():
        bias[token] = 1e4
    return token


class TestStages:
    def stages(self, method, **changes):
        settings = {"task": "sentiment", "mask_rate": 0.2, "fill": "top_k", "top_k": 3, "learning_rate": 2e-3}
        config = configure(**read_by(method, {"method": method} | settings | changes)).resolved()
        return get_method(method).stages(config.settings, config.rates, make_tokenizer())

    @pytest.mark.parametrize(
        ("method", "alpha", "keep_original"),
        [
            ("fine_tuning", None, None),
            ("mask_tuning", 0.6, None),
            ("no_integrated_loss", 0.0, None),
            ("augmented", None, True),
            ("perturb_first", None, False),
        ],
    )
    def test_one_stage(self, method, alpha, keep_original):
        (stage,) = self.stages(method)
        assert (stage.rates.trunk, stage.rates.classifier, stage.rates.mlm_head) == (2e-3,) * 3
        assert type(stage.objective) is (FineTuning if alpha is None else MaskTuning)
        if alpha is not None:
            objective = stage.objective
            assert (objective.alpha, objective.fill, objective.top_k) == (alpha, "top_k", 3)
            assert objective.masking == ExactMasking(0.2)
        if keep_original is None:
            assert stage.prepare == ()
        else:
            (refill,) = stage.prepare
            assert (refill.fill, refill.top_k, refill.keep_original) == ("top_k", 3, keep_original)
            assert refill.masking == ExactMasking(0.2)

    def test_sequential_adapts_the_masked_lm_then_classifies_what_it_fills(self):
        adapt, classify = self.stages("sequential", mlm_head_learning_rate=5e-3)
        assert type(adapt.objective) is MaskedLM and adapt.prepare == ()
        assert adapt.objective.masking == ExactMasking(0.2)
        assert type(classify.objective) is FineTuning and type(classify.prepare[0]) is Refill
        assert (adapt.rates.trunk, adapt.rates.mlm_head, classify.rates.trunk) == (5e-3, 5e-3, 2e-3)

    def test_intermediate_pretraining_trains_on_the_texts_then_on_the_labels(self):
        settings = IntermediateSettings(masking="original", mlm_head_learning_rate=5e-3)
        rates = LearningRates(2e-3, 2e-3, 5e-3)
        adapt, classify = METHODS["intermediate_pretraining"].stages(settings, rates, make_tokenizer())
        assert type(adapt.objective) is MaskedLM and type(classify.objective) is FineTuning
        assert adapt.objective.masking.predict_all and adapt.objective.masking.rate == 0.15
        assert classify.prepare == ()
        assert (adapt.rates.trunk, classify.rates.trunk) == (5e-3, 2e-3)

    def test_a_rate_that_is_the_default_of_other_methods_is_given_on_the_command_line(self):
        assert command_line(configure("nli", "intermediate_pretraining", mask_rate=0.05))[-2:] == [
            "--mask-rate",
            "0.05",
        ]
        assert "--mask-rate" not in command_line(configure("nli", "intermediate_pretraining"))


class TestSettings:
    def test_what_a_method_does_not_read_is_none_in_its_record(self):
        perturbation = {"mask_rate", "masking", "fill", "replacement"}
        for method, read in {
            "fine_tuning": set(),
            "mask_tuning": {*perturbation, "alpha", "shared", "update", "mlm_head_learning_rate"},
            "augmented": perturbation,
            "no_integrated_loss": {*perturbation, "shared"},
            "sequential": {*perturbation, "mlm_head_learning_rate"},
            "perturb_first": perturbation,
            "intermediate_pretraining": {*perturbation, "mlm_head_learning_rate"} - {"fill"},
        }.items():
            resolved = configure("nli", method).resolved()
            record = resolved.public()
            of_methods = {*perturbation, "alpha", "shared", "update", "mlm_head_learning_rate"}
            assert {name for name in of_methods if record[name] is not None} == read, method
            assert resolved.resolved() == resolved

    def test_alpha_of_no_integrated_loss(self):
        with pytest.raises(UserError, match=r"alpha is 0\.6, but no_integrated_loss does not read it"):
            configure("nli", "no_integrated_loss", alpha=0.6)

    @pytest.mark.parametrize("method", [method for method in METHODS if method != "mask_tuning"])
    def test_only_mask_tuning_has_updates(self, method):
        with pytest.raises(UserError, match=f"update is 'alternating', but {method} does not read it"):
            configure("nli", method, update="alternating")


class TestRefill:
    @pytest.mark.parametrize("name", ["bert", "roberta", "bart"])
    def test_every_masked_place_and_no_other_is_filled_in_input_order(self, name):
        plm = architecture(name)
        data = tokenised(plm)
        if name != "roberta":
            good = always(plm, "good")
        refilled = Refill(EXACT)(plm.train(), data, seed=1, batch_size=3)
        assert plm.training
        assert refilled.counts["masked"] == sum(round(0.3 * n) for n in N_ORDINARY)
        changed = 0
        for old, new in zip(data, refilled.examples, strict=True):
            assert {**old, "input_ids": 0} == {**new, "input_ids": 0}
            pairs = [(a, b) for a, b in zip(old["input_ids"], new["input_ids"], strict=True) if a != b]
            changed += len(pairs)
            assert name == "roberta" or all(b == good for _, b in pairs)
            assert not {b for _, b in pairs} & set(plm.tokenizer.all_special_ids)
            assert len(pairs) <= round(0.3 * (old["length"] - 2))
        assert refilled.counts["changed"] == changed > 0
        assert refilled.examples.features["input_ids"] == data.features["input_ids"]

    @pytest.mark.parametrize("name", ["bert", "bart"])
    def test_it_is_what_the_model_fills_in_example_by_example(self, name):
        plm = architecture(name).eval()
        data = tokenised(plm, TEXTS[:4])
        together = Refill(ExactMasking(1.0))(plm, data).examples
        for row, new in zip(data, together, strict=True):
            batch = {key: torch.tensor([row[key]]) for key in plm.tokenizer.model_input_names}
            special = torch.isin(batch["input_ids"], torch.tensor(plm.tokenizer.all_special_ids))
            assert plm.fill_masks(batch, ~special).perturbed_ids[0].tolist() == new["input_ids"]

    @pytest.mark.parametrize("settings", [{}, {"fill": "sample"}, {"fill": "top_k", "replacement": "80_10_10"}])
    def test_a_seed_decides_and_nothing_else(self, settings):
        plm = make_plm()  # dropout in its configuration, but not in the refill
        data, refill = tokenised(plm), Refill(EXACT, **settings)
        state = torch.get_rng_state()
        first = refill(plm, data, seed=0).examples["input_ids"][:]
        assert torch.equal(torch.get_rng_state(), state)
        torch.rand(1)
        assert refill(plm, data, seed=0).examples["input_ids"][:] == first
        assert refill(plm, data, seed=1).examples["input_ids"][:] != first

    def test_augmented_keeps_the_original_and_one_refilled_copy(self):
        plm = make_plm()
        data = tokenised(plm)
        both = Refill(EXACT, keep_original=True)(plm, data).examples
        assert list(both)[:20] == list(data)
        assert list(both)[20:] == list(Refill(EXACT)(plm, data).examples)


class Watch(TrainerCallback):
    """The model's weights at the start and the end of each stage."""

    def __init__(self):
        self.started, self.ended = [], []

    def on_train_begin(self, args, state, control, **kwargs):
        self.started.append({name: tensor.clone() for name, tensor in kwargs["model"].state_dict().items()})

    def on_train_end(self, args, state, control, **kwargs):
        self.ended.append({name: tensor.clone() for name, tensor in kwargs["model"].state_dict().items()})


class TestRuns:
    def record(self, out, config, callbacks=()) -> dict:
        return read_records([runs.run(config, out, callbacks=callbacks)[0]])[0]

    def test_nothing_masked_makes_perturb_first_fine_tuning(self, testbed, model, tmp_path):  # noqa: F811
        plain = self.record(tmp_path, config(model, method="fine_tuning"))
        same = self.record(tmp_path, config(model, method="perturb_first", mask_rate=0.0))
        assert same["metrics"] == plain["metrics"] and same["history"] == plain["history"]
        other = self.record(tmp_path, config(model, method="perturb_first", mask_rate=0.5))
        assert other["history"] != plain["history"]

    def test_no_integrated_loss_is_mask_tuning_with_alpha_0(self, testbed, model, tmp_path):  # noqa: F811
        ours = self.record(tmp_path, config(model, method="no_integrated_loss"))
        same = self.record(tmp_path, config(model, alpha=0.0))
        assert ours["metrics"] == same["metrics"] and ours["history"] == same["history"]

    def test_augmented_sees_twice_the_examples(self, testbed, model, tmp_path):  # noqa: F811
        record = self.record(tmp_path, config(model, method="augmented"))
        assert (record["cost"]["steps"], record["cost"]["examples_seen"]) == (16, 256)
        (stage,) = record["cost"]["stages"]
        assert stage["name"] == "fine_tuning" and stage["steps"] == 16 and stage["masked"] == 64
        assert 0 <= stage["changed"] <= 64 and stage["seconds"] == record["cost"]["train_seconds"]
        assert "stage" not in record["history"][0]

    def test_sequential_goes_on_from_the_adapted_masked_lm(self, testbed, model, tmp_path):  # noqa: F811
        watch = Watch()
        record = self.record(tmp_path, config(model, method="sequential"), [watch])
        assert all(torch.equal(a, b) for a, b in zip(watch.ended[0].values(), watch.started[1].values(), strict=True))
        moved = {name for name, tensor in watch.started[0].items() if not torch.equal(tensor, watch.ended[0][name])}
        assert any("encoder" in name for name in moved) and not any("classifier.classifier" in name for name in moved)
        cost = record["cost"]
        assert [(stage["name"], stage["steps"]) for stage in cost["stages"]] == [("masked_lm", 8), ("fine_tuning", 8)]
        assert "masked" not in cost["stages"][0] and cost["stages"][1]["masked"] == 64
        assert (cost["steps"], cost["examples_seen"]) == (16, 256)
        assert cost["train_seconds"] == pytest.approx(sum(stage["seconds"] for stage in cost["stages"]), abs=0.02)
        assert [entry["stage"] for entry in record["history"]] == ["masked_lm"] * 8 + ["fine_tuning"] * 8
        assert {*record["history"][0]} >= {"mlm_loss", "n_masked"} and "ft_loss" in record["history"][-1]


class Killed(Exception):
    pass


class KillAt(TrainerCallback):
    """Stops a run in the middle of a stage, and counts the steps of each."""

    def __init__(self, stage=None, step=None):
        self.at, self.steps = (stage, step), {"masked_lm": 0, "fine_tuning": 0}

    def on_step_end(self, args, state, control, **kwargs):
        stage = re.search(r"masked_lm|fine_tuning$", args.output_dir)[0]
        self.steps[stage] += 1
        if (stage, state.global_step) == self.at:
            raise Killed


def test_a_two_stage_run_killed_in_each_stage_ends_as_the_uninterrupted_one(
    testbed,  # noqa: F811
    model,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    settings = config(model, method="sequential", epochs=16, mask_rate=0.3)  # 64 steps a stage, checkpoints at 50, 64
    whole = read_records([runs.run(settings, tmp_path / "whole")[0]])[0]

    def refilling_fails(*arguments):
        raise Killed

    out = tmp_path / "killed"
    for kill, steps in (
        (KillAt("masked_lm", 60), (60, 0)),
        (KillAt("masked_lm", 52), (2, 0)),
        (None, (14, 0)),  # killed while it refills
        (KillAt("fine_tuning", 60), (0, 60)),
    ):
        watch = kill or KillAt()
        with pytest.raises(Killed), monkeypatch.context() as patch:
            if kill is None:
                patch.setattr(Refill, "__call__", refilling_fails)
            runs.run(settings, out, callbacks=[watch])
        assert tuple(watch.steps.values()) == steps
    last = KillAt()
    record = read_records([runs.run(settings, out, callbacks=[last])[0]])[0]
    assert tuple(last.steps.values()) == (0, 14)
    assert record["metrics"] == whole["metrics"] and record["history"] == whole["history"]
    assert record["cost"]["interruptions"] == 4 and whole["cost"]["interruptions"] == 0
    for ours, theirs in zip(record["cost"]["stages"], whole["cost"]["stages"], strict=True):
        assert ours | {"seconds": 0} == theirs | {"seconds": 0}
    assert {path.suffix for path in out.iterdir()} == {".json", ".npz"}


class TestTwoTrunks:
    """What a second trunk changes (plain AdamW: no dropout, no clipping, so that alpha has no other way in)."""

    def logits(self, folder, alpha, shared):
        plm = make_plm(tiny_bert_config(**NO_DROPOUT), shared=shared)
        train(folder, MaskTuning(alpha, EXACT), plm, max_steps=36, max_grad_norm=0.0, learning_rate=3e-3)
        data = plm.tokenizer(TEXTS[:4], padding=True, return_tensors="pt")
        return plm.eval().classify(data).detach()

    def test_alpha_does_nothing_with_two_trunks(self, tmp_path):
        """Adam divides the scale of a loss out, and alpha is a scale where the losses share no parameter."""
        gaps = {}
        for shared in (False, True):
            low, middle, high = (self.logits(tmp_path, alpha, shared) for alpha in (0.1, 0.6, 0.9))
            gaps[shared] = max((low - middle).abs().max(), (high - middle).abs().max())
        assert gaps[False] < 1e-4 and gaps[True] > 3e-3

    def test_without_the_masked_lm_loss_the_separate_masked_lm_stays_as_it_was(self, tmp_path):
        """no_integrated_loss with --separate: x̂ is made by a frozen masked LM."""
        plm = make_plm(shared=False)
        before = {name: tensor.clone() for name, tensor in plm.state_dict().items()}
        train(tmp_path, MaskTuning(0.0, EXACT), plm, max_steps=12)
        moved = {name for name, tensor in plm.state_dict().items() if not torch.equal(tensor, before[name])}
        assert moved and all(name.startswith("classifier.") for name in moved)
