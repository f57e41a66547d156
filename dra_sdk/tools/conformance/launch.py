"""Starting and ending a driver as its own process, from any command line."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from dra_sdk.errors import SettingsError
from dra_sdk.tools.conformance.site import Site

PLACEHOLDERS: Final = (
    "kubeconfig",
    "kubelet_dir",
    "registry_dir",
    "plugins_dir",
    "cdi_dir",
    "node_name",
    "host_root",
    "pod_uid",
)
LOG_LINES = 15
LOG_BYTES = 16 * 1024
ONE_POD = "6c1c0a52-7a3a-4d0c-9b1e-0d7a5b0c9f11"
"""The pod's UID where a command asks for one and no rolling update goes on: the same over restarts."""


class Process(Protocol):
    """One running instance of a driver."""

    def ended(self) -> str:
        """How it ended by itself, in words; empty while it runs."""

    def terminate(self, timeout: float) -> bool:
        """Ask it to end, as a kubelet's SIGTERM does; whether it did in time (else it is killed)."""

    def kill(self) -> None:
        """End it at once, as the kernel does when memory is short."""

    def log(self) -> str:
        """The end of what it printed."""

    def open_files(self) -> int | None:
        """How many files it has open, where that can be known."""


class Launcher(Protocol):
    """Starts instances of one driver."""

    @property
    def instances(self) -> bool:
        """Whether two of them can run at once, each told its pod's UID."""

    def start(self, site: Site, pod_uid: str) -> Process:
        """Start one; `pod_uid` is empty where the driver is not to know of rolling updates."""


class CommandLauncher:
    """Starts a command line; `{name}` in it stands for one of PLACEHOLDERS.

    The same facts are in the environment, under the names that drivers commonly read them by.
    """

    def __init__(self, command: Sequence[str], *, with_uid: Sequence[str] | None = None) -> None:
        """`with_uid` are further arguments for instances of a rolling update."""
        self._command = list(command)
        self._with_uid = with_uid
        text = " ".join(self._command)
        self._asks_uid = "{pod_uid}" in text
        if not self._command:
            raise SettingsError("the driver's command line is empty")

    @classmethod
    def parse(cls, text: str) -> CommandLauncher:
        """From one string, split as a shell would."""
        try:
            return cls(shlex.split(text))
        except ValueError as error:
            raise SettingsError(f"the driver's command line {text!r}: {error}") from error

    @property
    def instances(self) -> bool:
        """Whether the driver can be told its pod's UID."""
        return self._asks_uid or self._with_uid is not None

    def start(self, site: Site, pod_uid: str) -> Process:
        """Start an instance; SettingsError where the command cannot be run."""
        values = _values(site, pod_uid or (ONE_POD if self._asks_uid else ""))
        command = [_filled(part, values) for part in self._command]
        if pod_uid and self._with_uid is not None:
            command += [_filled(part, values) for part in self._with_uid]
        return ChildProcess(command, {**os.environ, **_environment(values)})


class ChildProcess:
    """A child of this process; what it prints goes to an unnamed file."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process ends)
        self._last = ""
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, env=environment
            )
        except OSError as error:
            self._output.close()
            raise SettingsError(f"cannot run {command[0]}: {error.strerror}") from error

    def ended(self) -> str:
        """How it ended by itself."""
        status = self._process.poll()
        if status is None:
            return ""
        return f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"

    def terminate(self, timeout: float) -> bool:
        """Send SIGTERM and wait."""
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
        """Its last lines."""
        if self._output.closed:
            return self._last
        # pread leaves the offset alone, at which the child writes.
        size = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), LOG_BYTES, max(0, size - LOG_BYTES))
        return "\n".join(data.decode(errors="replace").splitlines()[-LOG_LINES:])

    def open_files(self) -> int | None:
        """The number of its file descriptors; None where the kernel does not say."""
        try:
            return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))
        except OSError:
            return None

    def _close(self) -> None:
        self._last = self.log()
        self._output.close()


def sdk_command(driver: str) -> CommandLauncher:
    """A driver of this SDK, as `dra-sdk run` runs it."""
    command = [sys.executable, "-m", "dra_sdk.cli.main", "run", driver, "--kubeconfig={kubeconfig}"]
    command += ["--kubelet-dir={kubelet_dir}", "--cdi-dir={cdi_dir}", "--node-name={node_name}"]
    return CommandLauncher([*command, "--host-root={host_root}"], with_uid=["--pod-uid={pod_uid}"])


def _values(site: Site, pod_uid: str) -> dict[str, str]:
    return {
        "kubeconfig": str(site.kubeconfig or ""),
        "kubelet_dir": str(site.kubelet_dir),
        "registry_dir": str(site.registry_dir),
        "plugins_dir": str(site.plugins_dir),
        "cdi_dir": str(site.cdi_dir),
        "node_name": site.node,
        "host_root": str(site.host_root),
        "pod_uid": pod_uid,
    }


def _environment(values: dict[str, str]) -> dict[str, str]:
    named = {
        "KUBECONFIG": values["kubeconfig"],
        "NODE_NAME": values["node_name"],
        "POD_UID": values["pod_uid"],
        "CDI_ROOT": values["cdi_dir"],
        "KUBELET_REGISTRAR_DIRECTORY_PATH": values["registry_dir"],
        "KUBELET_PLUGINS_DIRECTORY_PATH": values["plugins_dir"],
    }
    return {name: value for name, value in named.items() if value}


def _filled(part: str, values: dict[str, str]) -> str:
    for name in PLACEHOLDERS:
        part = part.replace(f"{{{name}}}", values[name])
    return part
