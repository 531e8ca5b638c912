import hashlib
import inspect
import json
import shutil
from contextlib import nullcontext

import pytest
import torch
from datasets import ClassLabel, Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from mtlib.encoding import Collator, tokenise
from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.policies.frequency import FrequencyMasking
from mtlib.rng import KeyedRNG
from mtlib.trainer import ObjectiveTrainer
from tests.conftest import (
    NO_DROPOUT,
    arguments,
    examples,
    history,
    make_plm,
    tiny_bert_config,
    train,
)
from tests.weighed import WeightedFineTuning, weighted

# Private methods of transformers' Trainer that `ObjectiveTrainer` overrides or calls, which any
# release may change: the beginning of the SHA-256 of their source in the releases that were tried,
# 5.17.0, 5.23.0 and 5.24.0.
SOURCES_TRIED = {
    "_run_epoch": {"ebe374933064", "31aff00f34c3"},
    "_get_train_sampler": {"1580d7493244"},
    "_get_eval_sampler": {"f0213c4ba087"},
    "_get_dataloader": {"5f975c244904", "d1296dbd4dcb"},
    "_prepare_inputs": {"8f8c4e430d2f"},
    "_save": {"bf720120f407", "b136889e8792"},
    "_load_from_checkpoint": {"4711d0506786", "a2804e8d93a2"},
    "_load_best_model": {"0e183d55a9db"},
    "_save_optimizer_and_scheduler": {"c5ef974db69a"},
    "_load_optimizer_and_scheduler": {"bdcb956f06c4", "741032f57d6f"},
}


def test_every_private_method_of_the_stock_trainer_is_named():
    private = {name for name in vars(ObjectiveTrainer) if name[0] == "_" and name[1] != "_"}
    overridden = {name for name in private if hasattr(Trainer, name)}
    source = inspect.getsource(ObjectiveTrainer)
    called = {name for name in vars(Trainer) if f"self.{name}(" in source and name[0] == "_"}
    assert overridden | called == SOURCES_TRIED.keys()


@pytest.mark.parametrize("name", SOURCES_TRIED)
def test_the_source_of_a_private_method_is_one_that_was_tried(name):
    source = inspect.getsource(getattr(Trainer, name))
    found = hashlib.sha256(source.encode()).hexdigest()[:12]
    assert found in SOURCES_TRIED[name], (
        f"transformers has changed Trainer.{name}, on which ObjectiveTrainer relies: read the "
        f"change, run the tests, and add {found!r}"
    )


def test_fine_tuning_is_stock_fine_tuning_loss_by_loss(tmp_path):
    """Dropout on: the random numbers are drawn alike too."""
    data = examples(48, length=False)
    settings = {"max_steps": 20, "train_sampling_strategy": "random"}
    ours = train(tmp_path / "ours", FineTuning(), make_plm(), data, **settings)
    names = "per_device_train_batch_size max_steps learning_rate logging_steps use_cpu disable_tqdm"
    stock_arguments = {name: getattr(ours.args, name) for name in names.split()}
    plm = make_plm()
    stock = Trainer(
        plm.classifier,
        TrainingArguments(
            str(tmp_path / "stock"), save_strategy="no", report_to="none", **stock_arguments
        ),
        train_dataset=data,
        data_collator=Collator(plm.tokenizer),
    )
    stock.train()
    assert history(ours) == history(stock)


@pytest.mark.parametrize("update", ["joint", "balanced"])
def test_a_step_is_the_same_however_it_is_cut(tmp_path, update):
    """In tests/test_objectives.py and tests/test_peers.py every objective is cut."""
    runs = []
    for size, slices in ((8, 1), (2, 4)):
        cut = {"per_device_train_batch_size": size, "gradient_accumulation_steps": slices}
        objective = MaskTuning(0.6, ExactMasking(0.3))
        runs.append(torch.tensor(history(train(tmp_path, objective, update=update, **cut))))
    torch.testing.assert_close(*runs, rtol=1e-4, atol=1e-6)


def test_parts_are_logged_and_make_up_the_loss(tmp_path):
    trainer = train(tmp_path, MaskTuning(0.6), gradient_accumulation_steps=2)
    for loss, mlm, ft, masked, changed in history(
        trainer, "loss", "mlm_loss", "ft_loss", "n_masked", "share_changed"
    ):
        assert loss == pytest.approx(0.6 * mlm + 0.4 * ft, rel=1e-4)
        assert masked == 16 and 0 <= changed <= 1


