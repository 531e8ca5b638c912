"""The project's own files agree with one another."""

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"torch": "pytorch", "ray": "ray-core"}


def declared() -> dict[str, Requirement]:
    project = PYPROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def test_conda_environment_equals_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    *conda, pip = environment["dependencies"]
    assert pip == {"pip": ["-e ."]}
    found = {requirement.name: requirement.specifier for requirement in map(Requirement, conda)}
    wanted = {CONDA_NAMES.get(name, name): requirement.specifier for name, requirement in declared().items()}
    assert found == wanted | {"python": Requirement("x" + PYPROJECT["project"]["requires-python"]).specifier,
                              "pip": Requirement("pip").specifier}  # fmt: skip
    text = (ROOT / "environment.yml").read_text()
    assert all("#" in line for line in text.splitlines() if line.startswith("  "))


def test_lock_satisfies_every_requirement():
    versions = locked()
    for name, requirement in declared().items():
        assert requirement.specifier.contains(versions[name]), name
    assert all(re.fullmatch(r"[\w.]+", version) for version in versions.values())


def test_this_environment_is_in_the_ranges():
    for name, requirement in declared().items():
        assert requirement.specifier.contains(metadata.version(name), prereleases=True), name


def test_package_modules_import_one_way():
    """Left to right, as the README's picture shows: no module imports one to its right."""
    order = [
        "errors", "paths", "testbed", "registry", "releases", "downloads", "sources", "verification", "tasks",
        "masking", "plm", "objectives", "trainer", "refill", "examples", "config",
        "methods", "environment", "claims", "runs", "tables", "study", "paper", "verdicts",
        "agreement", "fills", "pos_probe", "plausibility",
        "diversity", "annotation", "profiles", "store", "sweep", "engines", "ray_engine", "sweep_report",
        "explorer", "figures", "widgets", "pages", "notebooks",
        "bench", "cli", "__main__",
    ]  # fmt: skip
    found = {path.stem for path in (ROOT / "mtlib").glob("*.py")} | {"objectives", "testbed", "profiles"}
    assert found - {"__init__"} <= set(order), found - set(order)
    for path in (ROOT / "mtlib").rglob("*.py"):
        own = path.stem if path.parent.name == "mtlib" else path.parent.name
        code = path.read_text()
        names = re.findall(r"^\s*from mtlib\.(\w+)[\w.]* import", code, flags=re.M)
        for line in re.findall(r"^\s*from mtlib import (.+)", code, flags=re.M):
            names += [name.split(" as ")[0].strip() for name in line.split(",")]
        for name in names:
            assert own == "__init__" or name == own or order.index(name) < order.index(own), f"{own} imports {name}"


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).exists()]


def test_nothing_unsafe_and_nothing_huge():
    for path in tracked():
        assert path.stat().st_size < 25_000_000, path
        if path.suffix == ".py" and path != Path(__file__):
            text = path.read_text()
            assert "trust_remote_code=True" not in text and "import pickle" not in text, path
            assert not re.search(r"torch\.load\((?!.*weights_only=True)", text), path
