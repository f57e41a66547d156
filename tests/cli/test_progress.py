from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from threading import Event

import pytest

from dra_sdk.cli.progress import Progress, phase


class Terminal(io.StringIO):
    """A terminal that says when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        self.written.set()
        return written


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


def test_what_takes_long_is_told_and_then_cleared():
    stream = Terminal()
    with phase("scheduling pods", first=0, stream=stream) as pods:
        pods.count(3, 10)
        assert stream.written.wait(30)
    assert stream.getvalue().startswith("\r\033[Kscheduling pods: ")
    assert stream.getvalue().endswith("\r\033[K")


def test_what_is_short_is_not_told():
    stream = Terminal()
    with phase("reading", first=30, stream=stream):
        pass
    assert not stream.getvalue()


@pytest.mark.parametrize("dumb", [True, False])
def test_only_a_terminal_is_told(monkeypatch, dumb):
    stream = Terminal() if dumb else io.StringIO()
    if dumb:
        monkeypatch.setenv("TERM", "dumb")
    with phase("reading", first=0, stream=stream) as reads:
        reads.count(1)
    assert not stream.getvalue()


def test_the_line():
    reads = Progress("reading a.json")
    assert reads.line == "reading a.json: 0 s"
    reads.count(7)
    assert reads.line == "reading a.json: 7, 0 s"
    reads.count(7, 9)
    assert reads.line == "reading a.json: 7 of 9, 0 s"
    reads.count_bytes(500, 1000)
    assert reads.line == "reading a.json: 50 of 100, 0 s"


def test_an_error_ends_the_line():
    stream = Terminal()

    def fail() -> None:
        with phase("reading", first=0, stream=stream):
            assert stream.written.wait(30)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert stream.getvalue().endswith("\r\033[K")


SCRIPT = """
from dra_sdk.cli import progress, simulate
progress.phase.__wrapped__.__kwdefaults__["first"] = 0.0
from dra_sdk.cli.main import main
raise SystemExit(main(["simulate", "docs/examples/classes.yaml", "docs/examples/pizza.yaml"]))
"""


def test_a_simulation_tells_each_part_on_a_terminal():
    """The command, in a process whose stderr is a terminal and for which nothing is short."""
    mine, its = pty.openpty()
    command = [sys.executable, "-c", SCRIPT]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its) as running:
            os.close(its)
            told = b""
            while chunk := _read(mine):  # while it runs, because a terminal holds little that nobody reads
                told += chunk
            answer, _ = running.communicate(timeout=120)
    finally:
        os.close(mine)
    assert running.returncode == 1
    for part in (b"reading docs/examples/pizza.yaml", b"reading objects", b"scheduling pods", b"trying more nodes"):
        assert part in told
    assert b"\033" not in answer


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