def test_evaluation_classifies_the_text_as_it_stands(tmp_path):
    trainer = train(tmp_path, MaskTuning(0.6, ExactMasking(1.0)))
    data = examples(5)
    predicted = trainer.predict(data)
    unlabelled = trainer.predict(data.remove_columns("labels")).predictions
    assert (unlabelled == predicted.predictions).all()
    batch = Collator(trainer.plm.tokenizer)(list(data))
    expected = trainer.plm.eval().classify(batch).detach()
    torch.testing.assert_close(torch.tensor(predicted.predictions), expected, rtol=1e-4, atol=1e-5)
    assert not any(key.startswith("eval_mlm") for key in trainer.evaluate(data))


@pytest.mark.parametrize(("classifier", "mlm_head"), [(1e-2, 1e-4), (0.0, 0.0)])
def test_learning_rates_of_trunk_and_heads(tmp_path, classifier, mlm_head):
    """Adam's first step has the size of the rate, whatever the gradient; a rate of 0 freezes."""
    plm = make_plm()
    before = {name: parameter.clone() for name, parameter in plm.named_parameters()}
    rates = {"classifier_learning_rate": classifier, "mlm_head_learning_rate": mlm_head}
    train(tmp_path, MaskTuning(0.5), plm, max_steps=1, lr_scheduler_type="constant", **rates)
    moved = {n: (p - before[n]).abs().max().item() for n, p in plm.named_parameters()}
    expected = {
        "classifier.classifier.weight": classifier,
        "classifier.bert.pooler.dense.weight": classifier,
        "mlm.cls.predictions.transform.dense.weight": mlm_head,
        "classifier.bert.encoder.layer.0.output.dense.weight": 1e-3,
    }
    assert {name: moved[name] for name in expected} == pytest.approx(expected, rel=0.01)


def test_weight_decay_spares_biases_and_norms(tmp_path):
    """In a step of SGD a parameter p with decay loses rate x decay x p more than without."""
    rate, decay = 0.1, 0.5
    before: dict[str, torch.Tensor] = {}
    after = []
    for weight_decay in (0.0, decay):
        plm = make_plm(tiny_bert_config(**NO_DROPOUT))
        with torch.no_grad():
            for name, parameter in plm.named_parameters():
                if name.endswith("bias"):  # else they begin at 0, where decay shows nothing
                    parameter.fill_(0.3)
                before[name] = parameter.clone()
        args = arguments(
            tmp_path, max_steps=1, lr_scheduler_type="constant", weight_decay=weight_decay
        )
        sgd = (torch.optim.SGD, {"lr": rate})
        ObjectiveTrainer(plm, MaskTuning(), args, examples(8), optimizer_cls_and_kwargs=sgd).train()
        after.append(dict(plm.named_parameters()))
    spared = 0
    for name, plain in after[0].items():
        is_spared = name.endswith("bias") or "LayerNorm" in name
        spared += is_spared
        lost = 0 if is_spared else rate * decay * before[name]
        torch.testing.assert_close(after[1][name], plain - lost)
    assert 0 < spared < len(before)


@pytest.mark.parametrize("update", ["joint", "alternating"])
def test_an_optimizer_class_that_was_asked_for(tmp_path, update):
    chosen = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
    args = arguments(
        tmp_path,
        max_steps=1,
        lr_scheduler_type="constant",
        classifier_learning_rate=0.02,
        update=update,
    )
    trainer = ObjectiveTrainer(
        make_plm(), MaskTuning(), args, examples(8), optimizer_cls_and_kwargs=chosen
    )
    trainer.train()
    alternating = [trainer.update.optimizer] if update == "alternating" else []
    for optimizer in (trainer.optimizer.optimizer, *alternating):
        assert type(optimizer) is torch.optim.SGD
        assert {(group["lr"], group["momentum"]) for group in optimizer.param_groups} == {
            (0.1, 0.9),
            (0.02, 0.9),
        }


