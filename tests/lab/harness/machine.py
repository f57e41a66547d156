"""Boots the virtual machine for runs of pytest inside it, and always removes it afterwards.

QEMU runs with the machine's own system as its root directory, in namespaces of its own; without a control plane to
join, it has no network. The machine sees the checkout read-only, and writes its results to a temporary directory.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from tests.cluster.harness.errors import HarnessError
from tests.lab.harness import outcome
from tests.lab.harness.hardware import Hardware, command, disk, network
from tests.lab.harness.initrd import initrd, kernel_release
from tests.lab.harness.layers import CHECKOUT, PYTHON, RESULTS, in_root, temporary_directory
from tests.lab.harness.plane import ADDRESS, PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    from tests.cluster.harness.progress import Progress, Step
    from tests.lab.harness.layers import Layers
    from tests.lab.harness.outcome import Outcome
    from tests.lab.harness.plane import NodePlane

TIME_LIMIT = 5400.0
"""Seconds for all boots. They take ten minutes of a processor, because every instruction is emulated; half an hour on a
machine with ten other processes for each core."""
SILENCE_LIMIT = 300.0
"""Seconds without a new line of the console and without a heartbeat, which `guest/run-tests` writes every 5 seconds."""
_HEARTBEAT, _INITRD, _DISK = "heartbeat", "initrd", "disk"
_DISK_SIZE = 2 << 30  # bytes; only those that the machine writes take room
_GRACE = 10.0
"""Seconds until a killed machine is gone."""
_CHECK_INTERVAL = 0.5  # seconds
_DETAIL_LENGTH = 100  # characters of the console in the progress line


@dataclass(frozen=True)
class Limits:
    """How long the machine may take, in seconds.

    total: for all boots together.
    silence: without a sign of life.
    """

    total: float = TIME_LIMIT
    silence: float = SILENCE_LIMIT


def run_tests(
    layers: Layers,
    checkout: Path,
    boots: Sequence[Sequence[str]],
    progress: Progress,
    *,
    plane: NodePlane | None = None,
    hardware: Hardware | None = None,
    limits: Limits | None = None,
) -> Outcome:
    """Boots the machine for each item of `boots`, which are arguments for pytest in the checkout; returns all results.

    The tests can join the machine to `plane`; what the node keeps on its disk is there at the next boot. Without a
    plane, the machine has neither network nor disk. A machine that runs longer than its limits, or shows no sign of
    life, is killed; the outcome then says so, has the console up to that moment, and no further boot follows.
    """
    allowed = limits or Limits()
    end, found = time.monotonic() + allowed.total, outcome.NOTHING
    with temporary_directory() as results, layers.in_use():
        (results / _INITRD).write_bytes(initrd(layers.base))
        more = _joined(plane, results) if plane else []
        qemu = command(
            hardware or Hardware(),
            kernel=f"/boot/vmlinuz-{kernel_release(layers.base)}",
            initrd=f"{RESULTS}/{_INITRD}",
            results=RESULTS,
            more=more,
        )
        read = {CHECKOUT: checkout, PYTHON: layers.python, **(plane.read if plane else {})}
        words = in_root(layers.base, qemu, read=read, write={RESULTS: results}, network=plane is not None)
        for number, arguments in enumerate(boots, 1):
            (results / "arguments").write_text("".join(f"{each}\n" for each in arguments))
            title = "running tests in the virtual machine" + (f", boot {number}" if number > 1 else "")
            with progress.step(title) as step:

                def show(line: str, step: Step = step) -> None:
                    step.detail = line[:_DETAIL_LENGTH]
                    progress.debug(line)

                console, why = _run(words, results / _HEARTBEAT, show, end, allowed)
            found = found.and_then(outcome.read(results, console, why))
            if found.status is None:
                break
            outcome.clear(results)
    return found


def _joined(plane: NodePlane, results: Path) -> list[str]:
    """Returns the arguments for a machine that can join a control plane; writes what it needs to its results."""
    plane.hand_over(results)
    with (results / _DISK).open("xb") as file:
        file.truncate(_DISK_SIZE)
    return [*network(ADDRESS, PORT, plane.port), *disk(f"{RESULTS}/{_DISK}")]


def _run(
    words: Sequence[str], heartbeat: Path, show: Callable[[str], None], end: float, limits: Limits
) -> tuple[str, str]:
    """Runs QEMU; returns the console, and why the machine ended if it did not power off by itself."""
    lines: list[str] = []
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if process.stdout is None:
        raise HarnessError("the machine has no console")
    reader = threading.Thread(target=_read, args=(process.stdout, lines, show), name="console", daemon=True)
    reader.start()
    try:
        why = wait(process, lambda: (len(lines), _modified(heartbeat)), end, limits)
    finally:
        process.kill()  # everything below it ends with it
        process.wait(_GRACE)
        reader.join(_GRACE)
        process.stdout.close()
    return "\n".join(lines), why


def wait(process: subprocess.Popen[str], sign: Callable[[], Hashable], end: float, limits: Limits) -> str:
    """Waits until the process ends, until `end` on the monotonic clock, or while `sign` returns something new.

    Returns why the process did not end well; empty if it did. It still runs if it did not end by itself.
    A kernel that notices that it hangs panics, which ends QEMU. The silence shows one that does nothing at all.
    """
    now = time.monotonic()
    last, since = sign(), now
    while now < end:
        try:
            status = process.wait(_CHECK_INTERVAL)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        else:
            return f"QEMU ended with status {status}" if status else ""
        if (current := sign()) != last:
            last, since = current, now
        elif now - since > limits.silence:
            return f"the machine was killed after {limits.silence:g} s without a sign of life"
    return f"the machine was killed after {limits.total:g} s"


def _modified(path: Path) -> int:
    """Returns when a file was written last, in ns; 0 if it does not exist yet."""
    return path.stat().st_mtime_ns if path.exists() else 0


def _read(console: IO[str], lines: list[str], show: Callable[[str], None]) -> None:
    for line in console:
        text = line.rstrip()
        lines.append(text)
        if text:
            show(text)
