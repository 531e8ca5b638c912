"""What decides a run's numbers: `RunConfig` and its defaults."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SerializeAsAny, model_validator
from pydantic.fields import FieldInfo

from mtlib.data.registry import SETS
from mtlib.data.sources import is_testbed, source_type
from mtlib.data.tasks import get_task
from mtlib.errors import UserError, one_of
from mtlib.method import LearningRates
from mtlib.methods import METHODS, get_method, readers
from mtlib.methods.settings import BIAS_OF_TASK, bias_for
from mtlib.paths import MINI_MODEL_DIR, is_missing_folder
from mtlib.policies import ATTRIBUTION, TESTBED_ONLY, check_for_pairs
from mtlib.settings import Above0, Count, CountFrom0, Name, Settings

BUNDLED_MODEL = "mini"
# of a model or a source; they are no paths, even where a folder is called so
RESERVED_NAMES = (BUNDLED_MODEL, "testbed", "hub")
# The paper searched {2, 3, 4, 5}e-5 and does not say what it chose; the first is Hugging Face's
# recipe for GLUE.
PAPER_RATES = LearningRates.alike(2e-5)


class TrainingConfig(Settings):
    """What decides a training beside its data, on own rows as in a run."""

    model: Annotated[
        Name, Field(description="mini (bundled), a hub id, or a folder with a masked LM")
    ] = BUNDLED_MODEL
    seed: Annotated[
        int,
        Field(
            ge=0,
            lt=2**32,
            description="of the new head, dropout, the order of the data and the masks",
        ),
    ] = 0
    epochs: Annotated[
        Above0,
        Field(description="passes over the training set in each stage; augmented doubles the set"),
    ] = 3.0
    batch_size: Annotated[
        Count | None,
        Field(description="examples per optimiser step (default: the paper's, 16 or 32)"),
    ] = None
    accumulation: Annotated[
        Count, Field(description="micro-batches of a step, to save memory; the loss stays the same")
    ] = 1
    learning_rate: Annotated[
        Above0 | None, Field(description="peak rate of the trunk (default: by method and model)")
    ] = None
    max_length: Annotated[Count, Field(description="tokens per training example")] = 128
    precision: Annotated[
        Literal["auto", "float32", "bf16", "fp16"],
        Field(description="auto: bf16 where there is, else fp16 on a GPU"),
    ] = "auto"
    settings: SerializeAsAny[Settings]  # of the method: an instance of its `Method.settings`

    @property
    def model_path(self) -> str | Path:
        return MINI_MODEL_DIR if self.model == BUNDLED_MODEL else self.model

    def resolved(self) -> Self:
        """The same with the precision that it has on this device."""
        if self.precision != "auto":
            return self
        from mtlib.contexts import precision_name

        return self.model_copy(update={"precision": precision_name()})


class OwnTraining(TrainingConfig):
    """What decides a training on own data beside its method."""

    batch_size: Annotated[Count, Field(description="rows per step")] = 16
    learning_rate: Annotated[
        Above0 | None, Field(description="peak rate (default: fine-tuning's, by model)")
    ] = None
    max_length: Annotated[
        Count | None, Field(description="tokens of a text that are read (default: 128)")
    ] = None
    class_weights: Annotated[
        Literal["balanced"] | None, Field(description="balanced: labels count alike")
    ] = None
    patience: Annotated[
        Count | None,
        Field(description="stop after so many evaluations without a better accuracy on dev"),
    ] = None


class RunConfig(TrainingConfig):
    """Everything that decides a run's numbers, as `configure` makes it.

    Every default that depends on other settings is filled in. "auto" alone is left, since the
    precision is the device's: `resolved` says which.
    """

    task: Annotated[str, Field(description="sentiment, nli or paraphrase")]
    method: Annotated[str, Field(description="a row of the paper's tables, or of ours")]
    source: Annotated[
        Name,
        Field(
            description="testbed, hub, or a folder of original releases or of "
            "`python -m mtlib testbed`"
        ),
    ] = "testbed"
    classifier_learning_rate: Annotated[
        Above0 | None, Field(description="of the classifier head (default: as the trunk's)")
    ] = None
    train_size: Annotated[
        Count | None,
        Field(description="training examples, drawn once for all seeds (default: all)"),
    ] = None
    redraw: Annotated[
        bool,
        Field(
            description="draw the training examples anew for each seed, so that intervals over "
            "seeds speak about other examples too"
        ),
    ] = False
    held_out: Annotated[
        CountFrom0,
        Field(
            description="training phrases kept out by whole sentence and scored, to choose "
            "settings on"
        ),
    ] = 0
    eval_max_length: Annotated[
        Count | None, Field(description="tokens per test example (default: as in training)")
    ] = None
    sets: Annotated[
        tuple[str, ...], Field(description="evaluation set, repeatable (default: all of the task)")
    ] = ()
    splits: Annotated[
        dict[str, str],
        Field(default_factory=dict, description="SET=OPTION where the paper leaves the split open"),
    ]

    @model_validator(mode="after")
    def _checked(self) -> Self:
        _check_sets(self)
        check_model(self.model)
        _check_source(self)
        _check_redraw(self)
        _check_held_out(self)
        _check_pairs(self)
        _check_bias(self)
        check_masking(self.method, self.settings)
        return self

    def values(self) -> dict[str, object]:
        """All settings side by side: those of every run, then those of the method."""
        values = dict(self)
        return values | dict(values.pop("settings"))

    @property
    def rates(self) -> LearningRates:
        """Its learning rates; the masked-LM head's is the trunk's where the method reads none."""
        mlm_head = getattr(self.settings, "mlm_head_learning_rate", None)
        return LearningRates(
            self.learning_rate, self.classifier_learning_rate, mlm_head or self.learning_rate
        )

    def public(self) -> dict:
        """For the record: no path of one machine, and None for what other methods read."""
        model = Path(self.model).absolute().name if Path(self.model).is_dir() else self.model
        values = dict.fromkeys(all_settings()) | self.values() | self.settings.recorded()
        return values | {
            "source": source_type(self.source),
            "model": model,
            "sets": list(self.sets),
        }


def configure(task: str, method: str, **values) -> RunConfig:
    """A run from settings given by name, those of the method among them.

    None stands for the default, as a name that is left out.

    Raises:
        UserError: a setting that the method does not read, or that nothing reads; a bad value.
    """
    fields = settings_of(method)
    for name, value in values.items():
        if name not in fields:
            check_not_given(method, name, value)
    given = {name: value for name, value in values.items() if value is not None}
    model = get_method(method).settings
    method_values = {name: given.pop(name) for name in model.model_fields if name in given}
    settings = model(**method_values)
    return _with_defaults(RunConfig(task=task, method=method, settings=settings, **given))


# --- which settings count ---


def settings_of(method: str) -> dict[str, FieldInfo]:
    """The settings of a method's runs, by name: those of every run, then those of the method."""
    return _settings_of_every_run() | get_method(method).settings.model_fields


