"""How much a notebook runs: named files of settings (`smoke`, `cpu`, `gpu`, `paper`), resolved into one frozen object.

The cells of a notebook are the same under every profile; only what this module resolves differs.
"""

import hashlib
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import yaml
from datasets import disable_progress_bars

from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.masking import check_rate
from mtlib.plm import SharedPLM
from mtlib.runs import run as runs
from mtlib.runs.config import METHODS, RunConfig

FOLDER = Path(__file__).parent
PROFILES = tuple(sorted((path.stem for path in FOLDER.glob("*.yaml")), key=["smoke", "cpu", "gpu", "paper"].index))


@dataclass(frozen=True)
class Settings:
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
        """One run of `method` under these settings; `changes` are any other field of `RunConfig`."""
        rate = dict(self.learning_rates).get("alternating" if changes.get("update") == "alternating" else method)
        alpha = self.alpha if method == "mask_tuning" else None  # the other methods have their own, or none
        chosen = {"task": self.task, "source": self.source, "model": self.model, "alpha": alpha,
                  "mask_rate": self.mask_rate, "train_size": self.train_size, "epochs": self.epochs,
                  "learning_rate": rate}  # fmt: skip
        return RunConfig(method=method, seed=seed, **chosen | changes)

    def records(self, method: str, seeds: tuple[int, ...] | None = None, **changes) -> list[dict]:
        """A record per seed: run now (the first seed's model is kept), or read where any earlier call has left it."""
        configs = [self.config(method, seed, **changes) for seed in seeds or self.seeds]
        paths = [runs.record_path(one, self.out) for one in configs]
        for config, path in zip(configs, paths, strict=True):
            if not path.exists():
                runs.run(config, self.out, keep_model=self._model_folder(config))
        return runs.read_records(paths)

    def model_of(self, method: str, **changes) -> SharedPLM:
        """What the first seed's run ended with; trained again where its record is there and its model is not."""
        config = self.config(method, self.seeds[0], **changes)
        folder = self._model_folder(config)
        if runs.record_path(config, self.out).exists() and not (folder / runs.KEPT).exists():
            with tempfile.TemporaryDirectory() as again:
                runs.run(config, Path(again), keep_model=folder)
        else:
            runs.run(config, self.out, keep_model=folder)
        return SharedPLM.from_pretrained(folder)

    def _model_folder(self, config: RunConfig) -> Path | None:
        name = hashlib.sha256(repr(config).encode()).hexdigest()[:10]
        return self.out / "models" / f"{config.method}-{name}" if config.seed == self.seeds[0] else None

    def __str__(self) -> str:
        width = max(len(field.name) for field in fields(self))
        return "\n".join(f"{field.name:{width}}  {_text(getattr(self, field.name))}" for field in fields(self))


def load(profile: str) -> dict:
    """The profile's file as it is written."""
    if profile not in PROFILES:
        raise UserError(f"unknown profile {profile!r}; expected one of {', '.join(PROFILES)}.")
    return yaml.safe_load((FOLDER / f"{profile}.yaml").read_text())


def resolve(profile: str = "cpu", task: str = "sentiment", out: str | Path = "runs", **given) -> Settings:
    """A profile with what the reader gave in its place; None leaves the profile's value.

    Also switches off the progress bars of `datasets`, which would stay in the notebook.

    Args:
        profile: name of the file of settings.
        task: alpha is the paper's for this task unless given.
        out: folder for records, relative to the working directory.
        given: any of `Settings`; `seeds` also as a number of seeds.

    Raises:
        UserError: an unknown profile, task or name, or a value out of range, before anything is run.
    """
    disable_progress_bars()
    values = load(profile)
    values.pop("silent_minutes")
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(given.keys() - known):
        raise UserError(f"unknown setting {unknown[0]!r}; expected one of {', '.join(sorted(known))}.")
    if given.get("model") not in (None, values["model"]):
        values["learning_rates"] = {}  # chosen for the profile's model
    values |= {"alpha": get_task(task).alpha} | {name: value for name, value in given.items() if value is not None}
    if isinstance(values["seeds"], int):
        if values["seeds"] < 1:
            raise UserError(f"seeds is {values['seeds']}; expected 1 or more.")
        values["seeds"] = range(values["seeds"])
    for name in ("seeds", "alphas", "strengths"):
        values[name] = tuple(values[name])
    if not values["seeds"]:
        raise UserError("seeds is empty; expected 1 or more.")
    for alpha in values["alphas"]:
        check_rate("alphas", alpha)
    for method in values["learning_rates"]:
        if method not in (*METHODS, "alternating"):
            raise UserError(f"learning_rates names {method!r}; expected one of {', '.join(METHODS)}, alternating.")
    values["learning_rates"] = tuple(values["learning_rates"].items())
    settings = Settings(profile=profile, task=task, out=Path(out), **values)
    settings.config("mask_tuning")  # complains of what RunConfig would complain of later
    return settings


def silent_minutes(profile: str) -> float:
    """Minutes without output and without a training step after which the runner stops a notebook."""
    return load(profile)["silent_minutes"]


def _text(value) -> str:
    if value is None:
        return "all"
    if not isinstance(value, tuple):
        return str(value)
    return (
        ", ".join(f"{item[0]} {item[1]:g}" if isinstance(item, tuple) else f"{item:g}" for item in value) or "default"
    )
