"""What decides a run's numbers: `RunConfig` and its defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SerializeAsAny, model_validator
from pydantic.fields import FieldInfo

from mtlib.data.identity import name_with_hash, name_with_version
from mtlib.data.registry import SETS
from mtlib.data.sources import is_testbed, source_kind
from mtlib.data.tasks import get_task
from mtlib.errors import UserError, one_of
from mtlib.method import LearningRates
from mtlib.methods import METHODS, get_method, readers
from mtlib.methods.settings import BIAS_OF_TASK, bias_for
from mtlib.paths import MINI_MODEL_DIR, is_missing_folder
from mtlib.policies import ATTRIBUTION, TESTBED_ONLY
from mtlib.settings import Above0, Count, Name, Settings, Steps

BUNDLED_MODEL = "mini"
NAMES = (
    BUNDLED_MODEL,
    "testbed",
    "hub",
)  # of a model or a source; no paths, even where such a folder lies about
# The paper searched {2, 3, 4, 5}e-5 and does not say what it chose; the first is Hugging Face's recipe for GLUE.
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
        Count, Field(description="slices of a batch, to save memory; the loss stays the same")
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
    """Everything that decides a run's numbers, as `configure` makes it: every default that depends on others is in it.

    "auto" alone is left, since the precision is the device's: `resolved` says which.
    """

    task: Annotated[str, Field(description="sentiment, nli or paraphrase")]
    method: Annotated[str, Field(description="a row of the paper's tables, or of ours")]
    source: Annotated[
        Name,
        Field(description="testbed, hub, or a folder of original releases or of `mtlib testbed`"),
    ] = "testbed"
    classifier_learning_rate: Annotated[
        Above0 | None, Field(description="of the classifier head (default: as the trunk's)")
    ] = None
    train_size: Annotated[
        Count | None,
        Field(description="training examples, drawn once for all seeds (default: all)"),
    ] = None
    held_out: Annotated[
        Steps,
        Field(
            description="training phrases kept out by whole sentence and scored, to choose settings on"
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
    hans_rule: Annotated[
        Literal["max", "sum"], Field(description="how three labels fold into two")
    ] = "max"

    @model_validator(mode="after")
    def _checked(self) -> Self:
        _check(self)
        return self

    def values(self) -> dict[str, object]:
        """All settings side by side: those of every run, then those of the method."""
        own = dict(self)
        return own | dict(own.pop("settings"))

    @property
    def rates(self) -> LearningRates:
        """Its learning rates; the masked-LM head's is the trunk's where the method reads none."""
        mlm_head = getattr(self.settings, "mlm_head_learning_rate", None)
        return LearningRates(
            self.learning_rate, self.classifier_learning_rate, mlm_head or self.learning_rate
        )

    def public(self) -> dict:
        """For the record: no path of one machine, and None for what other methods read."""
        values = dict.fromkeys(all_settings()) | self.values()
        for name in {"top_k", "spacy_pipeline"} & self.settings.unread().keys():
            values[name] = None
        if values["words"]:
            values |= {"words": list(values["words"]), "masking": None, "mask_rate": None}
        else:
            values["words"] = None
        if values["spacy_pipeline"] is not None:
            values["spacy_pipeline"] = name_with_version(values["spacy_pipeline"])
        if (folder := values["treebank"]) is not None:
            from mtlib.methods.ipt import files_of

            values["treebank"] = name_with_hash(folder, files_of(folder, "train"))
        model = Path(self.model).absolute().name if Path(self.model).is_dir() else self.model
        return values | {
            "source": source_kind(self.source),
            "model": model,
            "sets": list(self.sets),
        }


def configure(task: str, method: str, **values) -> RunConfig:
    """A run from settings given by name, those of the method among them; None, or none, stands for the default.

    Raises:
        UserError: a setting that the method does not read, or that nothing reads; a bad value.
    """
    reads = get_method(method).reads
    for name, value in list(values.items()):
        if name not in all_settings():
            raise UserError(f"there is no setting {name!r}; {one_of(name, all_settings())}")
        if name in RunConfig.model_fields or name in reads:
            continue
        if values.pop(name) is not None:
            raise UserError(
                f"{name} is {value!r}, but {method} does not read it; leave it out, or take a method that does: "
                f"{', '.join(readers(name))}."
            )
    settings = get_method(method).settings(
        **{name: values.pop(name) for name in reads if name in values}
    )
    return _with_defaults(RunConfig(task=task, method=method, settings=settings, **values))


def read_by(method: str, values: Mapping[str, object]) -> dict[str, object]:
    """`values` less what the method, or one of its other settings, leaves unread: a grid gives all to every method."""
    model = get_method(method).settings
    own = {name: values[name] for name in model.model_fields if name in values}
    reads = {*RunConfig.model_fields, *own} - model.model_construct(**own).unread().keys()
    return {name: value for name, value in values.items() if name in reads}


def all_settings() -> dict[str, FieldInfo]:
    """Every setting of a run or of any method, by name: those of a run first."""
    first = dict.fromkeys(("task", "method", "source"))
    settings = {
        name: field
        for name, field in (first | RunConfig.model_fields).items()
        if name != "settings"
    }
    for method in METHODS.values():
        settings |= {
            name: field
            for name, field in method.settings.model_fields.items()
            if name not in settings
        }
    return settings


def _with_defaults(config: RunConfig) -> RunConfig:
    """What is None, or empty, filled in by task, method and model."""
    task, rates, own = (
        get_task(config.task),
        default_rates(config.method, config.model),
        config.settings,
    )
    defaults = {
        "alpha": task.alpha,
        "batch_size": task.batch_size,
        "learning_rate": rates.trunk,
        "classifier_learning_rate": config.learning_rate or rates.classifier,
        "mlm_head_learning_rate": config.learning_rate or rates.mlm_head,
        "eval_max_length": config.max_length,
    }

    def filled(model: Settings, **changes) -> Settings:
        missing = {name for name, value in model if value is None} & defaults.keys()
        return model.model_copy(update={name: defaults[name] for name in missing} | changes)

    sets = config.sets or task.evaluation_sets(config.source)
    options = {name: [*SETS[name].split_options] for name in sets}
    splits = {
        name: config.splits.get(name, several[0])
        for name, several in options.items()
        if len(several) > 1
    }
    reads_bias = "bias" in type(own).model_fields and "bias" not in own.unread()
    own = filled(own, bias=bias_for(config.task, own.bias)) if reads_bias else filled(own)
    return filled(config, settings=own, sets=sets, splits=splits)


def default_rates(method: str, model: str) -> LearningRates:
    return get_method(method).rates if model == BUNDLED_MODEL else PAPER_RATES


# --- what no run can have, whoever asks for it ---


def _check(config: RunConfig) -> None:
    """Raise `UserError` for what no run can have, before anything is read."""
    known = get_task(config.task).possible_sets(config.source)
    for name in (*config.sets, *config.splits):
        if name not in known:
            source = source_kind(config.source)
            raise UserError(
                f"{name!r} is no evaluation set of {config.task} from {source!r}; {one_of(name, known)}"
            )
    if is_missing_folder(config.model):
        raise UserError(
            f"model is {config.model!r}, which does not exist; expected mini, a hub id such as bert-base-uncased, "
            "or a folder with a masked LM."
        )
    values = config.values()
    masking, bias = values.get("masking"), values.get("bias")
    for name in () if is_testbed(config.source) else ("masking", "bias"):
        if values.get(name) in (*TESTBED_ONLY, "shortcut"):
            raise UserError(
                f"{name} is {values[name]!r}, which knows the testbed's grammar, and source {config.source!r} is no "
                f"testbed; take source testbed, write one with `python -m mtlib testbed`, or take another {name}."
            )
    if bias is not None and (named := bias_for(config.task, bias)) not in (
        fitting := BIAS_OF_TASK[config.task]
    ):
        raise UserError(f"bias is {named!r}; for {config.task} {one_of(named, fitting)}")
    refills = get_method(config.method).refills_in_training and not values.get("fixed_masks")
    if masking in ATTRIBUTION and not refills:
        able = " or ".join(name for name, other in METHODS.items() if other.refills_in_training)
        raise UserError(
            f"masking is {masking!r}, which asks the classifier in training what it leans on; in {config.method} masks "
            f"are drawn while the classifier is still new. Take {able}, without fixed masks, or another policy."
        )
