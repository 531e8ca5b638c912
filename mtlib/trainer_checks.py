"""What a trainer refuses, before it starts: settings that it cannot follow, examples that it cannot read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets import ClassLabel, Dataset
from torch import Tensor
from torch.optim import Optimizer
from transformers import DataCollatorForLanguageModeling, TrainingArguments

from mtlib.errors import UserError
from mtlib.objectives import Objective
from mtlib.paths import make_writable
from mtlib.plm import SharedPLM
from mtlib.updates import check_update


def check_arguments(plm: SharedPLM, objective: Objective, args: TrainingArguments, others: dict) -> None:
    """`args` are the trainer's `ObjectiveArguments`, `others` what else its constructor was given, by name."""
    for name, value, kind, maker in (
        ("plm", plm, SharedPLM, "SharedPLM.from_pretrained(...) gives"),
        ("objective", objective, Objective, "MaskTuning() or FineTuning() makes"),
    ):
        if isinstance(value, type):
            raise UserError(f"{name} is the class {value.__name__}; expected what {maker}.")
        if not isinstance(value, kind):
            raise UserError(f"{name} is a {type(value).__name__}; expected what {maker}.")
    if not hasattr(args, "update"):
        raise UserError(f"args is {type(args).__name__}; expected ObjectiveArguments, which takes the same arguments.")
    check_update(args.update, plm, objective, args)
    objective.check(plm)
    if args.should_save:
        make_writable(Path(args.output_dir))
    for name, value in (("label_smoothing_factor", args.label_smoothing_factor),
                        ("neftune_noise_alpha", args.neftune_noise_alpha),
                        ("compute_loss_func", others.get("compute_loss_func"))):  # fmt: skip
        if value:
            raise UserError(f"{name} is {value!r}, but the loss is the objective's; leave {name} out.")
    if args.push_to_hub and args.hub_strategy != "end":
        raise UserError(
            f"hub_strategy is {args.hub_strategy.value!r}, which uploads checkpoints without the masked-LM head and "
            'with a pickle; give hub_strategy="end" and call trainer.push_to_hub() after the training.'
        )
    if others.get("model_init"):
        raise UserError("model_init is given, but the model is `plm`; make a trainer for each model.")
    if isinstance(others.get("data_collator"), DataCollatorForLanguageModeling):
        raise UserError(
            "data_collator is DataCollatorForLanguageModeling, which masks and replaces the labels; leave it out: the "
            "objective masks by itself."
        )
    if args.update == "alternating" and (others.get("optimizers") or (None,))[0] is not None:
        raise UserError('update="alternating" makes its own two optimisers; leave `optimizers` out, or its first.')
    if args.gradient_diagnostics_steps and not plm.shared and objective.two_losses:
        raise UserError("gradient_diagnostics_steps compares two losses on one trunk; this model has two, set it to 0.")


def check_optimizer(optimizer: Optimizer | None, objective: Objective) -> None:
    """Raise `UserError` where an optimizer that the user made lacks a parameter of the objective: it would not train.

    None is one that the trainer makes.
    """
    if optimizer is None:
        return
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    lacking = [name for name, p in objective.named_parameters() if p.requires_grad and id(p) not in held]
    if lacking:
        raise UserError(
            f"the optimizer has no group with {', '.join(lacking)} of {type(objective).__name__}, which are made "
            "with the trainer and would not train; expected every parameter of the objective. Leave `optimizers` out, "
            "or give `optimizer_cls_and_kwargs` instead."
        )


def check_sets(plm: SharedPLM, objective: Objective, args: TrainingArguments, train, evaluation) -> None:
    """The training set, and the evaluation set or the sets by name: they are read after the first epoch."""
    id2label = names_of_labels(plm, train)
    if train is not None:
        check_set("the training set", train, plm, objective, id2label, training=True)
    check_evaluation_sets(evaluation, plm, objective, id2label)
    batch = args.train_batch_size * args.world_size
    if train is not None and args.dataloader_drop_last and len(train) < batch:
        raise UserError(
            f"dataloader_drop_last is True, which drops the only batch: the training set has {len(train)} examples, a "
            f"batch {batch}. Leave it out, or take smaller batches."
        )


def check_evaluation_sets(evaluation, plm: SharedPLM, objective: Objective, id2label: Mapping[int, str]) -> None:
    """A set, or several by name. A text stands for one that was checked before, None for none."""
    named = evaluation if isinstance(evaluation, dict) else {"": evaluation}
    for name, dataset in named.items():
        if dataset is not None and not isinstance(dataset, str):
            check_set(
                f"the evaluation set {name!r}" if name else "the evaluation set", dataset, plm, objective, id2label
            )


