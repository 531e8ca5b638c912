"""How much a notebook runs: named files of settings (`smoke`, `cpu`, `gpu`, `paper`), resolved into one frozen object.

The cells of a notebook are the same under every profile; only what this module resolves differs.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import yaml
from datasets import disable_progress_bars

from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.methods import METHODS
from mtlib.plm import SharedPLM
from mtlib.runs.config import RunConfig, configure, read_by
from mtlib.runs.inputs import read_inputs, record_path
from mtlib.runs.records import read_records
from mtlib.runs.run import KEPT, run
from mtlib.settings import Share, check, check_choice

FOLDER = Path(__file__).parent
PROFILES = tuple(sorted((path.stem for path in FOLDER.glob("*.yaml")), key=["smoke", "cpu", "gpu", "paper"].index))


@dataclass(frozen=True)
class ResolvedProfile:
    """What a notebook runs on, with nothing left open.

    Args:
        profile: "smoke", "cpu", "gpu" or "paper".
        task: "sentiment", "nli" or "paraphrase".
        source: "testbed", "hub" or a folder of original releases.
        model: "mini", a hub id or a folder with a masked LM.
        seeds: one run each; differences between methods are paired by seed.
        alpha: weight of the masked-LM loss.
        mask_rate: share of tokens masked.
        train_size: training examples; None is all of them.
        epochs: passes over them.
        learning_rates: pairs of method and rate ("alternating" for Mask-tuning with that update), in place of
            `config.default_rates`; for trunk and heads alike.
        alphas: the grid of the alpha curve.
        strengths: of the planted shortcut, for the dial (testbed only).
        out: folder for records and trained models.
    """

    profile: str
    task: str
    source: str
    model: str
    seeds: tuple[int, ...]
    alpha: float
    mask_rate: float
    train_size: int | None
    epochs: float
    learning_rates: tuple[tuple[str, float], ...]
    alphas: tuple[float, ...]
    strengths: tuple[float, ...]
    out: Path

    def config(self, method: str, seed: int = 0, **changes) -> RunConfig:
        """One run of `method` under these settings; `changes` are any other setting of a run."""
        names = ("task", "source", "model", "alpha", "mask_rate", "train_size", "epochs")
        settings = {"method": method, "seed": seed} | {name: getattr(self, name) for name in names}
        read = read_by(method, settings | changes)
        settings = {name: value for name, value in settings.items() if name in read}
        settings["learning_rate"] = rate_of(dict(self.learning_rates), {"method": method} | changes)
        return configure(**settings | changes)

    def check(self) -> None:
        """Raise `UserError` for a value that no run accepts: now, rather than in the middle of a notebook."""
        if len({*self.seeds}) < len(self.seeds):
            raise UserError(f"seeds is {self.seeds}; expected each seed once.")
        for seed in self.seeds:
            self.config("mask_tuning", seed)
        for method, _ in self.learning_rates:
            if method == "alternating":
                self.config("mask_tuning", update="alternating")
            else:
                self.config(method)

    def records(self, method: str, seeds: tuple[int, ...] | None = None, **changes) -> list[dict]:
        """A record per seed: from an earlier call, from the project's own records, or from a run made now.

        Of a run made now for the first seed the model is kept too.
        """
        configs = [self.config(method, seed, **changes) for seed in seeds or self.seeds]
        paths = [record_path(config, self.out) for config in configs]
        for config, path in zip(configs, paths, strict=True):
            if not path.exists():
                shipped = read_inputs(config).shipped_record() is not None
                run(config, self.out, keep_model=None if shipped else self._model_folder(config))
        return read_records(paths)

    def model_of(self, method: str, **changes) -> SharedPLM:
        """What the first seed's run ended with; trained again where its record is there and its model is not."""
        config = self.config(method, self.seeds[0], **changes)
        folder = self._model_folder(config)
        if record_path(config, self.out).exists() and not (folder / KEPT).exists():
            with tempfile.TemporaryDirectory() as again:
                run(config, Path(again), keep_model=folder)
        else:
            run(config, self.out, keep_model=folder)
        return SharedPLM.from_pretrained(folder)

    def _model_folder(self, config: RunConfig) -> Path | None:
        """Named like the record, whose name follows data and model too; None for another than the first seed."""
        return self.out / "models" / record_path(config, self.out).stem if config.seed == self.seeds[0] else None

    def __str__(self) -> str:
        """What most notebooks use, in a line; the rest stands in the profile's file."""
        size = "all" if self.train_size is None else f"{self.train_size:,}"
        return (
            f"profile {self.profile}: task {self.task}, source {self.source}, model {self.model}, {size} training "
            f"examples, {self.epochs:g} epochs, alpha {self.alpha:g}, {100 * self.mask_rate:g} % masked"
        )


