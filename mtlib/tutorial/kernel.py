"""Run notebooks with papermill in a kernel of this Python, and say why a kernel died."""

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.util import run_sync

import mtlib

_COMMAND = [
    sys.executable,
    "-Xfrozen_modules=off",  # or ipykernel's debugger warns of frozen modules
    "-m",
    "ipykernel_launcher",
    "-f",
    "{connection_file}",
    "--log-level=ERROR",  # or ipykernel warns of every kernel that listens on localhost
]
_START_SECONDS = 600  # a slow machine imports slowly


_running: set["OwnKernel"] = set()


class KernelDied(RuntimeError):
    """The kernel's process did not start, or ended in the middle of a cell."""


def execute(path: Path, copy: Path, parameters: dict, **options) -> None:
    """Run a notebook with `papermill.execute_notebook`, up to the first cell that fails.

    Args:
        path: the notebook. It is run by the current Python, whatever kernel it names.
        copy: where the executed notebook is written. Its folder is the working directory.
        parameters: values for the cell that is tagged `parameters`.
        options: further options of papermill and nbclient, such as `allow_errors`.

    Raises:
        papermill.PapermillExecutionError: a cell failed.
        nbclient.exceptions.CellTimeoutError: a cell took longer than `execution_timeout`.
        KernelDied: with the signal or exit code, and the last lines of the process's stderr.
    """
    with tempfile.TemporaryFile() as stderr:
        kernel = OwnKernel(copy.parent, stderr)
        _running.add(kernel)
        try:
            papermill.execute_notebook(
                path,
                copy,
                parameters,
                progress_bar=False,
                kernel_name="python3",
                language="python",
                start_timeout=_START_SECONDS,
                km=kernel,
                **options,
            )
        except RuntimeError as error:
            raise KernelDied(f"{error}: {kernel.reason()}") from error
        finally:
            _running.discard(kernel)
            if kernel.has_kernel:
                run_sync(kernel.shutdown_kernel)(now=True)


def kill_all() -> None:
    """End the processes of all kernels that run; each `execute` then raises `KernelDied`."""
    for kernel in [*_running]:
        if kernel.has_kernel:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(kernel.provisioner.pid, signal.SIGKILL)


class OwnKernel(AsyncKernelManager):
    """A kernel of `sys.executable`.

    The kernel that is registered as `python3` may belong to another environment.

    Args:
        folder: its working directory. (papermill's `cwd` would be that of all threads.)
        stderr: file for what the process writes to stderr, for example when it cannot start.
    """

    kernel_spec = KernelSpec(argv=_COMMAND, display_name="Python 3", language="python")

    def __init__(self, folder: Path, stderr: BinaryIO):
        super().__init__()
        self.folder = folder
        self.stderr = stderr
        self.exit_code = None

    def start_kernel(self, **options):
        # the mtlib that runs here comes first
        paths = [str(Path(mtlib.__file__).parents[1])]
        if os.environ.get("PYTHONPATH"):
            paths.append(os.environ["PYTHONPATH"])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        where = {"cwd": str(self.folder), "env": environment, "stderr": self.stderr}
        return super().start_kernel(**options | where)

    async def _async_is_alive(self) -> bool:
        if self.has_kernel:
            self.exit_code = await self.provisioner.poll()
        return await super()._async_is_alive()

    def reason(self) -> str:
        """Why the kernel died, and the last lines that it wrote to stderr."""
        reason = "it did not answer"
        if self.exit_code is not None:
            reason = f"its process ended with exit code {self.exit_code}"
        if self.exit_code == -signal.SIGKILL:
            reason += " (SIGKILL, as happens where memory runs out)"
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").strip().splitlines()
        return "\n".join([reason, *lines[-20:]])
