"""Notebooks run by papermill in a kernel of this very Python, and the true reason where a kernel dies."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.util import run_sync

import mtlib

# ipykernel warns of every kernel that listens on localhost, its debugger of frozen modules
_COMMAND = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
_COMMAND += ["--log-level=ERROR"]
_START_SECONDS = 600  # a slow machine imports slowly


class KernelDied(RuntimeError):
    """The kernel's process did not start, or ended in the middle of a cell; says why."""


def execute(path: Path, copy: Path, parameters: dict, **options) -> None:
    """Run a notebook as `papermill.execute_notebook` does; it stops at the first cell that fails.

    Args:
        path: the notebook; whatever kernel it names, it gets the Python that calls this.
        copy: for the executed notebook. Its folder is the notebook's working directory.
        parameters: put behind the cell that is tagged `parameters`.
        options: more of papermill's and nbclient's, such as `allow_errors`.

    Raises:
        papermill.PapermillExecutionError: a cell failed.
        nbclient.exceptions.CellTimeoutError: a cell took longer than `execution_timeout`.
        KernelDied: with the signal or exit code, and what the process said last.
    """
    with tempfile.TemporaryFile() as said:
        kernel = OwnKernel(said)
        try:
            papermill.execute_notebook(
                path, copy, parameters, cwd=copy.parent, progress_bar=False, kernel_name="python3", language="python",
                start_timeout=_START_SECONDS, km=kernel, **options,
            )  # fmt: skip
        except RuntimeError as error:
            raise KernelDied(f"{error}: {kernel.reason()}") from error
        finally:
            if kernel.has_kernel:
                run_sync(kernel.shutdown_kernel)(now=True)


class OwnKernel(AsyncKernelManager):
    """Starts `sys.executable`: what is registered as `python3` may be another environment's Python, or a conda's.

    Args:
        said: file for what the process writes to stderr past ipykernel, for example when it cannot start.
    """

    kernel_spec = KernelSpec(argv=_COMMAND, display_name="Python 3", language="python")

    def __init__(self, said):
        super().__init__()
        self.said, self.exit_code = said, None

    def start_kernel(self, **options):
        here, known = str(Path(mtlib.__file__).parents[1]), os.environ.get("PYTHONPATH")  # the mtlib that runs here
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [here, known]))}
        return super().start_kernel(**options, env=environment, stderr=self.said)

    async def _async_is_alive(self) -> bool:
        if self.has_kernel:
            self.exit_code = await self.provisioner.poll()
        return await super()._async_is_alive()

    def reason(self) -> str:
        how = "it did not answer" if self.exit_code is None else f"its process ended with exit code {self.exit_code}"
        how += " (SIGKILL, as happens where memory runs out)" if self.exit_code == -signal.SIGKILL else ""
        self.said.seek(0)
        last = self.said.read().decode(errors="replace").strip().splitlines()[-20:]
        return "\n".join([how, *last])
