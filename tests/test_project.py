"""The project's own files agree with one another."""

import ast
import gzip
import re
import subprocess
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"huggingface-hub": "huggingface_hub", "torch": "pytorch", "ray": "ray-core"}


def declared() -> dict[str, Requirement]:
    project = PYPROJECT["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().split()
    return {
        canonicalize_name(name): version for name, version in (line.split("==") for line in lines)
    }


def test_conda_environment_equals_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    *conda, pip = environment["dependencies"]
    assert pip == {"pip": ["-e ."]}
    found = {requirement.name: requirement.specifier for requirement in map(Requirement, conda)}
    wanted = {
        CONDA_NAMES.get(name, name): requirement.specifier
        for name, requirement in declared().items()
    }
    assert found == wanted | {
        "python": Requirement("x" + PYPROJECT["project"]["requires-python"]).specifier,
        "pip": Requirement("pip").specifier,
    }
    text = (ROOT / "environment.yml").read_text()
    assert all("#" in line for line in text.splitlines() if line.startswith("  "))


def test_lock_satisfies_every_requirement():
    versions = locked()
    for name, requirement in declared().items():
        assert requirement.specifier.contains(versions[name]), name
    assert all(re.fullmatch(r"[\w.]+", version) for version in versions.values())


def test_lowest_versions_are_the_bounds_of_pyproject():
    text = (ROOT / "tests" / "constraints-lowest.txt").read_text()
    pins = {
        pin.name: str(pin.specifier) for pin in map(Requirement, re.sub("#.*", "", text).split())
    }
    bounds = {
        name: "=="
        + next(bound.version for bound in requirement.specifier if bound.operator == ">=")
        for name, requirement in declared().items()
    }
    assert pins == bounds | {"torch": "==" + locked()["torch"]}


# Packages from the ground up: one imports itself and those before it. `core` is the top level of
# mtlib.
ORDER = (
    "errors",
    "rows",
    "core",
    "data",
    "testbed",
    "policies",
    "methods",
    "runs",
    "own_data",
    "bench",
    "sweeps",
    "analysis",
    "diversity",
    "tutorial",
    "cli",
)
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "mtlib").rglob("*.py")
    if path != ROOT / "mtlib" / "__init__.py"
}


def package_of(module: str) -> str:
    top = module.split(".")[1]
    return "cli" if top == "__main__" else top if top in ORDER else "core"


def imported(tree: ast.AST) -> set[str]:
    """The modules of mtlib that a file imports, in functions and for type checkers too."""
    names = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            whole = [
                f"{node.module}.{alias.name}" for alias in node.names
            ]  # a module, or a name inside one
            names |= {name if name in MODULES else node.module for name in whole}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        names |= imported(node)
    return names & MODULES.keys()


def test_imports_run_one_way_and_in_no_circle():
    graph = {
        name: imported(ast.parse(path.read_text(encoding="utf-8"))) - {name}
        for name, path in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
    for name, others in graph.items():
        assert (ROOT / "mtlib" / f"{name.split('.')[1]}.py").exists() or package_of(
            name
        ) != "core", f"{name}: see ORDER"
        for other in others:
            assert ORDER.index(package_of(other)) <= ORDER.index(package_of(name)), (
                f"{name} imports {other}"
            )


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).exists()]


def test_nothing_unsafe_and_nothing_huge():
    for path in tracked():
        assert path.stat().st_size < 25_000_000, path
        if path.suffix == ".py" and path != Path(__file__):
            text = path.read_text()
            assert "trust_remote_code=True" not in text and "import pickle" not in text, path
            assert not re.search(r"torch\.load\((?!.*weights_only=True)", text), path


def test_no_record_says_where_files_lay_on_a_machine():
    records = [*(ROOT / "data/results").rglob("*.json*")]
    opened = {path: gzip.open if path.suffix == ".gz" else open for path in records}
    for path, open_file in opened.items():
        with open_file(path, "rt", encoding="utf-8") as lines:
            assert not re.search(r'"(?:/\w+){2}|"[A-Z]:\\\\', lines.read()), path