@pytest.mark.parametrize(
    ("stop", "update"), [(3, "joint"), (6, "joint"), (8, "alternating"), (3, "balanced")]
)
def test_resumed_run_ends_as_the_uninterrupted_one(tmp_path, stop, update):
    """Stops in the first epoch, at its end, and in the second; dropout on.

    The objective has a parameter of its own.
    """

    def trained(seed: int, resume: bool) -> ObjectiveTrainer:
        objective = MaskTuning(classification=WeightedFineTuning())
        data = weighted(examples(48))
        return train(tmp_path, objective, make_plm(seed=seed), data, resume, **settings)

    settings = {"max_steps": 10, "save_strategy": "steps", "save_steps": stop, "update": update}
    whole = trained(seed=0, resume=False)
    for folder in tmp_path.iterdir():
        if folder.name != f"checkpoint-{stop}":
            shutil.rmtree(folder)
    resumed = trained(seed=9, resume=True)
    assert history(resumed) == history(whole)
    for part in ("plm", "training_objective"):
        ours, theirs = (getattr(trainer, part).state_dict() for trainer in (whole, resumed))
        assert ours and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_is_saved_and_uploaded_is_whole_and_holds_no_pickle(tmp_path):
    trainer = train(tmp_path, MaskTuning(), max_steps=1)
    trainer.save_model()
    weights = ["masked_lm_head.safetensors", "model.safetensors"]
    saved = sorted(path.name for path in tmp_path.iterdir())
    assert saved == ["config.json", *weights, "tokenizer.json", "tokenizer_config.json"]
    assert trainer.args.hub_strategy == "end"  # the stock uploads of checkpoints lack the head


def test_two_epochs_have_different_orders_of_like_lengths(tmp_path):
    trainer = ObjectiveTrainer(make_plm(), FineTuning(), arguments(tmp_path), examples(400))
    sampler = trainer._get_train_sampler()
    orders = []
    for epoch in (0, 0, 1):
        trainer._begin_epoch(epoch)
        orders.append(list(sampler))
    first, again, second = orders
    assert again == first != second and sorted(first) == list(range(400))
    lengths = trainer.train_dataset["length"]
    spread = [
        max(lengths[i] for i in first[b : b + 8]) - min(lengths[i] for i in first[b : b + 8])
        for b in range(0, 400, 8)
    ]
    assert sum(spread) / len(spread) < 1


@pytest.mark.parametrize("name", ["seed", "data_seed"])
def test_the_seed_decides_the_order_of_the_data(tmp_path, name):
    def order(seed: int) -> list[int]:
        trainer = ObjectiveTrainer(
            make_plm(), FineTuning(), arguments(tmp_path, **{name: seed}), data
        )
        trainer._begin_epoch(0)
        return list(trainer._get_train_sampler())

    data = examples(64)
    assert order(1) == order(1) != order(2)


def test_an_epoch_that_a_callback_stops_is_followed_by_the_next(tmp_path):
    """Not by its own first batches once more: each epoch begins as the sampler orders it."""

    class StopAfterTwo(TrainerCallback):
        def on_step_end(self, args, state, control, **others):
            control.should_epoch_stop = state.global_step % 2 == 0

    class Noting(ObjectiveTrainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            batches.append(inputs["input_ids"].tolist())
            return super().training_step(model, inputs, num_items_in_batch)

    batches, args, data = [], arguments(tmp_path, max_steps=-1, num_train_epochs=3), examples(48)
    trainer = Noting(make_plm(), FineTuning(), args, data, callbacks=[StopAfterTwo()])
    trainer.train()
    expected = []
    for epoch in range(3):
        trainer._begin_epoch(epoch)
        order = list(trainer._get_train_sampler())
        expected += [
            Collator(trainer.plm.tokenizer)([data[i] for i in order[b : b + 8]]) for b in (0, 8)
        ]
    assert batches == [batch["input_ids"].tolist() for batch in expected]


def test_masked_lm_objective_learns_and_is_evaluated_alike_each_time(tmp_path):
    trainer = train(tmp_path, MaskedLM(ExactMasking(0.3)), max_steps=40, learning_rate=1e-2)
    losses = [loss for (loss,) in history(trainer, "mlm_loss")]
    assert sum(losses[-5:]) < sum(losses[:5])
    assert all(0 <= share <= 1 for (share,) in history(trainer, "share_correct"))
    assert (
        len({trainer.evaluate(examples(5).remove_columns("labels"))["eval_loss"] for _ in range(3)})
        == 1
    )


SGD = torch.optim.SGD([torch.zeros(1)])


@pytest.mark.parametrize(
    ("changes", "others", "message"),
    [
        ({"update": "both"}, {}, "update is 'both'; expected one of joint, balanced, alternating"),
        (
            {"update": "alternating", "gradient_accumulation_steps": 2},
            {},
            "needs gradient_accumulation_steps=1",
        ),
        (
            {"label_smoothing_factor": 0.1},
            {},
            r"label_smoothing_factor does not work .* FineTuning\(label_smoothing",
        ),
        ({}, {"compute_loss_func": print}, "compute_loss_func does not work"),
        ({"neftune_noise_alpha": 5.0}, {}, "neftune_noise_alpha does not work"),
        (
            {"update": "alternating"},
            {"optimizers": (SGD, None)},
            "optimizers.* give optimizer_cls_and_kwargs",
        ),
    ],
)
def test_arguments_that_do_not_work(tmp_path, changes, others, message):
    with pytest.raises(UserError, match=message):
        ObjectiveTrainer(
            make_plm(), MaskTuning(), arguments(tmp_path, **changes), examples(8), **others
        )


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("plm", torch.nn.Linear(1, 1), "plm is Linear; expected a SharedPLM"),
        ("objective", MaskTuning, "objective is MaskTuning; expected an objective, such as"),
        ("args", TrainingArguments("out"), "args is TrainingArguments; expected ObjectiveArg"),
    ],
)
def test_what_is_of_another_type(tmp_path, name, given, message):
    arguments_by_name = {"plm": make_plm(), "objective": FineTuning(), "args": arguments(tmp_path)}
    with pytest.raises(UserError, match=message):
        ObjectiveTrainer(**arguments_by_name | {name: given}, train_dataset=examples(8))