def effective_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Those entries of a configuration that its run reads.

    Left out is what the method has no setting for, and what its other settings make ineffective.

    Args:
        config: settings by name, among them `method`: those of a record, of a line of a sweep, or
            of a user. None stands for the default.
    """
    model = get_method(config["method"]).settings
    given = {name: config[name] for name in model.model_fields if config.get(name) is not None}
    ignored = model.model_construct(**given).ignored()
    names = settings_of(config["method"]).keys() - ignored.keys()
    return {name: value for name, value in config.items() if name in names}


def changed_settings(config: Mapping[str, object]) -> dict[str, object]:
    """The effective settings of the method that differ from their defaults, but no learning rates.

    Args:
        config: as a record has it. One of a method that is not known has none.
    """
    if config["method"] not in METHODS:
        return {}
    fields = METHODS[config["method"]].settings.model_fields
    defaults = _derived_defaults(config)
    changed = {}
    for name, value in effective_settings(config).items():
        if name not in fields or name.endswith("learning_rate"):
            continue
        if value not in (None, fields[name].default, defaults.get(name)):
            changed[name] = value
    return changed


def all_settings() -> dict[str, FieldInfo]:
    """Every setting of a run or of any method, by name: those of a run first."""
    settings = _settings_of_every_run()
    for method in METHODS.values():
        for name, field in method.settings.model_fields.items():
            settings.setdefault(name, field)
    return settings


def _settings_of_every_run() -> dict[str, FieldInfo]:
    fields = dict(RunConfig.model_fields)
    del fields["settings"]
    first = {name: fields[name] for name in ("task", "method", "source")}
    return first | fields


def check_not_given(method: str, name: str, value: object) -> None:
    """Raise `UserError` for a setting that the method does not have, unless it has no value."""
    if name not in all_settings():
        raise UserError(f"there is no setting {name!r}; {one_of(name, all_settings())}")
    if value is not None:
        raise UserError(
            f"{name} is {value!r}, but {method} does not read it; leave it out, or take a method "
            f"that does: {', '.join(readers(name))}."
        )


# --- defaults that depend on other settings ---


def _with_defaults(config: RunConfig) -> RunConfig:
    """The run with everything filled in that is None, or empty, by task, method and model."""
    defaults = _derived_defaults(dict(config))
    settings = _filled(config.settings, defaults)
    if settings.reads("bias"):
        bias = bias_for(config.task, settings.bias)
        settings = settings.model_copy(update={"bias": bias})
    sets = config.sets or get_task(config.task).evaluation_sets(config.source)
    sets = tuple(dict.fromkeys(sets))  # each is scored once
    splits = _chosen_splits(sets, config.splits)
    changes = {"settings": settings, "sets": sets, "splits": splits}
    return _filled(config, defaults).model_copy(update=changes)


def _derived_defaults(config: Mapping) -> dict[str, object]:
    """The defaults of a run that depend on its task, its method, its model or other settings."""
    task = get_task(config["task"])
    rates = default_rates(config["method"], config["model"])
    learning_rate = config.get("learning_rate")
    return {
        "alpha": task.alpha,
        "batch_size": task.batch_size,
        "learning_rate": rates.trunk,
        "classifier_learning_rate": learning_rate or rates.classifier,
        "mlm_head_learning_rate": learning_rate or rates.mlm_head,
        "eval_max_length": config.get("max_length"),
        "bias": bias_for(task.name, "by_task"),
    }


def _filled(settings: Settings, defaults: Mapping[str, object]) -> Settings:
    """The settings with defaults for those that are None."""
    missing = {name for name, value in settings if value is None} & defaults.keys()
    return settings.model_copy(update={name: defaults[name] for name in missing})


def _chosen_splits(sets: Iterable[str], splits: Mapping[str, str]) -> dict[str, str]:
    """The split of each set that has several: the given one, else the first.

    Raises:
        UserError: a split is given that would count nowhere.
    """
    chosen = {}
    for name in sets:
        several = list(SETS[name].split_options)
        if len(several) > 1:
            chosen[name] = splits.get(name, several[0])
    for name in splits:
        if name not in chosen:
            raise UserError(
                f"splits has {name!r}, which is not scored or has one split alone; leave it out."
            )
    return chosen


def default_rates(method: str, model: str) -> LearningRates:
    """The method's on the bundled model, by name or path, the paper's on any other."""
    is_bundled = model == BUNDLED_MODEL or Path(model).resolve() == MINI_MODEL_DIR.resolve()
    return get_method(method).rates if is_bundled else PAPER_RATES


# --- what no run can have, whoever asks for it ---


def _check_sets(config: RunConfig) -> None:
    """Raise `UserError` for a set, or a split of one, that is no evaluation set of the task."""
    known = get_task(config.task).possible_sets(config.source)
    for name in (*config.sets, *config.splits):
        if name not in known:
            source = source_type(config.source)
            raise UserError(
                f"{name!r} is no evaluation set of {config.task} from {source!r}; "
                f"{one_of(name, known)}"
            )


def check_model(model: str) -> None:
    """Raise `UserError` for a folder that does not exist; any other name may be on the hub."""
    if is_missing_folder(model):
        raise UserError(
            f"model is {model!r}, which does not exist; expected mini, a hub id such as "
            "bert-base-uncased, or a folder with a masked LM."
        )


def _check_source(config: RunConfig) -> None:
    """What knows the testbed's grammar needs a testbed."""
    if is_testbed(config.source):
        return
    for name in ("masking", "bias"):
        value = getattr(config.settings, name, None)
        if value in (*TESTBED_ONLY, "shortcut"):
            raise UserError(
                f"{name} is {value!r}, which knows the testbed's grammar, and source "
                f"{config.source!r} is no testbed; take source testbed, write one with "
                f"`python -m mtlib testbed`, or take another {name}."
            )