def load(profile: str) -> dict:
    """The profile's file as it is written."""
    check_choice("profile", profile, PROFILES)
    return yaml.safe_load((FOLDER / f"{profile}.yaml").read_text())


def rate_of(rates: Mapping[str, float], settings: Mapping) -> float | None:
    """A run's learning rate by its method, or by its update where that is "alternating"; None: the default."""
    return rates.get("alternating" if settings.get("update") == "alternating" else settings["method"])


def resolve(profile: str = "cpu", task: str = "sentiment", out: str | Path = "runs", **settings) -> ResolvedProfile:
    """A profile with the reader's own settings in place of its values; None leaves the profile's value.

    Also switches off the progress bars of `datasets`, which would stay in the notebook.

    Args:
        profile: name of the file of settings.
        task: decides alpha, which is the paper's for this task unless it is set.
        out: folder for records, relative to the working directory.
        settings: any of `ResolvedProfile`; `seeds` also as a number of seeds.

    Raises:
        UserError: an unknown profile, task or name, or a value out of range, before anything is run.
    """
    disable_progress_bars()
    values = load(profile)
    values.pop("cell_minutes")
    known = {field.name for field in fields(ResolvedProfile)}
    if unknown := sorted(settings.keys() - known):
        raise UserError(f"unknown setting {unknown[0]!r}; expected one of {', '.join(sorted(known))}.")
    if settings.get("model") not in (None, values["model"]):
        values["learning_rates"] = {}  # chosen for the profile's model
    values |= {"alpha": get_task(task).alpha} | {name: value for name, value in settings.items() if value is not None}
    for name in ("alphas", "strengths", "seeds"):
        whole = name == "seeds" and isinstance(values[name], int)
        if not (whole or isinstance(values[name], Sequence)) or isinstance(values[name], str):
            raise UserError(f"{name} is {values[name]!r}; expected a list of numbers.")
    if not isinstance(values["learning_rates"], Mapping):
        raise UserError(f"learning_rates is {values['learning_rates']!r}; expected METHOD: RATE pairs.")
    values["seeds"] = range(values["seeds"]) if isinstance(values["seeds"], int) else values["seeds"]
    if not values["seeds"]:
        raise UserError(f"seeds is {settings['seeds']}; expected 1 or more.")
    for name in ("alphas", "strengths"):
        for value in values[name]:
            check(name, value, Share)
    for method in values["learning_rates"]:
        if method not in (*METHODS, "alternating"):
            raise UserError(f"learning_rates names {method!r}; expected one of {', '.join(METHODS)}, alternating.")
    values |= {name: tuple(values[name]) for name in ("seeds", "alphas", "strengths")}
    values["learning_rates"] = tuple(values["learning_rates"].items())
    resolved = ResolvedProfile(profile=profile, task=task, out=Path(out), **values)
    resolved.check()
    return resolved


def cell_minutes(profile: str) -> float:
    """Minutes after which the runner stops a cell, unless the machine is so slow that it needs more."""
    return load(profile)["cell_minutes"]
