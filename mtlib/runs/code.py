"""Which code made a record, and on what: its commit, a hash of the modules that decide a run's
numbers, and the processor.
"""

import ast
import contextlib
import hashlib
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

UNCOMMITTED = "+changes"  # at the end of a record's commit: tracked files differed from it
_PACKAGE = Path(__file__).resolve().parents[1]
# What makes tables, figures, pages and messages of numbers, or hands runs out. All else counts, new
# modules too.
_DECIDES_NO_NUMBER = {
    "__init__.py",
    "__main__.py",
    "analysis",
    "bench.py",
    "bundled",  # data and their scripts, which an installed package has within
    "cli",
    "diversity",
    "errors.py",
    "paths.py",
    "requirements.py",
    "sweeps",
    "tutorial",
    "runs/code.py",
    "runs/environment.py",
    "runs/locks.py",
    "runs/records.py",
}

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def commit() -> str | None:
    """The commit of the checkout that mtlib runs from.

    With `UNCOMMITTED` where tracked files differ from it; None without a checkout.
    """
    root = _PACKAGE.parent
    if not (root / ".git").exists():
        return None
    # a clone that another account owns is one that git would not look into
    git = ["git", "-c", f"safe.directory={root}", "-C", str(root)]
    describe = [*git, "describe", "--always", "--abbrev=40", "--exclude=*"]
    describe.append(f"--dirty={UNCOMMITTED}")
    try:
        said = subprocess.run(describe, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()


@cache
def code_sha256(package: Path = _PACKAGE) -> str:
    """A hash of the modules that decide a run's numbers, made once in a process.

    It is made of their syntax trees, so that comments, docstrings and formatting change nothing; a
    minor version of Python may. Data, settings and the model's files are no part of it: the
    identity of a run has them.
    """
    trees = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not {name, name.partition("/")[0]} & _DECIDES_NO_NUMBER:
            trees[name] = _without_docstrings(path.read_bytes())
    return hashlib.sha256(repr(trees).encode()).hexdigest()


def is_of_this_code(environment: Mapping) -> bool:
    """Whether a record's `environment` names the code that runs here.

    Records before November 2026 named none.
    """
    return environment.get("code_sha256") == code_sha256()


def has_uncommitted_code(record: Mapping) -> bool:
    """Whether the training or a score is of a commit from which tracked files differed."""
    made = [record, *record.get("scored_later", {}).values()]
    commits = [entry.get("environment", {}).get("commit") or "" for entry in made]
    return any(commit.endswith(UNCOMMITTED) for commit in commits)


def origin(environment: Mapping) -> str:
    """Where a record was made, by its `environment`, and how its code compares with that here."""
    made_at = _in_words(environment.get("commit"))
    if is_of_this_code(environment):
        return f"{made_at}, by the code that is here"
    differs = "differs" if "code_sha256" in environment else "may differ"
    return f"{made_at}, whose code {differs} from the code that is here ({_in_words(commit())})"


def _in_words(made_at: str | None) -> str:
    if made_at is None:
        return "an installed mtlib"
    changed = " with uncommitted changes" if made_at.endswith(UNCOMMITTED) else ""
    return f"commit {made_at[:10]}{changed}"


def _without_docstrings(source: bytes) -> str:
    """A module's syntax tree as text."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def processor() -> str:
    """The processor's model, where the system says it."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name"))
        return model.partition(":")[2].strip()
    return platform.processor() or platform.machine()
