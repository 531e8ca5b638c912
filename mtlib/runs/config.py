"""What decides a run's numbers: `RunConfig`, its defaults and its checks.

Nothing heavy is imported here, so that the command line can make its options from these fields and still answer
`--help` at once.
"""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

from mtlib.errors import UserError
from mtlib.methods import METHODS, get_method, readers, settings_of_any_method
from mtlib.paths import MINI_MODEL_DIR
from mtlib.settings import BIAS_OF_TASK, TESTBED_ONLY, WITHOUT_BIAS, LearningRates

BUNDLED_MODEL = "mini"
NAMES = (BUNDLED_MODEL, "testbed", "hub")  # of a model or a source; no paths, even where such a folder lies about
# The paper searched {2, 3, 4, 5}e-5 and does not say what it chose; the first is Hugging Face's recipe for GLUE.
PAPER_RATES = LearningRates(2e-5, 2e-5, 2e-5)


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers. `None` stands for the default that the words beside it name.

    Made by `configure`, which sorts the settings of the method from those that every run has.
    """

    task: Annotated[str, "sentiment, nli or paraphrase"]
    method: Annotated[str, "a row of the paper's tables, or of ours"]
    source: Annotated[str, "testbed, hub, or a folder of original releases or of `mtlib testbed`"] = "testbed"
    model: Annotated[str, "mini (bundled), a hub id, or a folder with a masked LM"] = BUNDLED_MODEL
    seed: Annotated[int, "of the new head, dropout, the order of the data and the masks"] = 0
    epochs: Annotated[float, "passes over the training set in each stage; augmented doubles the set"] = 3.0
    batch_size: Annotated[int | None, "examples per optimiser step (default: the paper's, 16 or 32)"] = None
    accumulation: Annotated[int, "slices a batch is cut into to save memory; losses and masks stay the same"] = 1
    learning_rate: Annotated[float | None, "peak rate of the trunk (default: by method and model)"] = None
    classifier_learning_rate: Annotated[float | None, "of the classifier head (default: as above)"] = None
    warmup: Annotated[float, "share of the steps with a rising rate, below 1"] = 0.0
    weight_decay: Annotated[float, "of AdamW"] = 0.0
    train_size: Annotated[int | None, "training examples, drawn once for all seeds (default: all)"] = None
    max_length: Annotated[int, "tokens per training example"] = 128
    eval_max_length: Annotated[int | None, "tokens per test example (default: as in training)"] = None
    sets: Annotated[tuple[str, ...], "evaluation set, repeatable (default: all of the task)"] = ()
    splits: Annotated[dict[str, str], "SET=OPTION where the paper leaves the split open"] = field(default_factory=dict)
    hans_rule: Annotated[Literal["max", "sum"], "how three labels fold into two"] = "max"
    precision: Annotated[Literal["auto", "float32", "bf16"], "auto: bf16 where the device computes in it"] = "auto"
    gradient_diagnostics_steps: Annotated[int, "log both losses' gradients this often; 0: never"] = 0
    settings: object = None  # of the method: an instance of its `Method.settings`

    def __post_init__(self):
        method = get_method(self.method)
        if self.settings is None:
            object.__setattr__(self, "settings", method.settings())
        if type(self.settings) is not method.settings:
            raise UserError(
                f"settings is a {type(self.settings).__name__}; {self.method} reads {method.settings.__name__}."
            )
        _check(self)

    @property
    def model_path(self) -> str | Path:
        return MINI_MODEL_DIR if self.model == BUNDLED_MODEL else self.model

    @property
    def evaluation_sets(self) -> tuple[str, ...]:
        from mtlib.data.tasks import get_task

        return self.sets or get_task(self.task).evaluation_sets(self.source)

    @property
    def reads_bias(self) -> bool:
        """Whether the method takes a bias model, or is combined with one that does."""
        reads = get_method(self.method).reads
        return "bias" in reads and getattr(self.settings, "classification", "") not in WITHOUT_BIAS

    def values(self) -> dict[str, object]:
        """All settings side by side: those of every run, then those of the method."""
        return {entry.name: getattr(self, entry.name) for entry in run_fields()} | {
            name: getattr(self.settings, name) for name in get_method(self.method).reads
        }

    def changed(self, **changes) -> "RunConfig":
        """The same run but for these settings, of the run or of its method."""
        return configure(**(self.values() | changes))

    def resolved(self) -> "RunConfig":
        """The same run with every default filled in."""
        from mtlib.data.sources import split_options
        from mtlib.data.tasks import get_task
        from mtlib.trainer import precision

        task, rates = get_task(self.task), default_rates(self.method, self.model)
        # 3 and 3.0 are one run, with one record
        typed = {name: _NUMBERS[kind][0](value) for name, kind, value in _numbers(self) if value is not None}
        config = replace(self, **{name: value for name, value in typed.items() if name in _run_field_names()})
        method = {name: value for name, value in typed.items() if name not in _run_field_names()}
        if "alpha" in get_method(self.method).reads and self.settings.alpha is None:
            method["alpha"] = task.alpha
        if "mlm_head_learning_rate" in get_method(self.method).reads and self.settings.mlm_head_learning_rate is None:
            method["mlm_head_learning_rate"] = config.learning_rate or rates.mlm_head
        if self.reads_bias and self.settings.bias == "by_task":
            method["bias"] = BIAS_OF_TASK[self.task][0]
        sets, kind_of_number = config.evaluation_sets, config.precision
        if kind_of_number == "auto":
            kind_of_number = "bf16" if precision()["bf16"] else "float32"
        return replace(
            config,
            settings=replace(config.settings, **method),
            batch_size=config.batch_size or task.batch_size,
            learning_rate=config.learning_rate or rates.trunk,
            classifier_learning_rate=config.classifier_learning_rate or config.learning_rate or rates.classifier,
            eval_max_length=config.eval_max_length or config.max_length,
            sets=sets,
            splits={name: config.splits.get(name, split_options(name)[0]) for name in sets
                    if len(split_options(name)) > 1},
            precision=kind_of_number,
        )  # fmt: skip

    @property
    def rates(self) -> LearningRates:
        """The learning rates of a resolved run; the masked-LM head's is the trunk's where the method reads none."""
        mlm_head = getattr(self.settings, "mlm_head_learning_rate", None)
        return LearningRates(self.learning_rate, self.classifier_learning_rate, mlm_head or self.learning_rate)

    def public(self) -> dict:
        """For the record: no path of one machine, and None for what other methods read."""
        from mtlib.data.sources import source_kind

        model = Path(self.model).absolute().name if Path(self.model).is_dir() else self.model
        values = dict.fromkeys(settings_of_any_method()) | self.values() | dict(get_method(self.method).fixed)
        if values["fill"] != "top_k":
            values["top_k"] = None
        if values["treebank"] is not None:
            from mtlib.data.treebank import describe_treebank

            values["treebank"] = describe_treebank(values["treebank"])
        return values | {"source": source_kind(self.source), "model": model, "sets": list(self.sets)}


def configure(task: str, method: str, **values) -> RunConfig:
    """A run from settings given by name, those of the method among them.

    Raises:
        UserError: a setting that the method does not read, or that nothing reads; a bad value.
    """
    reads, of_run = get_method(method).reads, _run_field_names()
    settings = {}
    for name, value in list(values.items()):
        if name in of_run:
            continue
        values.pop(name)
        if name not in settings_of_any_method():
            raise UserError(f"no method reads {name!r}; known settings are {', '.join(setting_types())}.")
        if name in reads:
            settings[name] = value
        elif value is not None and value != get_method(method).fixed.get(name):
            raise UserError(
                f"{name} is {value!r}, but {method} does not read it; leave it out, or take a method that does: "
                f"{', '.join(readers(name))}."
            )
    if isinstance(values.get("sets"), list):  # as JSON has it
        values["sets"] = tuple(values["sets"])
    return RunConfig(task=task, method=method, settings=get_method(method).settings(**settings), **values)


def read_by(method: str, values: Mapping[str, object]) -> dict[str, object]:
    """`values` less the settings that `method` does not read: a grid over several methods gives them to all."""
    reads = METHODS[method].reads if method in METHODS else settings_of_any_method()
    return {name: value for name, value in values.items() if name in _run_field_names() or name in reads}


def setting_types() -> dict[str, object]:
    """The type of every setting of a run or of any method, by name."""
    return {name: hint for name, (hint, _, _) in settings_with_help().items()}


@cache
def _described(cls: type) -> dict[str, tuple[object, str, object]]:
    hints = get_type_hints(cls, include_extras=True)
    return {
        entry.name: (*get_args(hints[entry.name])[:2], entry.default)
        for entry in fields(cls)
        if get_origin(hints[entry.name]) is Annotated
    }


def settings_with_help() -> dict[str, tuple[object, str, object]]:
    """Type, help and default of every setting, by name: those of a run first."""
    described = dict(_described(RunConfig))
    for method in METHODS.values():
        for name, entry in _described(method.settings).items():
            described.setdefault(name, entry)
    return described


def command_line(config: RunConfig) -> list[str]:
    """The options of `mtlib run` that give this configuration: those that are not the defaults."""
    words, described = [], _described(RunConfig) | _described(type(config.settings))
    for name, value in config.values().items():
        default = described[name][2]
        if value is None or value == default or value in ((), {}):
            continue
        match name:
            case "shared":
                words.append("--separate")
            case "sets":
                words += [word for set_name in value for word in ("--sets", set_name)]
            case "splits":
                words += [word for pair in value.items() for word in ("--split", "=".join(pair))]
            case _ if value is True:
                words.append(f"--{name.replace('_', '-')}")
            case _:
                words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def default_rates(method: str, model: str) -> LearningRates:
    return get_method(method).rates if model == BUNDLED_MODEL else PAPER_RATES


def run_fields() -> list:
    """The fields of `RunConfig` but for the method's settings."""
    return [entry for entry in fields(RunConfig) if entry.name != "settings"]


