"""A pytest plugin, `-p dra_sdk.testing.leftovers`: tests may leave no thread, process, socket, temporary file or mount.

The run fails otherwise. The check runs once, at the end of the session, as the teardown of a session fixture; with
pytest-xdist, once in each worker. After each test it only notes what is new, so that the failure can name the test.

Temporary files are those that Python's `tempfile` makes in this process, outside pytest's own directory. A variable of
the environment marks the processes of the tests, so they are found also if their parent has ended.
"""

from __future__ import annotations

import gc
import os
import secrets
import sys
import threading
from collections.abc import Generator, Hashable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import pytest

from dra_sdk.hardware.node_access import SystemEffects

LIMIT = 30.0
"""Seconds that threads and processes have to end after the last test. Nothing takes that long on a busy machine."""
VARIABLE: Final = "DRA_SDK_TESTS"
"""The environment variable that marks the processes of a session, and those that they start."""
TEMPROOT: Final = "PYTEST_DEBUG_TEMPROOT"
"""The environment variable that names the directory in which pytest makes its temporary directories."""
TEMPORARY: Final = frozenset({"tempfile.mkdtemp", "tempfile.mkstemp"})
"""Audit events of Python; their argument is the path (docs.python.org/3/library/audit_events.html)."""


class Leftovers:
    """What is there now and was not there when the tests began.

    base: pytest's temporary directory. pytest keeps it after the run, so its files do not count, but its mounts do.
    mark: the value of VARIABLE for this session.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.mark = secrets.token_hex()
        self._first_seen: dict[Hashable, str] = {}
        self._threads = set(threading.enumerate())
        self._sockets = set(_sockets())
        self._temporary: list[Path] = []
        sys.addaudithook(self._audit)

    def note(self, test: str) -> None:
        """Remember `test` as the first one after which something was there."""
        for path in [path for path in self._temporary if not os.path.lexists(path)]:
            self._temporary.remove(path)
        for thing in self._quickly_found():
            self._first_seen.setdefault(thing, test)

    def found(self) -> list[str]:
        """Return a line for each thing that is left, with the first test after which it was there."""
        quick = {thing: text for thing, text in self._quickly_found().items() if _still_there(thing)}
        seen = {thing: self._first_seen.get(thing, "the tests") for thing in quick}
        lines = [f"{text}, first seen after {seen[thing]}" for thing, text in quick.items()]
        return [*lines, *self._processes(), *self._mounts()]

    def _quickly_found(self) -> dict[Hashable, str]:
        new = [thread for thread in threading.enumerate() if thread not in self._threads]
        opened = [socket for socket in _sockets() if socket not in self._sockets]
        files = [path for path in self._temporary if os.path.lexists(path)]
        return {
            **{thread: f"thread {thread.name}" for thread in new},
            **{socket: f"open {socket}{_addresses(socket)}" for socket in opened},
            **{path: f"temporary file {path}" for path in files},
        }

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in TEMPORARY and self.base not in (path := Path(os.fsdecode(arguments[0]))).parents:
            self._temporary.append(path)

    def _processes(self) -> list[str]:
        lines = []
        for pid in SystemEffects().running(f"{VARIABLE}={self.mark}"):
            with suppress(OSError):  # it has ended
                folder = Path("/proc", str(pid))
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                lines.append(f"process {pid} ({command[:200]}), started by {_test_of(environment)}")
        return lines

    def _mounts(self) -> list[str]:
        points = [Path(line.split(" ")[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [f"mount at {point}" for point in points if self.base in point.parents]


def _still_there(thing: Hashable) -> bool:
    return not isinstance(thing, threading.Thread) or thing.is_alive()


def _sockets() -> Iterator[str]:
    """Yield the sockets that this process has open, as `/proc` names them: `socket:[4711]`."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread closed it
            target = str(link.readlink())
            if target.startswith("socket:"):
                yield target


def _addresses(socket: str) -> str:
    """Return the line about a socket in /proc/net (proc(5)): its addresses, or its path; empty if there is none."""
    inode = socket.removeprefix("socket:[").removesuffix("]")
    for table in ("unix", "tcp", "tcp6", "udp", "udp6"):
        for line in Path("/proc/net", table).read_text().splitlines():
            if inode in line.split():
                return f" ({table} {' '.join(line.split()[1:])})"
    return ""


def _test_of(environment: list[bytes]) -> str:
    """Return the test that started a process, from the variable that pytest sets."""
    for variable in environment:
        name, _, value = variable.partition(b"=")
        if name == b"PYTEST_CURRENT_TEST":
            return value.decode(errors="replace").rpartition(" ")[0]
    return "the session"


def wait_until_nothing_is_left(leftovers: Leftovers) -> list[str]:
    """Return what is still left after LIMIT; empty as soon as nothing is."""
    deadline = monotonic() + LIMIT
    while left := leftovers.found():
        if monotonic() > deadline:
            return left
        gc.collect()  # closes what only a reference cycle still holds
        sleep(0.05)
    return []


LEFTOVERS: Final = pytest.StashKey[Leftovers]()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the session if anything is left after its last test."""
    leftovers = request.config.stash[LEFTOVERS] = Leftovers(tmp_path_factory.getbasetemp())
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv(VARIABLE, leftovers.mark)
        # Else a pytest that a test starts removes what other sessions left, for minutes, and what a developer needs.
        changed.setenv(TEMPROOT, str(leftovers.base))
        yield
        left = wait_until_nothing_is_left(leftovers)
    if left:
        pytest.fail("the tests left behind:\n" + "\n".join(left), pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Note what is new after a test and its fixtures."""
    try:
        return (yield)
    finally:
        if (leftovers := item.config.stash.get(LEFTOVERS, None)) is not None:
            leftovers.note(item.nodeid)
