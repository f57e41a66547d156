"""The two sides: how each driver is started, where it lives, and what the kernel says about its process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import pydriver
from tests.cluster.harness.errors import HarnessError

NODE = "bench-node"
_CHECKOUT = Path(__file__).parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
_STOP_PATIENCE = 30.0


@dataclass(frozen=True)
class Dirs:
    """The directories of one driver; `kubelet` is the root of its own emulated kubelet."""

    kubelet: Path
    cdi: Path
    log: Path

    @property
    def registry(self) -> Path:
        """Where the kubelet looks for registration sockets."""
        return self.kubelet / "plugins_registry"

    def plugin(self, driver: str) -> Path:
        """What belongs to the driver alone."""
        return self.kubelet / "plugins" / driver

    def clear(self, driver: str) -> None:
        """As on a node where the driver never ran."""
        for folder in (self.plugin(driver), self.cdi):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.registry, self.plugin(driver), self.cdi):
            folder.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class Contestant:
    """One side: `label` heads its column; `user` is who it is at the API server."""

    label: str
    user: str
    driver: str
    dirs: Dirs
    command: Callable[[int], list[str]]
    environment: Callable[[int], dict[str, str]] = field(default=lambda _devices: {})

    def start(self, devices: int) -> Running:
        """Start the driver with that many devices, on a clean node."""
        self.dirs.clear(self.driver)
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        with self.dirs.log.open("ab") as log:
            began = time.monotonic()
            process = subprocess.Popen(
                self.command(devices),
                cwd=_CHECKOUT,
                env={**inherited, **self.environment(devices)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return Running(self, process, began)


@dataclass(frozen=True)
class Running:
    """A driver's process; `began` is by `time.monotonic()`, just before it was started."""

    contestant: Contestant
    process: subprocess.Popen[bytes]
    began: float

    def check(self) -> None:
        """HarnessError with the end of its log if it ended by itself."""
        if self.process.poll() is not None:
            text = self.contestant.dirs.log.read_text(errors="replace").splitlines()[-20:]
            raise HarnessError(
                f"the {self.contestant.label} driver ended with {self.process.returncode}; its log ends:\n"
                + "\n".join(text)
            )

    def stop(self) -> float:
        """End it with SIGTERM; the seconds that took. HarnessError if it does not end, or not well."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(_STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise HarnessError(f"the {self.contestant.label} driver did not end on SIGTERM") from None
        if status != 0:
            raise HarnessError(f"the {self.contestant.label} driver ended with status {status} on SIGTERM")
        return time.monotonic() - began

    def kill(self) -> None:
        """End it at once, whatever state it is in."""
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far, in steps of the kernel's tick (10 ms)."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS

    def rss_mib(self) -> float:
        """Resident memory in MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise HarnessError(f"process {self.process.pid} has no VmRSS; it has ended")


def python_side(root: Path, cdi: Path, kubeconfig: Path, user: str, *, trace: Path | None = None) -> Contestant:
    """The driver on dra_sdk, run as `dra-sdk run` runs it; with `trace`, its steps are timed and written there."""
    driver = "python.bench.dra-sdk.example"
    dirs = Dirs(root / "py", cdi / "py", root / "python.log")
    program = ["tests.bench.traced", str(trace)] if trace else ["dra_sdk.cli.main"]
    command = [
        sys.executable,
        "-m",
        *program,
        "run",
        "tests.bench.pydriver:BenchDriver",
        f"--node-name={NODE}",
        f"--kubeconfig={kubeconfig}",
        f"--kubelet-dir={dirs.kubelet}",
    ]
    command += [f"--cdi-dir={dirs.cdi}"]
    return Contestant(
        "dra_sdk",
        user,
        driver,
        dirs,
        lambda _devices: command,
        lambda devices: {pydriver.NAME_VARIABLE: driver, pydriver.DEVICES_VARIABLE: str(devices)},
    )


def go_side(root: Path, cdi: Path, kubeconfig: Path, user: str, binary: Path, *, write_ahead: bool) -> Contestant:
    """The driver on the Go library."""
    driver = "go.bench.dra-sdk.example"
    dirs = Dirs(root / "go", cdi / "go", root / "go.log")
    command = [str(binary), f"--driver-name={driver}", f"--node-name={NODE}", f"--kubeconfig={kubeconfig}"]
    command += [f"--registry-dir={dirs.registry}", f"--plugin-dir={dirs.plugin(driver)}", f"--cdi-dir={dirs.cdi}"]
    command += ["--write-ahead"] if write_ahead else []
    return Contestant("Go", user, driver, dirs, lambda devices: [*command, f"--devices={devices}"])