def test_two_trainers_with_one_objective_weigh_each_its_own_data(tmp_path):
    def data(n_of_each: list[int]) -> Dataset:
        labels = [label for label, n in enumerate(n_of_each) for _ in range(n)]
        return examples(12).remove_columns("labels").add_column("labels", labels)

    objective = FineTuning("balanced")
    args = arguments(tmp_path, max_steps=1)
    first, second = (
        ObjectiveTrainer(make_plm(), objective, args, data(n)) for n in ([3, 9], [6, 6])
    )
    for trainer, weights in ((first, [2, 2 / 3]), (second, [1, 1]), (first, [2, 2 / 3])):
        trainer.train()
        torch.testing.assert_close(objective.weights, torch.tensor(weights).float())


def test_masks_follow_a_seed_that_is_changed_later(tmp_path):
    trainer = ObjectiveTrainer(make_plm(), MaskTuning(), arguments(tmp_path), examples(8))
    trainer.args.seed = 9
    trainer._begin_epoch(0)
    assert trainer.data_collator.seed == 9
    own = Collator(trainer.plm.tokenizer, seed=5)
    trainer = ObjectiveTrainer(
        make_plm(), MaskTuning(), arguments(tmp_path), examples(8), data_collator=own
    )
    trainer._begin_epoch(0)
    assert own.seed == 5


def test_callbacks_get_the_tokenizer(tmp_path):
    trainer = ObjectiveTrainer(make_plm(), FineTuning(), arguments(tmp_path), examples(8))
    assert trainer.callback_handler.processing_class is trainer.plm.tokenizer


def test_an_optimizer_of_ones_own_has_all_parameters(tmp_path):
    plm = make_plm()
    optimizer = torch.optim.SGD(plm.parameters(), lr=0.1)
    trainer = ObjectiveTrainer(
        plm, FineTuning(), arguments(tmp_path), examples(8), optimizers=(optimizer, None)
    )
    assert trainer.create_optimizer() is optimizer
    objective = FineTuning()
    objective.gate = torch.nn.Parameter(torch.ones(()))
    trainer = ObjectiveTrainer(
        plm, objective, arguments(tmp_path), examples(8), optimizers=(optimizer, None)
    )
    with pytest.raises(UserError, match="no group with gate of FineTuning"):
        trainer.create_optimizer()


def test_resuming_from_a_torn_checkpoint(tmp_path):
    """Without its state the optimiser would begin anew, silently."""
    train(tmp_path, FineTuning(), max_steps=2, save_strategy="steps", save_steps=1)
    (tmp_path / "checkpoint-1" / "optimizer.pt").unlink()
    with pytest.raises(
        UserError, match=r"checkpoint-1 has no optimizer\.pt: it is torn, or holds a model alone"
    ):
        train(tmp_path, FineTuning(), resume=f"{tmp_path}/checkpoint-1")


