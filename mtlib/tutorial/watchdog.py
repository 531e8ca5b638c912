"""Ends a notebook that hangs, and leaves a slow one alone. The runner loads this into the notebook's kernel.

A cell must give a sign of life every so often: output of any kind, or a forward pass of a model, which training,
evaluation and refilling make while they print nothing.
"""

import faulthandler
import sys
import time


def watch(minutes: float, report: str) -> None:
    """End the kernel that calls this when a cell gives no sign of life for `minutes`.

    Args:
        report: file for the traceback of a hang; it is empty while there is none.
    """
    from IPython import get_ipython

    Watchdog(minutes, report).attach(get_ipython())


class Watchdog:
    """`faulthandler` keeps the time, in a thread that works without the interpreter: compiled code may hang too."""

    def __init__(self, minutes: float, report: str):
        self.seconds = 60 * minutes
        self.file = open(report, "w")  # noqa: SIM115 (it must stay open as long as the kernel lives)
        self.in_cell, self.watches_models, self.last_sign = False, False, 0.0

    def attach(self, shell) -> None:
        session = shell.kernel.session
        send = session.send

        def send_and_note(*args, **kwargs):
            self.note_sign()
            return send(*args, **kwargs)

        session.send = send_and_note  # all output passes here, whatever wrote it
        shell.events.register("pre_run_cell", self.begin_cell)
        shell.events.register("post_run_cell", self.end_cell)

    def begin_cell(self, info) -> None:
        if not self.watches_models and "torch" in sys.modules:  # importing torch here would slow every kernel down
            sys.modules["torch"].nn.modules.module.register_module_forward_pre_hook(self.note_sign)
            self.watches_models = True
        self.in_cell, self.last_sign = True, 0.0
        self.note_sign()

    def end_cell(self, result) -> None:
        self.in_cell = False
        faulthandler.cancel_dump_traceback_later()

    def note_sign(self, *_) -> None:
        now = time.monotonic()
        if self.in_cell and now - self.last_sign > min(1.0, self.seconds / 10):  # each call starts a thread
            self.last_sign = now
            faulthandler.dump_traceback_later(self.seconds, exit=True, file=self.file)