@cache
def _run_field_names() -> frozenset[str]:
    return frozenset(entry.name for entry in run_fields())


# --- checks ---

# what a number may be given as, and in words
_NUMBERS = {
    int: (int, numbers.Integral, "a whole number"),
    float: (float, numbers.Real, "a number"),
    bool: (bool, bool, "true or false"),
}
_SHARES = ("alpha", "mask_rate", "warmup", "cut_ratio")
_POSITIVE = ("learning_rate", "classifier_learning_rate", "mlm_head_learning_rate", "epochs", "batch_size",
             "accumulation", "train_size", "max_length", "eval_max_length", "top_k", "pretraining_epochs",
             "pretraining_steps", "bias_folds", "bias_learning_rate")  # fmt: skip
_NOT_NEGATIVE = ("weight_decay", "gradient_diagnostics_steps", "seed", "bias_weight", "focus", "entropy_weight",
                 "cut_weight", "divergence_weight")  # fmt: skip


def _numbers(config: RunConfig) -> list[tuple[str, type, object]]:
    """Name, type and value of the settings that are numbers or flags."""
    entries = []
    for name, value in config.values().items():
        hint = setting_types()[name]
        entries += [(name, kind, value) for kind in _NUMBERS if hint is kind or kind in get_args(hint)]
    return entries


