"""`python -m tests.bench.size`: time and memory of `dra-sdk simulate` for large clusters, beside the limits for them.

The inputs are made in a temporary directory. Each case runs the real command in a process of its own; its processor
time and its largest resident set are what the kernel counted for it (wait4).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.large_cluster import (
    DRIVER,
    FIXTURE,
    MODEL_NODE,
    SETTINGS,
    write_json,
    write_workloads,
    write_yaml,
)
from tests.bench.machine import processor

_MB: Final = 1_000_000
_HEAD: Final = (
    f"{'case':<10} {'nodes':>6} {'pods':>6} {'input':>9} {'wall, s':>8} {'cpu, s':>7} {'peak, MB':>9}   limit"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the command, and what it may need.

    name: its name on the command line.
    nodes, pods: the size of the cluster; each node has a pod of a DaemonSet in addition.
    seconds: the most wall time, on two cores without other work.
    megabytes: the most memory, as the peak of the resident set.
    write: makes the input file for so many nodes and pods.
    """

    name: str
    nodes: int
    pods: int
    seconds: int
    megabytes: int
    write: Callable[[Path, int, int], None]

    @property
    def form(self) -> str:
        """The format of its input."""
        return "json" if self.name.startswith("json") else "yaml"

    def command(self, path: Path) -> list[str]:
        """The command line."""
        command = [str(Path(sys.executable).with_name("dra-sdk")), "simulate", str(path)]
        if self.name == "fixture":
            command += ["--driver", DRIVER, "--fixture", FIXTURE, "--node", MODEL_NODE]
            command += ["--add-nodes", f"{self.nodes - 1}={MODEL_NODE}"]
        return command


CASES: Final = (
    Case("fixture", 5000, 10_000, 60, 1000, lambda path, _, pods: write_workloads(path, pods)),
    Case("json", 5000, 10_000, 300, 2500, write_json),
    Case("yaml-500", 500, 2000, 40, 500, write_yaml),
    Case("json-500", 500, 2000, 20, 500, write_json),
)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one run needed: seconds of wall and processor time, megabytes of the largest resident set."""

    wall: float
    processor: float
    megabytes: float
    status: int


def run(command: list[str], output: Path) -> Usage:
    """Run a command with its standard output in a file; standard error stays that of this process."""
    environment = {**os.environ, **SETTINGS}
    writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    began = time.perf_counter()
    child = os.posix_spawn(
        command[0], command, environment, file_actions=[(os.POSIX_SPAWN_OPEN, 1, output, writing, 0o600)]
    )
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - began
    megabytes = used.ru_maxrss * 1024 / _MB
    return Usage(wall, used.ru_utime + used.ru_stime, megabytes, os.waitstatus_to_exitcode(status))


def row(case: Case, used: Usage, size: int) -> str:
    """A line of the table."""
    missed = [
        f"{what} {have / limit:.1f} times the limit"
        for what, have, limit in (("time", used.wall, case.seconds), ("memory", used.megabytes, case.megabytes))
        if have > limit
    ]
    verdict = "; ".join(missed) or "within"
    if used.status not in {0, 1}:
        verdict = f"FAILED, status {used.status}"
    limit = f"{case.seconds} s, {case.megabytes} MB: {verdict}"
    counts = f"{case.name:<10} {case.nodes:>6} {case.pods:>6} {size / _MB:>6.0f} MB"
    return f"{counts} {used.wall:>8.1f} {used.processor:>7.1f} {used.megabytes:>9.0f}   {limit}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where a case is not within its limits."""
    parser = argparse.ArgumentParser("python -m tests.bench.size", description=__doc__)
    parser.add_argument("--case", action="append", choices=[each.name for each in CASES], help="only this; repeatable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where inputs and outputs stay, and are used again")
    chosen = parser.parse_args(arguments)
    print(f"{processor()}; load {os.getloadavg()[0]:.1f} at the start\n\n{_HEAD}", flush=True)
    within = True
    with tempfile.TemporaryDirectory(prefix="dra-size-") as temporary:
        folder = chosen.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in CASES:
            if chosen.case and case.name not in chosen.case:
                continue
            path = folder / f"{case.name}.{case.form}"
            if not path.exists():
                case.write(path, case.nodes, case.pods)
            used = run(case.command(path), folder / f"{case.name}.out")
            print(row(case, used, path.stat().st_size), flush=True)
            within &= used.status in {0, 1} and used.wall <= case.seconds and used.megabytes <= case.megabytes
            if chosen.keep is None:
                path.unlink()
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