def check_set(
    name: str, dataset, plm: SharedPLM, objective: Objective, id2label: Mapping[int, str], training: bool = False
) -> None:
    """One set, which messages call `name`, for a model whose labels have these names."""
    # other things with columns will do, such as batches made on the fly; they are not looked into
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
        raise UserError(f"{name} is a {type(dataset).__name__}; expected a Dataset, as mtlib.tokenise makes one.")
    _check_columns(name, dataset, objective, training)
    if isinstance(dataset, Dataset):
        if objective.classifies:
            _check_label_names(name, dataset, id2label)
        plain = dataset.with_format(None)  # a format may hide columns
        plm.check_inputs(plain["input_ids"], name)
        if objective.classifies and "labels" in plain.column_names:
            check_labels(name, plain, plm.config.num_labels)


def _check_label_names(name: str, dataset: Dataset, id2label: Mapping[int, str]) -> None:
    """Raise `UserError` where a `ClassLabel` column and the model give one name two numbers.

    Such a model would be saved with its answers swapped, or scored as if they were.
    """
    ids = {label: number for number, label in enumerate(_label_names(dataset))}
    for number, label in id2label.items():
        if ids.get(label, number) != number:
            raise UserError(
                f"the label {label!r} is {ids[label]} in {name}, but {number} in the model's id2label, which is the "
                "training set's where the model came without names. Number the labels of all sets alike; where the "
                f"model's are the wrong ones, give id2label={dict(enumerate(ids))} to SharedPLM.from_pretrained."
            )


def names_of_labels(plm: SharedPLM, training_set) -> Mapping[int, str]:
    """The model's `id2label`, or the training set's where that names all labels and the model none."""
    names = _label_names(training_set)
    takes_them = plm.has_nameless_labels and len(names) == plm.config.num_labels
    return dict(enumerate(names)) if takes_them else plm.config.id2label


def _label_names(dataset) -> list[str]:
    """Of a `ClassLabel` column `labels`; none where it is another one."""
    column = (getattr(dataset, "features", None) or {}).get("labels")
    return list(column.names) if isinstance(column, ClassLabel) else []


def check_checkpoint(folder: Path, files: Sequence[str]) -> None:
    """Raise `UserError` where a training cannot go on as if it had not been interrupted."""
    lacking = [name for name in files if not (folder / name).is_file()]
    if lacking:
        raise UserError(
            f"{folder} has no {', '.join(lacking)}: it is torn, or holds a model alone. Resume from an earlier "
            "checkpoint (move this one away), or train in a new folder."
        )


def check_shapes(plm: SharedPLM, saved: dict[str, Tensor], checkpoint: str) -> None:
    """Weights of a checkpoint must be those of this model."""
    shapes, of_saved = ({name: tuple(value.shape) for name, value in state.items()}
                        for state in (plm.state_dict(), saved))  # fmt: skip
    for name in sorted(shapes.keys() | of_saved.keys()):
        if shapes.get(name) != of_saved.get(name):
            raise UserError(
                f"{checkpoint} holds another model: its {name} is {of_saved.get(name)}, here {shapes.get(name)}. "
                "Resume with the model and the number of labels that the training was begun with, or train in a new "
                "folder."
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
            + _preparers_of(objective)
        )
    if training and objective.classifies and "labels" not in dataset.column_names:
        raise UserError(
            f"{name} has no column `labels`; it has {columns}. mtlib.tokenise makes it of the "
            "class numbers in a column `label`."
        )


def _preparers_of(objective: Objective) -> str:
    """Which classes add the columns that the masking policy and the classification loss read."""
    masking = getattr(objective, "masking", None)
    names = ", ".join(type(preparer).__name__ for preparer in (masking.preparers() if masking else ()))
    of_policy = f" The policy's preparers add it ({names}): `for prepare in policy.preparers()`." if names else ""
    prepared_by = getattr(objective, "classification", objective).prepared_by
    return of_policy + (f" What the classification loss reads is added by {prepared_by}." if prepared_by else "")


def check_labels(name: str, dataset, num_labels: int) -> None:
    """Raise `UserError` where a label is none of the model's, in a dataset with `labels` that messages call `name`."""
    labels = list(dataset["labels"])
    if not labels:
        raise UserError(f"{name} is empty; expected at least one example.")
    for label in labels:
        if type(label) is not int:
            raise UserError(
                f"{name} has the label {label!r}; expected class numbers, whole and from 0 on. "
                '`dataset.class_encode_column("label")` numbers names.'
            )
    classes = sorted(set(labels))
    if classes[0] < 0 or classes[-1] >= num_labels:
        raise UserError(
            f"{name} has labels {classes[0]} to {classes[-1]}; a classifier with num_labels={num_labels} takes 0 to "
            f"{num_labels - 1}. Renumber them or give the model another num_labels; where labels are not known, remove "
            "the column."
        )
