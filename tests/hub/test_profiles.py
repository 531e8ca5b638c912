"""Every profile of every notebook, whole, against the stand-in hub with its tiny models, on a CPU.

`make test` runs one of them on one task; `make profiles`, which the nightly workflow calls, all.
(`cpu` is run by `make tutorial`.)
"""

import os
from pathlib import Path

import pytest
from papermill import inspect_notebook

from mtlib.tutorial.runner import find

RUNS_ALL = bool(os.environ.get("MTLIB_PROFILES"))
ALWAYS = ("08_reproduction", "gpu")
# in place of the defaults: what makes a training short, where a notebook has the parameter
SHORT = {"train_size": "48", "seeds": "1"}
# in place of the bundled model, which a CPU trains for minutes
TINY = {"07_rivals": {"model": "bert-base-uncased"}}
PROFILES = [(path, profile) for path in find() for profile in ("smoke", "gpu", "paper")]


@pytest.mark.parametrize(
    ("path", "profile"),
    PROFILES,
    ids=[f"{path.stem}-{profile}" for path, profile in PROFILES],
)
def test_a_profile_runs_whole(start, tmp_path, path: Path, profile: str):
    if (path.stem, profile) != ALWAYS and not RUNS_ALL:
        pytest.skip("all profiles take minutes: `make profiles` runs them")
    given = {}
    if profile != "smoke":
        known = inspect_notebook(path)
        given = {name: value for name, value in SHORT.items() if name in known}
        given |= TINY.get(path.stem, {})
    if not RUNS_ALL:
        given["task"] = "sentiment"
    options = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    command = ["-m", "mtlib", "notebooks", path.stem, "--profile", profile, *options]
    process = start(*command, "--out", str(tmp_path / "out"))
    text, _ = process.communicate()
    assert process.returncode == 0, text