def test_scores_of_an_objective_that_does_not_classify(tmp_path):
    with pytest.raises(
        UserError, match=r"compute_metrics does not work with MaskedLM; .* read eval_loss"
    ):
        ObjectiveTrainer(
            make_plm(), MaskedLM(), arguments(tmp_path), examples(8), compute_metrics=accuracy
        )


BAD_SETS = [
    (lambda data: data.select([]), "has labels of no row"),
    (
        lambda data: data.remove_columns("input_ids"),
        "has no column input_ids, .* mtlib.tokenise makes",
    ),
    (
        lambda data: relabelled(data, [0, 1, 2, 0]),
        "has labels 0, 1, 2; a classifier with num_labels=2 takes 0 to 1",
    ),
    (lambda data: relabelled(data, [0, 1, -100, 0]), "has labels -100, 0, 1"),
    (lambda data: relabelled(data, ["a"] * 4), "has the label 'a'; expected class numbers"),
    (
        lambda data: data.map(lambda row: {"input_ids": [2, 28, 3]}),
        "has texts .* numbered up to 28; .* below 28",
    ),
    (lambda data: data.map(lambda row: {"input_ids": [2] * 65}), "has texts of up to 65 tokens"),
    (
        lambda data: data.to_iterable_dataset(),
        "is a IterableDataset; .* Streams and torch datasets are not read",
    ),
    (
        lambda data: torch.utils.data.StackDataset(data),
        "is a StackDataset; .* Streams and torch datasets are not read",
    ),
]


def relabelled(data, labels):
    return data.remove_columns("labels").add_column("label", labels)


@pytest.mark.parametrize(("spoil", "message"), BAD_SETS)
def test_bad_sets_are_told_before_training(tmp_path, spoil, message):
    data, args = examples(4), arguments(tmp_path)
    bad = spoil(data)
    with pytest.raises(UserError, match=f"the training set {message}"):
        ObjectiveTrainer(make_plm(), FineTuning(), args, bad)
    with pytest.raises(UserError, match=f"the evaluation set {message}"):
        ObjectiveTrainer(make_plm(), FineTuning(), args, data, eval_dataset=bad)
    with pytest.raises(UserError, match=f"the evaluation set 'dev' {message}"):
        ObjectiveTrainer(
            make_plm(), FineTuning(), args, data, eval_dataset={"good": data, "dev": bad}
        )
    trainer = ObjectiveTrainer(make_plm(), FineTuning(), args, data)
    for call, name in ((trainer.evaluate, "the evaluation set"), (trainer.predict, "the test set")):
        with pytest.raises(UserError, match=f"{name} {message}"):
            call(bad)


def test_a_training_set_without_labels(tmp_path):
    with pytest.raises(UserError, match="has no column labels, which MaskTuning needs"):
        train(tmp_path, MaskTuning(), data=examples(8).remove_columns("labels"))


def test_training_without_a_training_set_is_refused(tmp_path):
    trainer = ObjectiveTrainer(make_plm(), FineTuning(), arguments(tmp_path))
    with pytest.raises(UserError, match="train_dataset is None; give a Dataset"):
        trainer.train()


@pytest.mark.parametrize("given", ["labels", "label"])
def test_labels_have_either_name_everywhere(tmp_path, given):
    """`label`, as `dataset.map(tokenizer)` leaves it, is trained on and scored."""
    settings = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps"}
    settings |= {"save_steps": 3, "load_best_model_at_end": True}
    settings |= {"metric_for_best_model": "accuracy"}
    data = examples(16).rename_columns({"labels": given} if given == "label" else {})
    args = arguments(tmp_path, **settings)
    trainer = ObjectiveTrainer(
        make_plm(), MaskTuning(), args, data, eval_dataset=data, compute_metrics=accuracy
    )
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] > 0
    assert metrics["eval_accuracy"] == trainer.predict(data).metrics["test_accuracy"]
    assert trainer.state.best_metric == metrics["eval_accuracy"]


def accuracy(answers):
    return {"accuracy": float((answers.predictions.argmax(-1) == answers.label_ids).mean())}