def _check(config: RunConfig) -> None:
    from mtlib.data.tasks import get_task

    get_task(config.task)
    values = config.values()
    for name, kind, value in _numbers(config):
        _, accepted, text = _NUMBERS[kind]
        optional = type(None) in get_args(setting_types()[name])
        if (value is None and not optional) or (value is not None and not isinstance(value, accepted)) or (
            isinstance(value, bool) and kind is not bool
        ):  # fmt: skip
            raise UserError(f"{name} is {value!r}; expected {text}.")
    for name, value in values.items():
        choices = get_args(setting_types()[name])
        if get_origin(setting_types()[name]) is Literal and value not in choices:
            raise UserError(f"{name} is {value!r}; expected one of {', '.join(choices)}.")
        if value is None:
            continue
        if name in _SHARES and not 0 <= value <= 1:
            raise UserError(f"{name} is {value!r}; expected a number from 0 to 1 (5 % is 0.05).")
        if name in _POSITIVE and not 0 < value < math.inf:
            raise UserError(f"{name} is {value!r}; expected a number above 0.")
        if name in _NOT_NEGATIVE and not 0 <= value < (2**32 if name == "seed" else math.inf):
            most = " and less than 2**32" if name == "seed" else ""
            raise UserError(f"{name} is {value!r}; expected 0 or more{most}.")
    if config.warmup == 1:  # transformers would take it for a number of steps
        raise UserError("warmup is 1; expected a share of the steps below 1, for example 0.06.")
    if values.get("update") == "balanced" and not values["shared"]:
        raise UserError("update is 'balanced', which weighs two gradients on one trunk; leave `separate` out.")
    _check_bias(config)
    _check_sets(config)


def _check_bias(config: RunConfig) -> None:
    from mtlib.data.sources import is_testbed

    bias = config.values().get("bias", "by_task")
    if bias == "by_task":
        return
    if not config.reads_bias:
        raise UserError(
            f"bias is {bias!r}, but mask_tuning with classification={config.settings.classification!r} takes no bias "
            "model; leave it out."
        )
    if bias not in BIAS_OF_TASK[config.task]:
        raise UserError(f"bias is {bias!r}; for {config.task} it is one of {', '.join(BIAS_OF_TASK[config.task])}.")
    if bias == "shortcut" and not is_testbed(config.source):
        raise UserError("bias is 'shortcut', which is planted in the testbed alone; take another bias model.")


def _check_sets(config: RunConfig) -> None:
    from mtlib.data.sources import is_testbed, source_kind, split_options
    from mtlib.data.tasks import get_task

    if len(set(config.sets)) < len(config.sets):
        raise UserError(f"sets names a set twice: {', '.join(config.sets)}.")
    masking = config.values().get("masking")
    if masking in TESTBED_ONLY and not is_testbed(config.source):
        raise UserError(
            f"masking is {masking!r}, which knows the testbed's grammar and has no meaning for other data (source "
            f"{source_kind(config.source)!r}); take source testbed, or another policy."
        )
    known = get_task(config.task).evaluation_sets(config.source)
    for name in (*config.sets, *config.splits):
        if name not in known:
            raise UserError(
                f"{name!r} is no evaluation set of {config.task} from {source_kind(config.source)!r}; expected "
                f"{', '.join(known)}."
            )
    for name, option in config.splits.items():
        if option not in split_options(name):
            raise UserError(f"{name} has no split {option!r}; expected one of {', '.join(split_options(name))}.")
