"""What decides a run's numbers: `RunConfig` and its defaults.

Nothing heavy is imported here, so that the command line can make its options from these fields and still answer
`--help` at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from mtlib.data.identity import name_with_hash, name_with_version
from mtlib.data.registry import split_options
from mtlib.data.source_kinds import source_kind
from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.methods import METHODS, get_method, readers, refilling_in_training, settings_of_any_method, unread_settings
from mtlib.paths import MINI_MODEL_DIR
from mtlib.runs.checks import check
from mtlib.settings import (
    ABOVE_0,
    COUNT,
    FROM_0,
    STEPS,
    LearningRates,
    Range,
    Setting,
    bias_for,
    settings_of,
)

BUNDLED_MODEL = "mini"
NAMES = (BUNDLED_MODEL, "testbed", "hub")  # of a model or a source; no paths, even where such a folder lies about
# The paper searched {2, 3, 4, 5}e-5 and does not say what it chose; the first is Hugging Face's recipe for GLUE.
PAPER_RATES = LearningRates(2e-5, 2e-5, 2e-5)
_SEED = Range("0 or more and less than 2**32", lambda value: 0 <= value < 2**32)
# transformers would take 1 for a number of steps
_WARMUP = Range("a share of the steps below 1, for example 0.06", lambda value: 0 <= value < 1)


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers. `None` stands for the default that the words beside it name.

    Made by `configure`, which sorts the settings of the method from those that every run has.
    """

    task: Annotated[str, "sentiment, nli or paraphrase"]
    method: Annotated[str, "a row of the paper's tables, or of ours"]
    source: Annotated[str, "testbed, hub, or a folder of original releases or of `mtlib testbed`"] = "testbed"
    model: Annotated[str, "mini (bundled), a hub id, or a folder with a masked LM"] = BUNDLED_MODEL
    seed: Annotated[int, "of the new head, dropout, the order of the data and the masks", _SEED] = 0
    epochs: Annotated[float, "passes over the training set in each stage; augmented doubles the set", ABOVE_0] = 3.0
    batch_size: Annotated[int | None, "examples per optimiser step (default: the paper's, 16 or 32)", COUNT] = None
    accumulation: Annotated[int, "slices of a batch, to save memory; losses and masks stay the same", COUNT] = 1
    learning_rate: Annotated[float | None, "peak rate of the trunk (default: by method and model)", ABOVE_0] = None
    classifier_learning_rate: Annotated[float | None, "of the classifier head (default: as above)", ABOVE_0] = None
    warmup: Annotated[float, "share of the steps with a rising rate, below 1", _WARMUP] = 0.0
    weight_decay: Annotated[float, "of AdamW", FROM_0] = 0.0
    train_size: Annotated[int | None, "training examples, drawn once for all seeds (default: all)", COUNT] = None
    held_out: Annotated[int, "training phrases kept out by whole sentence and scored, to choose settings on", STEPS] = 0
    max_length: Annotated[int, "tokens per training example", COUNT] = 128
    eval_max_length: Annotated[int | None, "tokens per test example (default: as in training)", COUNT] = None
    sets: Annotated[tuple[str, ...], "evaluation set, repeatable (default: all of the task)"] = ()
    splits: Annotated[dict[str, str], "SET=OPTION where the paper leaves the split open"] = field(default_factory=dict)
    hans_rule: Annotated[Literal["max", "sum"], "how three labels fold into two"] = "max"
    precision: Annotated[Literal["auto", "float32", "bf16"], "auto: bf16 where the device computes in it"] = "auto"
    gradient_diagnostics_steps: Annotated[int, "log both losses' gradients this often; 0: never", STEPS] = 0
    settings: object = None  # of the method: an instance of its `Method.settings`

    def __post_init__(self):
        method = get_method(self.method)
        if self.settings is None:
            object.__setattr__(self, "settings", method.settings())
        if type(self.settings) is not method.settings:
            raise UserError(
                f"settings is a {type(self.settings).__name__}; {self.method} reads {method.settings.__name__}."
            )
        check(self)

    @property
    def model_path(self) -> str | Path:
        return MINI_MODEL_DIR if self.model == BUNDLED_MODEL else self.model

    @property
    def evaluation_sets(self) -> tuple[str, ...]:
        return self.sets or get_task(self.task).evaluation_sets(self.source)

    def values(self) -> dict[str, object]:
        """All settings side by side: those of every run, then those of the method."""
        return {name: getattr(self, name) for name in settings_of(RunConfig)} | {
            name: getattr(self.settings, name) for name in get_method(self.method).reads
        }

    @property
    def described(self) -> dict[str, Setting]:
        """What the fields of the run and of its method's settings say about these values."""
        return settings_of(RunConfig) | settings_of(type(self.settings))

    def changed(self, **changes) -> "RunConfig":
        """The same run but for these settings, of the run or of its method."""
        return configure(**(self.values() | changes))

    def resolved(self) -> "RunConfig":
        """The same run with every default filled in."""
        from mtlib.contexts import precision  # loads torch

        values, task, rates = self.values(), get_task(self.task), default_rates(self.method, self.model)
        defaults = {
            "alpha": task.alpha,
            "batch_size": task.batch_size,
            "learning_rate": rates.trunk,
            "classifier_learning_rate": self.learning_rate or rates.classifier,
            "mlm_head_learning_rate": self.learning_rate or rates.mlm_head,
            "teacher_learning_rate": self._teacher_rate(),
            "eval_max_length": self.max_length,
        }
        for name, value in values.items():
            if value is None:
                values[name] = defaults.get(name)
            for number in (int, float):  # 3 and 3.0 are one run, with one record
                if number in self.described[name].kinds and values[name] is not None:
                    values[name] = number(values[name])
        if "bias" in read_by(self.method, values):
            values["bias"] = bias_for(self.task, values["bias"])
        if self.precision == "auto":
            values["precision"] = "bf16" if precision()["bf16"] else "float32"
        values["sets"] = self.evaluation_sets
        options = {name: split_options(name) for name in values["sets"]}
        values["splits"] = {
            name: self.splits.get(name, several[0]) for name, several in options.items() if len(several) > 1
        }
        return configure(**values)

    def _teacher_rate(self) -> float | None:
        """A teacher is fine-tuned, at fine-tuning's default rate. None: at the run's rates.

        It is so where rates were given, or where fine-tuning's are the method's own: such runs keep their identity.
        """
        own, fine_tuning = (default_rates(method, self.model) for method in (self.method, "fine_tuning"))
        given = self.learning_rate is not None or self.classifier_learning_rate is not None
        if given or own == fine_tuning or "teacher_learning_rate" not in read_by(self.method, self.values()):
            return None
        return fine_tuning.trunk

    @property
    def rates(self) -> LearningRates:
        """The learning rates of a resolved run; the masked-LM head's is the trunk's where the method reads none."""
        mlm_head = getattr(self.settings, "mlm_head_learning_rate", None)
        return LearningRates(self.learning_rate, self.classifier_learning_rate, mlm_head or self.learning_rate)

    def public(self) -> dict:
        """For the record: no path of one machine, and None for what other methods read."""
        model = Path(self.model).absolute().name if Path(self.model).is_dir() else self.model
        values = dict.fromkeys(settings_of_any_method()) | self.values() | dict(get_method(self.method).fixed)
        if values["fill"] != "top_k":
            values["top_k"] = None
        values["spacy_pipeline"] = (
            name_with_version(values["spacy_pipeline"]) if values["masking"] == "salient_spans" else None
        )
        if values["treebank"] is not None:
            from mtlib.methods.treebank import describe_treebank  # loads torch

            values["treebank"] = describe_treebank(values["treebank"])
        if values["bias_vectors"] is not None:
            values["bias_vectors"] = name_with_hash(values["bias_vectors"], [Path(values["bias_vectors"])])
        return values | {"source": source_kind(self.source), "model": model, "sets": list(self.sets)}


