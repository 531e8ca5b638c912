"""Machines for a cluster, made of Linux namespaces: each has its own network, processes, name and
temporary folder.

They hang on one switch, a bridge in a namespace of its own, so no link or address of theirs is seen
outside.
"""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence

import psutil

_NAMESPACES = ("--net", "--pid", "--mount", "--uts")
# `read` ends when the process that made the machine ends; with this first process all others of the
# machine end
_FIRST_PROCESS = (
    "echo {name} > /proc/sys/kernel/hostname && mount -t tmpfs none /mnt && ip link set dev lo up"
    " && echo up && read"
)


class Machine:
    """A machine. /mnt is its own temporary folder; it shares all others with the rest.

    Raises:
        PermissionError: this computer does not let us make namespaces, links or bridges.
    """

    def __init__(self, name: str, switch: "Machine | None" = None, address: str = ""):
        self.name, self.address, self._switch = name, address, switch
        self._outside = subprocess.Popen(
            [
                "unshare",
                *_NAMESPACES,
                "--fork",
                "--kill-child",
                "--mount-proc",
                "bash",
                "-c",
                _FIRST_PROCESS.format(name=name),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._outside.stdout.readline() != "up\n":
            raise PermissionError(self._outside.communicate()[1].strip())
        self._first = psutil.Process(self._outside.pid).children()[0].pid
        if switch is not None:
            ends = f"eth0 netns {self._first} type veth peer name {name} netns {switch._first}"
            _call("ip", "link", "add", *ends.split())
            self.call("ip", "address", "add", f"{address}/24", "dev", "eth0")
            self.call("ip", "link", "set", "dev", "eth0", "up")
            switch.call("ip", "link", "set", "dev", name, "master", "bridge0", "up")

    def start(self, *command: object, **options) -> subprocess.Popen:
        return subprocess.Popen(self._command(command), start_new_session=True, **options)

    def call(self, *command: object) -> None:
        _call(*self._command(command))

    def cut_off(self) -> None:
        self._switch.call("ip", "link", "set", "dev", self.name, "down")

    def heal(self) -> None:
        self._switch.call("ip", "link", "set", "dev", self.name, "up")

    def kill_all(self) -> None:
        """Kill all its processes without notice, as a power cut does."""
        self.call("bash", "-c", "kill -KILL -1")

    def remove(self) -> None:
        self._outside.kill()
        self._outside.communicate()

    def _command(self, command: Sequence[object]) -> list[str]:
        return ["nsenter", "--target", str(self._first), *_NAMESPACES, *map(str, command)]


@contextlib.contextmanager
def machines(*names: str) -> Iterator[list[Machine]]:
    """Machines of these names, with the addresses 10.77.0.1, 10.77.0.2 and so on."""
    with contextlib.ExitStack() as stack:
        switch = Machine("switch")
        stack.callback(switch.remove)
        switch.call("ip", "link", "add", "bridge0", "type", "bridge")
        switch.call("ip", "link", "set", "dev", "bridge0", "up")
        made = []
        for number, name in enumerate(names, 1):
            made.append(Machine(name, switch, f"10.77.0.{number}"))
            stack.callback(made[-1].remove)
        yield made


def obstacle() -> str | None:
    """Why there can be no such machines here; None if there can."""
    try:
        with machines("probe"):
            return None
    except OSError as error:  # no such tool, or not permitted
        return f"no network namespaces here: {error}"


def _call(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise PermissionError(f"{' '.join(command)}: {result.stderr.strip()}")
