"""What a trainer refuses, before it starts: settings that it cannot follow, examples that it cannot read."""

from datasets import Dataset
from transformers import TrainingArguments

from mtlib.errors import UserError
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM
from mtlib.updates import check_update


def check_arguments(plm: SharedPLM, objective: Objective, args: TrainingArguments, others: dict) -> None:
    """`args` are the trainer's `ObjectiveArguments`, `others` what else its constructor was given, by name."""
    if not hasattr(args, "update"):
        raise UserError(f"args is {type(args).__name__}; expected ObjectiveArguments, which takes the same arguments.")
    check_update(args.update, plm, objective, args)
    objective.check(plm)
    for name, value in (("label_smoothing_factor", args.label_smoothing_factor),
                        ("neftune_noise_alpha", args.neftune_noise_alpha),
                        ("compute_loss_func", others.get("compute_loss_func"))):  # fmt: skip
        if value:
            raise UserError(f"{name} is {value!r}, but the loss is the objective's; leave {name} out.")
    if args.update == "alternating" and (others.get("optimizers") or (None,))[0] is not None:
        raise UserError('update="alternating" makes its own two optimisers; leave `optimizers` out, or its first.')
    if args.gradient_diagnostics_steps and not plm.shared and objective.two_losses:
        raise UserError("gradient_diagnostics_steps compares two losses on one trunk; this model has two, set it to 0.")


def check_examples(plm: SharedPLM, objective: Objective, args: TrainingArguments, train, evaluation) -> None:
    """The training set, and the evaluation set or the sets by name: they are read after the first epoch."""
    sets = {"the training set": train}
    if isinstance(evaluation, dict):
        sets |= {f"the evaluation set {name!r}": dataset for name, dataset in evaluation.items()}
    else:
        sets["the evaluation set"] = evaluation
    for name, dataset in sets.items():
        if dataset is None:
            continue
        # other things with columns will do, such as batches made on the fly; they are not looked into
        if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
            raise UserError(f"{name} is a {type(dataset).__name__}; expected a Dataset, as mtlib.tokenise makes one.")
        _check_columns(name, dataset, objective, training=dataset is train)
        if isinstance(dataset, Dataset):
            plm.check_lengths(dataset["input_ids"], name)
            if objective.classifies and "labels" in dataset.column_names:
                _check_labels(name, dataset, plm.config.num_labels)
    batch = args.train_batch_size * args.world_size
    if train is not None and args.dataloader_drop_last and len(train) < batch:
        raise UserError(
            f"dataloader_drop_last is True, which drops the only batch: the training set has {len(train)} examples, a "
            f"batch {batch}. Leave it out, or take smaller batches."
        )


def _check_columns(name: str, dataset, objective: Objective, training: bool) -> None:
    if len(dataset) == 0:
        raise UserError(f"{name} is empty; expected at least one example.")
    columns = ", ".join(dataset.column_names)
    if "input_ids" not in dataset.column_names:
        raise UserError(f"{name} has no column `input_ids`, but {columns}; give it to mtlib.tokenise.")
    # a classifier is evaluated on the texts as they stand
    needed = objective.columns.keys() if training or not objective.classifies else set()
    if missing := sorted(needed - {*dataset.column_names}):
        raise UserError(
            f"{name} has no column {', '.join(missing)}, which {type(objective).__name__} needs; it has {columns}."
        )
    if training and objective.classifies and "labels" not in dataset.column_names:
        raise UserError(f"{name} has no column `labels`; it has {columns}.")


def _check_labels(name: str, dataset, num_labels: int) -> None:
    labels = list(dataset.with_format(None)["labels"])
    for label in labels:
        if type(label) is not int:
            raise UserError(f"{name} has the label {label!r}; expected class numbers, whole and from 0 on.")
    classes = sorted(set(labels))
    if classes[0] < 0 or classes[-1] >= num_labels:
        raise UserError(
            f"{name} has labels {classes[0]} to {classes[-1]}; a classifier with num_labels={num_labels} takes 0 to "
            f"{num_labels - 1}."
        )