def configure(task: str, method: str, **values) -> RunConfig:
    """A run from settings given by name, those of the method among them.

    Raises:
        UserError: a setting that the method does not read, or that nothing reads; a bad value.
    """
    reads = get_method(method).reads
    settings = {}
    for name, value in list(values.items()):
        if name in settings_of(RunConfig):
            continue
        values.pop(name)
        if name not in settings_of_any_method():
            raise UserError(f"no method reads {name!r}; known settings are {', '.join(all_settings())}.")
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
    """`values` less those that are not read: a grid gives all of them to every method, policy and way of filling."""
    reads = {*settings_of(RunConfig), *get_method(method).reads}
    task, chosen = values.get("task"), {"classification": "fine_tuning", "bias": "by_task"} | values
    chosen = {name: value for name, value in chosen.items() if name in reads}
    if method not in refilling_in_training():
        reads.discard("gradient_diagnostics_steps")  # which compares the two losses on a shared trunk
    reads -= unread_settings(chosen, pair=not isinstance(task, str) or get_task(task).pair).keys()
    return {name: value for name, value in values.items() if name in reads}


def all_settings() -> dict[str, Setting]:
    """Every setting of a run or of any method, by name: those of a run first."""
    settings = dict(settings_of(RunConfig))
    for method in METHODS.values():
        for name, setting in settings_of(method.settings).items():
            settings.setdefault(name, setting)
    return settings


def command_line(config: RunConfig) -> list[str]:
    """The options of `mtlib run` that give this configuration: those that are not the defaults."""
    words = []
    for name, value in config.values().items():
        if value is None or value == config.described[name].default or value in ((), {}):
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
