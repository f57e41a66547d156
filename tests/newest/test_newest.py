"""What the system with the newest Python gets, and what comes back. A shell script stands for it."""

from __future__ import annotations

import pytest

from tests.lab.harness.layers import CHECKOUT, PYTHON, Layers
from tests.newest import __main__ as newest


@pytest.fixture
def layers(tmp_path):
    found = Layers(tmp_path / "base", tmp_path / "python")
    for path in (found.base, found.python):
        path.mkdir()
    return found


@pytest.fixture
def mounts(monkeypatch):
    """Runs `echo` in place of the system; holds what would be mounted there."""
    found = {}

    def in_root(root, command, *, read, write):
        found.update(read=read, write=write)
        return [
            "sh",
            "-c",
            'printf "%s\\n" "$@" "tables: ${DRA_SDK_VECTORS-none}" "$(env | grep -c SECRET)"; exit 3',
            *command,
        ]

    monkeypatch.setattr(newest, "in_root", in_root)
    return found


def test_arguments_arrive_with_the_upstream_tables_and_nothing_else(layers, mounts, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("A_SECRET", "of this machine")
    tables = tmp_path / "tables"
    tables.mkdir()
    assert newest.run_tests(layers, tmp_path, ["tests/a b", "-v"], tables) == 3
    said = [newest.SCRIPT, "tests/a b", "-v", f"tables: {newest.VECTORS}", "0"]
    assert capfd.readouterr().out.splitlines() == said
    read = {CHECKOUT: tmp_path, PYTHON: layers.python, newest.VECTORS: tables}
    assert mounts == {"read": read, "write": {}}
