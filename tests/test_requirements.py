"""What is said where packages are missing or have other versions."""

import subprocess
import sys

import pytest

from mtlib import cli, requirements
from mtlib.paths import DATA_DIR

OLD = "mtlib needs transformers<6,>=5.17, but transformers 4.57.1 is installed"


def installed(monkeypatch, **versions):
    """As if these packages had these versions, or were missing (None)."""
    really = requirements.version_of
    monkeypatch.setattr(requirements, "version_of", lambda name: versions.get(name, really(name)))


def test_what_is_installed_here_fits():
    assert requirements.misfits() == []


def test_a_version_out_of_range_and_a_missing_package(monkeypatch):
    installed(monkeypatch, transformers="4.57.1", pandas=None, ray=None, papermill="1.0")
    old, missing, optional = requirements.misfits()  # ray is of an extra, which may be left out
    assert old == f"{OLD}; pip install 'transformers<6,>=5.17'."
    assert "needs pandas>=2.2.2, but it is not installed; pip install 'pandas>=2.2.2'" in missing
    assert "needs papermill>=2.6, but papermill 1.0 is installed" in optional


def test_what_reads_the_requirements_is_one_of_them(monkeypatch):
    installed(monkeypatch, packaging=None)
    (missing,) = requirements.misfits()
    assert "needs packaging>=24.2, but it is not installed" in missing


@pytest.mark.parametrize(
    ("module", "versions", "message"),
    [
        ("papermill.iorw", {}, "papermill, which is not installed; pip install papermill"),
        ("fcntl", {}, "Python's module fcntl, which is not there on this system"),
        ("transformers.tokenization_python", {"transformers": "4.57.1"}, OLD),
    ],
)
def test_a_command_says_what_is_missing_or_too_old(monkeypatch, capsys, module, versions, message):
    def broken(**options):
        raise ModuleNotFoundError(name=module)

    installed(monkeypatch, **versions)
    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [ImportError("cannot import x"), ModuleNotFoundError(name="mtlib.nothing")]
)
def test_a_fault_of_ours_keeps_its_traceback(monkeypatch, error):
    def broken(**options):
        raise error

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(ImportError):
        cli.main()


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "doctor",
        "data list",
        "tables --list",
        "tables decisive --format csv",
        "run --help",
        "train --help",
        "suspects data/example/reviews.csv --text review --label opinion",
    ],
)
def test_a_command_that_trains_nothing_needs_neither_torch_nor_datasets(command):
    missing = ("torch", "datasets", "fcntl", "resource")
    code = f"import sys; sys.modules |= dict.fromkeys({missing}); import mtlib.cli as c; c.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        capture_output=True,
        text=True,
        cwd=DATA_DIR.parent,
    )
    assert done.returncode == 0 and done.stdout, done.stderr
