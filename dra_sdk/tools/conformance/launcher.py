"""Starting and stopping a driver as a process of its own, with any command line."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from dra_sdk.errors import SettingsError
from dra_sdk.tools.conformance.environment import NodeEnvironment

LOG_LINES: Final = 15
LOG_BYTES: Final = 16 * 1024
FIXED_POD_UID: Final = "6c1c0a52-7a3a-4d0c-9b1e-0d7a5b0c9f11"
"""The pod UID for a command with {pod_uid} outside of rolling updates. It stays the same over restarts."""


class InstanceProcess(Protocol):
    """One running instance of a driver."""

    def exit_reason(self) -> str:
        """Return how the process ended, in words; empty while it runs."""

    def terminate(self, timeout: float) -> bool:
        """Send SIGTERM and wait; after `timeout` seconds kill the process and return False."""

    def kill(self) -> None:
        """Send SIGKILL and wait."""

    def log(self) -> str:
        """Return the last lines of its output."""

    def open_files(self) -> int | None:
        """Return the number of its open files; None if it is not known."""


class Launcher(Protocol):
    """Starts instances of one driver."""

    @property
    def concurrent(self) -> bool:
        """Whether two instances can run at once, each with the UID of its pod."""

    def start(self, environment: NodeEnvironment, pod_uid: str) -> InstanceProcess:
        """Start an instance; `pod_uid` is empty unless the driver is to expect a second instance."""


class CommandLauncher:
    """Starts a command line, in which `{name}` stands for each name of `_values`.

    The environment has the same values, as the variables that drivers commonly read.
    """

    def __init__(self, command: Sequence[str], *, pod_uid_arguments: Sequence[str] | None = None) -> None:
        """`pod_uid_arguments` are appended for instances of a rolling update; None if the command takes none."""
        self._command = list(command)
        self._pod_uid_arguments = pod_uid_arguments
        self._has_pod_uid = "{pod_uid}" in " ".join(self._command)
        if not self._command:
            raise SettingsError("the driver's command line is empty")

    @classmethod
    def parse(cls, text: str) -> CommandLauncher:
        """Parse a command line, split as a shell would split it."""
        try:
            return cls(shlex.split(text))
        except ValueError as error:
            raise SettingsError(f"the driver's command line {text!r}: {error}") from error

    @property
    def concurrent(self) -> bool:
        """Whether the driver can be given the UID of its pod."""
        return self._has_pod_uid or self._pod_uid_arguments is not None

    def command(self, environment: NodeEnvironment, pod_uid: str) -> list[str]:
        """Return the command line of an instance."""
        values = self._values(environment, pod_uid)
        command = self._command
        if pod_uid and self._pod_uid_arguments is not None:
            command = [*command, *self._pod_uid_arguments]
        return [_filled(part, values) for part in command]

    def start(self, environment: NodeEnvironment, pod_uid: str) -> InstanceProcess:
        """Start an instance; SettingsError if the command cannot be run."""
        variables = _variables(self._values(environment, pod_uid))
        return ChildProcess(self.command(environment, pod_uid), {**os.environ, **variables})

    def _values(self, environment: NodeEnvironment, pod_uid: str) -> dict[str, str]:
        """Return the value of each placeholder."""
        return {
            "kubeconfig": str(environment.kubeconfig or ""),
            "kubelet_dir": str(environment.kubelet_dir),
            "registry_dir": str(environment.registry_dir),
            "plugins_dir": str(environment.plugins_dir),
            "cdi_dir": str(environment.cdi_dir),
            "node_name": environment.node_name,
            "host_root": str(environment.host_root),
            "nri_socket": str(environment.nri_socket),
            "pod_uid": pod_uid or (FIXED_POD_UID if self._has_pod_uid else ""),
        }


class ChildProcess:
    """A child of this process; its output goes to an unnamed file."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process ends)
        self._log = ""
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, env=environment
            )
        except OSError as error:
            self._output.close()
            raise SettingsError(f"cannot run {command[0]}: {error.strerror}") from error

    def exit_reason(self) -> str:
        """Return how it ended; empty while it runs."""
        status = self._process.poll()
        if status is None:
            return ""
        return f"ended with status {status}" if status >= 0 else f"was killed by {signal.Signals(-status).name}"

    def terminate(self, timeout: float) -> bool:
        """Send SIGTERM and wait; after `timeout` seconds kill it and return False."""
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._close()
        return True

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self._process.kill()
        self._process.wait()
        self._close()

    def log(self) -> str:
        """Return the last lines of its output."""
        if self._output.closed:
            return self._log
        # pread does not move the file offset, which the child uses for writing.
        size = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), LOG_BYTES, max(0, size - LOG_BYTES))
        return "\n".join(data.decode(errors="replace").splitlines()[-LOG_LINES:])

    def open_files(self) -> int | None:
        """Return the number of its file descriptors; None after it has ended."""
        try:
            return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))
        except OSError:
            return None

    def _close(self) -> None:
        self._log = self.log()
        self._output.close()


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Call the handlers of SIGTERM and SIGINT only after the context.

    A handler that raises while a process is started would lose that process. Only the main thread has handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        if callable(handler := signal.getsignal(number)):
            handlers[number] = handler
            signal.signal(number, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for signal_number in received:
            signal.raise_signal(signal_number)


def sdk_launcher(driver: str) -> CommandLauncher:
    """Return the launcher of a driver of this SDK, which is run by `dra-sdk run`."""
    command = [sys.executable, "-m", "dra_sdk.cli.main", "run", driver, "--kubeconfig={kubeconfig}"]
    command += ["--kubelet-dir={kubelet_dir}", "--cdi-dir={cdi_dir}", "--node-name={node_name}"]
    return CommandLauncher([*command, "--host-root={host_root}"], pod_uid_arguments=["--pod-uid={pod_uid}"])


def _variables(values: dict[str, str]) -> dict[str, str]:
    named = {
        "KUBECONFIG": values["kubeconfig"],
        "NODE_NAME": values["node_name"],
        "POD_UID": values["pod_uid"],
        "CDI_ROOT": values["cdi_dir"],
        "NRI_SOCKET": values["nri_socket"],
        "DRA_SDK_NRI_SOCKET": values["nri_socket"],
        "KUBELET_REGISTRAR_DIRECTORY_PATH": values["registry_dir"],
        "KUBELET_PLUGINS_DIRECTORY_PATH": values["plugins_dir"],
    }
    return {name: value for name, value in named.items() if value}


def _filled(part: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        part = part.replace(f"{{{name}}}", value)
    return part