class TestModelInit:
    def trainer(self, folder, **changes):
        def fresh(trial=None):
            return make_plm(tiny_bert_config(**NO_DROPOUT), seed=7)

        args = arguments(folder, **changes)
        return ObjectiveTrainer(
            None, MaskTuning(), args, examples(16), model_init=fresh, eval_dataset=examples(8)
        )

    def test_each_training_begins_anew(self, tmp_path):
        trainer = self.trainer(tmp_path)
        losses = []
        for _ in range(2):
            trainer.train()
            losses.append(history(trainer))
        assert losses[0] == losses[1]
        plm = make_plm(tiny_bert_config(**NO_DROPOUT), seed=7)
        assert history(train(tmp_path, MaskTuning(), plm, examples(16))) == losses[0]

    def test_an_error_of_model_init_is_the_users_own(self, tmp_path):
        trainer = self.trainer(tmp_path)

        def broken(trial=None):
            raise ValueError("no such model")

        trainer.model_init = broken
        trainer.model = None
        with pytest.raises(ValueError, match="no such model"):
            trainer.train()


@pytest.mark.parametrize("deleted", [False, True])
def test_the_best_checkpoint_is_loaded_back_or_its_loss_is_told(tmp_path, deleted):
    class Delete(TrainerCallback):
        def on_step_end(self, args, state, control, **others):
            if deleted and state.global_step == 7:
                for folder in tmp_path.glob("checkpoint-*"):
                    shutil.rmtree(folder)

    settings = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps"}
    settings |= {"eval_steps": 2, "load_best_model_at_end": True}
    settings |= {"metric_for_best_model": "eval_loss", "learning_rate": 5e-2, "max_steps": 7}
    settings |= {"greater_is_better": True}  # so that an early checkpoint is the best
    args, data = arguments(tmp_path, **settings), examples(48)
    trainer = ObjectiveTrainer(
        make_plm(), FineTuning(), args, data, eval_dataset=examples(8), callbacks=[Delete()]
    )
    with pytest.warns(UserWarning, match="that of the last step") if deleted else nullcontext():
        trainer.train()
    at_end = trainer.evaluate()["eval_loss"] == pytest.approx(trainer.state.best_metric, rel=1e-5)
    assert trainer.state.global_step == 7 and (deleted or at_end)


def test_batches_are_padded_on_the_right():
    """Whatever side the tokenizer pads on: a classifier head reads the first token."""
    plm = make_plm(tiny_bert_config(**NO_DROPOUT)).eval()
    plm.tokenizer.padding_side = "left"
    rows = examples(8).to_list()
    together = plm.classify(Collator(plm.tokenizer)(rows))
    alone = torch.cat([plm.classify(Collator(plm.tokenizer)([row])) for row in rows])
    torch.testing.assert_close(together, alone)


@pytest.mark.filterwarnings(
    "ignore:`gradient_checkpointing` is deprecated"
)  # its new name is not in transformers 5.20
@pytest.mark.parametrize("shared", [True, False])
def test_activation_checkpointing_changes_nothing(tmp_path, shared):
    """Dropout on: its random numbers are put back for the second forward pass."""
    runs = []
    for on in (False, True):
        plm, folder = make_plm(shared=shared), tmp_path / str(on)
        runs.append(history(train(folder, MaskTuning(0.5), plm, gradient_checkpointing=on)))
    assert torch.tensor(runs[0]) == pytest.approx(torch.tensor(runs[1]), rel=1e-5)


def test_labels_of_a_formatted_dataset(tmp_path):
    for columns in (None, ["input_ids", "attention_mask", "labels"]):
        data = examples(8).with_format("torch", columns=columns)
        assert train(tmp_path, FineTuning(), data=data, max_steps=1).state.global_step == 1


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_policies_read_a_formatted_dataset(tmp_path, kind):
    """Tokens that are tensors of their own would each be counted once."""
    plm, data = make_plm(), examples(8)
    policy = FrequencyMasking(0.3, prefer="frequent")
    counted = [
        ObjectiveTrainer(plm, MaskedLM(policy), arguments(tmp_path), dataset).train_dataset
        for dataset in (data, data.with_format(kind))
    ]
    first, second = ([*rows.with_format(None)["token_counts"]] for rows in counted)
    assert first == second and max(first[0]) > 1


def test_alternating_follows_any_schedule(tmp_path):
    settings = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "lr_scheduler_type": "reduce_lr_on_plateau",
    }
    args = arguments(tmp_path, update="alternating", **settings)
    trainer = ObjectiveTrainer(
        make_plm(), MaskTuning(0.5), args, examples(48), eval_dataset=examples(8)
    )
    trainer.train()
    first, second = (
        [group["lr"] for group in of.param_groups]
        for of in (trainer.optimizer, trainer.update.optimizer)
    )
    assert first == second


