"""Records commands of `dra-sdk` as pictures of a terminal: `make recordings` writes docs/recordings/*.svg.

Each command runs as a user types it, in a pseudo-terminal of a fixed size, on a machine made of files: two sockets with
eight cores each. So a picture is the same wherever it is made, as far as the command's output is.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dra_driver_cpu import CpuDriver

from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.sysfs import regular_machine

ROOT: Final = Path(__file__).parents[2]
DIRECTORY: Final = ROOT / "docs/recordings"
COLUMNS: Final = 112
ROWS: Final = 40
"""A longer output is cut in the middle."""


_SLOW: Final = re.compile("note: still waiting for ")
_ERASED: Final = re.compile(r"[^\n]*\r\x1b\[K")
"""What commands say on a machine that has other work: in a line of its own, or in one that they erase afterwards."""


@dataclass(frozen=True)
class Recording:
    """A picture.

    name: of the file.
    command: what is typed, and shown.
    title: of the window.
    status: the exit status.
    head, tail: how many lines of a longer output are shown at its beginning and its end.
    """

    name: str
    command: str
    title: str
    status: int = 0
    head: int = ROWS
    tail: int = 0


_CHANGING: Final = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "7fe72a71-fa34-41be-8dfe-856703ddd0c6"),
    (re.compile(r"(?<=/tmp/)dra-\w{8}"), "dra-ar8cbybx"),
    (re.compile(r"\b\d+(\.\d+)? (m?s)\b"), r"… \2"),
)
"""UIDs, temporary directories, durations."""

RECORDINGS: Final = (
    Recording("demo", "dra-sdk demo cpu --host-root server", "the whole life of a claim", head=34, tail=12),
    Recording("explain", "dra-sdk explain pizza.yaml --claim default/dave", "why a claim gets nothing", 1),
    Recording(
        "simulate",
        "dra-sdk simulate classes.yaml nodes/mig-dynamic.yaml gpu-use-cases/10-dynamic-mig.yaml",
        "who gets what, as kube-scheduler would decide",
        1,
    ),
    Recording(
        "top", "dra-sdk cpu top --host-root server --kubelet-dir kubelet --node-name node-1", "who has which CPU"
    ),
    Recording(
        "conformance",
        "dra-sdk conformance --driver cpu --host-root server --level wire,prepare",
        "is a driver a good citizen",
        head=24,
        tail=8,
    ),
)


@contextmanager
def machine() -> Iterator[Path]:
    """Yield a directory with the examples, and with a server whose CPU driver has prepared two claims."""
    with TemporaryDirectory(prefix="rec-") as temporary:
        directory = Path(temporary)
        for path in (ROOT / "docs/examples").iterdir():
            (directory / path.name).symlink_to(path)
        node = FakeNode(directory / "fake")
        node.machine(regular_machine(sockets=2, l3_caches=2, cores=8))
        driver = DriverHarness(CpuDriver, node)
        for name, cpus in (("db", 6), ("web", 10)):
            wanted = claim(request("cpus", capacity={"dra.cpu/cpu": str(cpus)}), name=name)
            driver.prepare(replace(wanted, uid=f"{name}-0001"))  # `cpu top` lists claims by their UIDs
        (directory / "server").symlink_to(node.root)
        (directory / "kubelet").symlink_to(driver.data.parents[1])
        yield directory


def run(recording: Recording, directory: Path) -> tuple[int, str]:
    """Type the command in a terminal of the fixed width; return its exit status and all that appears."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    environment.pop("COLUMNS", None)
    _, *arguments = shlex.split(recording.command)
    command = [sys.executable, "-m", "dra_sdk.cli.main", *arguments]  # where `dra-sdk` is not installed, too
    process = subprocess.Popen(command, cwd=directory, env=environment, stdin=side, stdout=side, stderr=side)
    os.close(side)
    output = b""
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        while chunk := _read(screen):
            output += chunk
    return process.wait(), output.decode().replace("\r\n", "\n")


def _read(screen: io.FileIO) -> bytes:
    try:
        return screen.read(65536)
    except OSError:  # Linux reports the end of a terminal whose other side is closed as EIO
        return b""


def shown(recording: Recording, output: str) -> list[str]:
    """Return the lines of the picture: the command, and its output without the middle of a long one.

    What differs from run to run is replaced, so that `make recordings` changes a picture only with its command.
    """
    output = _ERASED.sub("", output)
    for pattern, replacement in _CHANGING:
        output = pattern.sub(replacement, output)
    lines = [line for line in output.rstrip("\n").split("\n") if not _SLOW.match(line)]
    if len(lines) > recording.head + recording.tail:
        end = lines[-recording.tail :] if recording.tail else []
        lines = [*lines[: recording.head], "…", *end]
    return [f"$ {recording.command}", *lines]


def write(recording: Recording, lines: list[str]) -> Path:
    """Return the picture as a file, without fonts or scripts from elsewhere."""
    from rich.console import Console  # noqa: PLC0415 (of the extra `docs`)
    from rich.terminal_theme import DIMMED_MONOKAI  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for line in lines:
        console.print(Text.from_ansi(line), overflow="ellipsis", no_wrap=True, highlight=False)
    path = DIRECTORY / f"{recording.name}.svg"
    text = console.export_svg(
        title=recording.title, theme=DIMMED_MONOKAI, code_format=_SVG, unique_id=f"rec-{recording.name}"
    )
    path.write_text(text, encoding="utf-8")
    return path


_SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    with machine() as place:
        for recording in RECORDINGS:
            status, output = run(recording, place)
            if status != recording.status:
                sys.exit(f"{recording.command}: exit status {status}, want {recording.status}\n{output}")
            print(write(recording, shown(recording, output)).relative_to(ROOT))
