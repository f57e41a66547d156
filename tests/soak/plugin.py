"""A pytest plugin for one round of a soak: logs each test, and whether it starts threads, sockets or processes.

    python -m pytest -p tests.soak.plugin --soak-log=FILE [--soak-only=FILE] …

The log has a JSON object in each line: `{"began": test}` before a test, `{"ended": test, "concurrent": true}` after
it, and `{"failed": test, "when": "call"}` for each phase that failed. A test is concurrent if it, or a fixture that it
uses, starts a thread, opens a socket or starts a process. So the log of one round of all tests tells which tests are
worth repeating, and nobody has to keep a list.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

EVENTS: Final = frozenset({"socket.__new__", "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
"""Audit events of Python that mean a socket or a process (docs.python.org/3/library/audit_events.html)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    group.addoption("--soak-log", type=Path, help="the file to which each test is logged")
    group.addoption("--soak-only", type=Path, help="a file with the node ids of the tests to run, one in each line")


def pytest_configure(config: pytest.Config) -> None:
    if log := config.getoption("--soak-log"):
        config.pluginmanager.register(Recorder(log), "soak-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if only := config.getoption("--soak-only"):
        wanted = set(only.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = [item for item in items if item.nodeid in wanted]


class Activity:
    """Counts the threads, sockets and processes that this Python process starts.

    count: how many, up to now.
    """

    def __init__(self) -> None:
        self.count = 0
        start = threading.Thread.start

        def count_and_start(thread: threading.Thread) -> None:
            self.count += 1
            start(thread)

        threading.Thread.start = count_and_start  # type: ignore[method-assign]  # Python 3.11 has no event for it
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in EVENTS:
            self.count += 1


class Recorder:
    """Writes the log."""

    def __init__(self, log: Path) -> None:
        self._file = log.open("a", buffering=1)  # each line at once, so that a crash loses none
        self._activity = Activity()
        self._fixtures: set[tuple[str, str]] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Remembers a shared fixture with threads, sockets or processes: each test that uses it is concurrent."""
        before = self._activity.count
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function" and self._activity.count != before:
                self._fixtures.add((fixturedef.baseid, fixturedef.argname))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Logs the test before and after it runs."""
        self._write(began=item.nodeid)
        before = self._activity.count
        try:
            return (yield)
        finally:
            self._write(ended=item.nodeid, concurrent=self._activity.count != before or self._uses_fixture(item))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Logs a failure."""
        if report.failed:
            self._write(failed=report.nodeid, when=report.when)

    def pytest_unconfigure(self) -> None:
        """Closes the log."""
        self._file.close()

    def _uses_fixture(self, item: pytest.Item) -> bool:
        names = getattr(item, "fixturenames", ())  # a doctest has none
        return any(name in names and item.nodeid.startswith(base) for base, name in self._fixtures)

    def _write(self, **line: object) -> None:
        self._file.write(json.dumps(line) + "\n")
