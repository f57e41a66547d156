"""Fixtures for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import vectors

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")  # how long an example takes is the machine's affair


@pytest.fixture
def bare_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pytest that the test starts has only the plugins that it names; the others take half of its time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def socket_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short path: a socket's has at most 107 bytes, and `tmp_path` holds the name of the test."""
    return tmp_path_factory.mktemp("s")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of the upstream tables where these are absent."""
    return True if vectors.are_missing() and vectors.needed_by(collection_path) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what tests have to tell when they pass, too, and once that the upstream tables are absent."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, text in report.user_properties:
                    if name == "told":
                        terminalreporter.write_line(text)
    if vectors.are_missing():
        terminalreporter.write_line(
            f"The upstream tables are absent ({vectors.ROOT}; DRA_SDK_VECTORS names another folder): "
            f"the tests in {vectors.PATTERN} were left out."
        )
