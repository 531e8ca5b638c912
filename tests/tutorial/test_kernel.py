"""A notebook runs in the Python that runs the runner, and a kernel that dies says why."""

import json
import sys

import nbformat
import pytest

from mtlib.tutorial import kernel
from mtlib.tutorial.kernel import KernelDied, execute
from tests.tutorial.made_up import write


def test_another_python_under_the_name_python3_is_not_started(tmp_path, monkeypatch):
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    kernelspec = {"argv": ["false"], "display_name": "Python 3", "language": "python"}
    spec.write_text(json.dumps(kernelspec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    source = "import sys, os, mtlib\nprint(sys.executable, mtlib.__file__, os.getcwd(), sep='\\n')"
    path = write(tmp_path, "01_one", source)
    (tmp_path / "out").mkdir()
    execute(path, tmp_path / "out" / path.name, {})
    printed = nbformat.read(tmp_path / "out" / path.name, as_version=4).cells[-1].outputs[0].text
    assert printed.splitlines() == [sys.executable, kernel.mtlib.__file__, str(tmp_path / "out")]


def test_why_a_kernel_died(tmp_path):
    path = write(tmp_path, "01_one", "import os; os.kill(os.getpid(), 9)")
    reason = r"exit code -9 \(SIGKILL, as happens where memory runs out\)"
    with pytest.raises(KernelDied, match=reason):
        execute(path, tmp_path / "copy.ipynb", {})


def test_why_a_kernel_did_not_start(tmp_path, monkeypatch):
    (tmp_path / "ipykernel_launcher.py").write_text("raise SystemExit('broken installation')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(KernelDied, match=r"ended with exit code 1\nbroken installation"):
        execute(write(tmp_path, "01_one", "1"), tmp_path / "copy.ipynb", {})