def _check_redraw(config: RunConfig) -> None:
    """Raise `UserError` where all training examples are used, so that none are drawn."""
    if config.redraw and config.train_size is None:
        raise UserError(
            "redraw is True, but train_size is not given, so nothing is drawn; give train_size."
        )


def _check_held_out(config: RunConfig) -> None:
    """Raise `UserError` where whole sentences are to be kept out of pairs of texts."""
    train = SETS[get_task(config.task).real.train]
    if config.held_out and train.columns.text_pair:
        raise UserError(
            f"held_out is {config.held_out}, but {config.task} has pairs of texts, and training "
            "examples are kept out by the one sentence that they are of; leave it out."
        )


def _check_pairs(config: RunConfig) -> None:
    """Raise `UserError` for a policy that learns from single texts, where the task has pairs.

    On the testbed it learns from the task's own rows.
    """
    train = SETS[get_task(config.task).train_set(config.source)]
    if train.columns.text_pair and not is_testbed(config.source):
        check_for_pairs(getattr(config.settings, "masking", None))


def _check_bias(config: RunConfig) -> None:
    """Raise `UserError` for a bias model that does not fit the task."""
    bias = getattr(config.settings, "bias", None)
    if bias is None:
        return
    bias = bias_for(config.task, bias)
    fitting = BIAS_OF_TASK[config.task]
    if bias not in fitting:
        raise UserError(f"bias is {bias!r}; for {config.task} {one_of(bias, fitting)}")


def check_masking(method: str, settings: Settings) -> None:
    """A policy that asks the classifier in training needs masks that are drawn in training."""
    masking = getattr(settings, "masking", None)
    if masking not in ATTRIBUTION:
        return
    if not get_method(method).refills_in_training:
        able = " or ".join(name for name, other in METHODS.items() if other.refills_in_training)
        raise UserError(
            f"masking is {masking!r}, which asks the classifier in training what it leans on; in "
            f"{method} masks are drawn while the classifier is still new. Take {able}, "
            "or another policy."
        )
    if getattr(settings, "barred", False):
        raise UserError(
            f"masking is {masking!r}, which asks the classifier in training what it leans on, and "
            "barred asks which words that is before it has learned any; give one of them."
        )