class TestNamesOfLabels:
    def examples(self, plm, *names):
        rows = Dataset.from_dict({"text": ["the film", "not good"] * 4, "label": [0, 1] * 4})
        return tokenise(rows.cast_column("label", ClassLabel(names=list(names))), plm.tokenizer)

    def test_a_model_without_names_takes_those_of_the_training_set(self, tmp_path):
        plm = make_plm()
        train(tmp_path, FineTuning(), plm, self.examples(plm, "negative", "positive"), max_steps=1)
        plm.save_pretrained(tmp_path / "model")
        assert json.loads((tmp_path / "model" / "config.json").read_text())["id2label"] == {
            "0": "negative",
            "1": "positive",
        }

    def test_names_in_another_order_are_refused(self, tmp_path):
        """Correct predictions would count as wrong; the model has the training set's names."""
        plm = make_plm()
        data = self.examples(plm, "negative", "positive")
        turned = self.examples(plm, "positive", "negative")
        order = r"labels positive, negative, the model negative, positive"
        for evaluation, name in ((turned, "set"), ({"dev": turned}, "set 'dev'")):
            with pytest.raises(UserError, match=rf"the evaluation {name} .* {order}"):
                ObjectiveTrainer(
                    plm, FineTuning(), arguments(tmp_path), data, eval_dataset=evaluation
                )
        assert plm.config.id2label == {
            0: "LABEL_0",
            1: "LABEL_1",
        }  # a set that was refused leaves no names behind
        trainer = ObjectiveTrainer(plm, FineTuning(), arguments(tmp_path), data, eval_dataset=data)
        for call, name in ((trainer.evaluate, "evaluation set"), (trainer.predict, "test set")):
            with pytest.raises(UserError, match=rf"the {name} .* {order}"):
                call(turned)
        with pytest.raises(UserError, match=rf"the training set .* {order}"):
            train(tmp_path, FineTuning(), plm, turned, max_steps=1)

    def test_other_names_are_left_alone(self, tmp_path):
        plm = make_plm()
        plm.config.id2label = {0: "bad", 1: "good"}
        train(tmp_path, FineTuning(), plm, self.examples(plm, "negative", "positive"), max_steps=1)
        assert plm.config.id2label == {0: "bad", 1: "good"}

    def test_two_classes_for_a_model_of_three_are_refused(self, tmp_path):
        """HANS: `non-entailment` is no answer of the model, whose third would count as wrong."""
        plm = make_plm(tiny_bert_config(num_labels=3))
        plm.config.id2label = dict(enumerate(["entailment", "neutral", "contradiction"]))
        trainer = ObjectiveTrainer(plm, FineTuning(), arguments(tmp_path), eval_dataset=None)
        hans = self.examples(plm, "entailment", "non-entailment")
        with pytest.raises(
            UserError, match=r"the evaluation set numbers its labels .* non-entailment, the model"
        ):
            trainer.evaluate(hans)


def test_what_no_collator_has_drawn_differs_in_each_step_and_micro_batch(tmp_path):
    plm = make_plm()
    trainer = ObjectiveTrainer(plm, MaskedLM(ExactMasking(0.5)), arguments(tmp_path), examples(8))
    batch = Collator(plm.tokenizer)(examples(8).to_list())
    masks = []
    for step, number in ((0, 0), (0, 0), (0, 1), (1, 0)):
        trainer.state.global_step = step
        masks.append(trainer._with_draws(dict(batch), number)["mask"])
    assert torch.equal(masks[0], masks[1])
    assert not any(torch.equal(masks[0], other) for other in masks[2:])


def test_a_step_draws_other_numbers_than_the_collator(tmp_path):
    trainer = ObjectiveTrainer(make_plm(), FineTuning(), arguments(tmp_path), examples(8))
    trainer.training_objective.sample = lambda plm, batch, rng: rng.uniform(9)
    keys = torch.arange(8)
    drawn = trainer._with_draws({"keys": keys}, 0)
    assert torch.equal(drawn, KeyedRNG(keys, stream="step").uniform(9))
    assert not torch.equal(drawn, KeyedRNG(keys, stream="masks").uniform(9))
