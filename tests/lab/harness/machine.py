"""Boots the machine for one run of pytest inside it, and always takes it away again.

QEMU runs with the machine's own system as its root, in namespaces of its own without a network; the checkout is there
read-only. What the machine writes lands in a temporary directory.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.cluster.harness.errors import HarnessError
from tests.lab.harness import outcome
from tests.lab.harness.contained import entered
from tests.lab.harness.hardware import Hardware, command
from tests.lab.harness.initrd import initrd, kernel_release
from tests.lab.harness.layers import CHECKOUT, PYTHON, RESULTS, remove_unused
from tests.lab.harness.watch import wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.cluster.harness.progress import Progress
    from tests.lab.harness.layers import Layers
    from tests.lab.harness.outcome import Outcome

TIME = 1200.0
"""Seconds for a whole run: six minutes were seen on two busy cores, because every instruction is emulated."""
SILENCE = 180.0
"""Seconds after the last line of the console, and the last beat that `guest/second` writes each five of its seconds."""
_BEAT, _INITRD = "beat", "initrd"
_PREFIX = "dra-sdk-lab-"
_GRACE = 10.0  # seconds from the kill until all is gone, and from the birth of a directory to its lock
_SHOWN = 100  # characters of a line of the console


def run_tests(
    layers: Layers,
    checkout: Path,
    arguments: Sequence[str],
    progress: Progress,
    *,
    hardware: Hardware | None = None,
    seconds: float = TIME,
    silence: float = SILENCE,
) -> Outcome:
    """Boots, runs `pytest` with these arguments in the checkout, powers off, and tells what came of it.

    A machine that takes longer than `seconds`, or gives no sign of life for `silence` seconds, is ended.
    """
    with _directory() as results, layers.in_use():
        (results / "arguments").write_text("".join(f"{each}\n" for each in arguments))
        (results / _INITRD).write_bytes(initrd(layers.base))
        qemu = command(
            hardware or Hardware(),
            kernel=f"/boot/vmlinuz-{kernel_release(layers.base)}",
            initrd=f"{RESULTS}/{_INITRD}",
            results=RESULTS,
        )
        shares = {CHECKOUT: checkout, PYTHON: layers.python}
        with progress.step("running tests in the virtual machine") as step:

            def show(line: str) -> None:
                step.detail = line[:_SHOWN]
                progress.debug(line)

            line = entered(layers.base, qemu, read=shares, write={RESULTS: results})
            console, why = _run(line, results / _BEAT, show, seconds=seconds, silence=silence)
        return outcome.read(results, console, why)


@contextmanager
def _directory() -> Iterator[Path]:
    """What the machine writes to. What one left that was killed goes, too: nobody holds its lock any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):  # another run was faster
            if time.time() - path.stat().st_mtime > _GRACE:  # else it may not have its lock yet
                remove_unused(path)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary:
        handle = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield Path(temporary)
        finally:
            os.close(handle)


def _run(
    line: Sequence[str], beat: Path, show: Callable[[str], None], *, seconds: float, silence: float
) -> tuple[str, str]:
    """The console, and why the machine ended where it did not power off by itself."""
    lines: list[str] = []
    process = subprocess.Popen(
        line,
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
        why = wait(process, lambda: (len(lines), _written(beat)), seconds=seconds, silence=silence)
    finally:
        process.kill()  # with it goes all that runs below it
        process.wait(_GRACE)
        reader.join(_GRACE)
        process.stdout.close()
    return "\n".join(lines), why


def _written(path: Path) -> int:
    """When, in ns; 0 where it is not there yet."""
    return path.stat().st_mtime_ns if path.exists() else 0


def _read(console: IO[str], lines: list[str], show: Callable[[str], None]) -> None:
    for line in console:
        text = line.rstrip()
        lines.append(text)
        if text:
            show(text)
