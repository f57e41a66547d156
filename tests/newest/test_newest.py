"""What the system with the newest Python gets, and what comes back. A shell script stands for it."""

from __future__ import annotations

import pytest

from tests.cluster.harness.errors import HarnessError
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


def test_arguments_arrive_and_the_status_comes_back(layers, mounts, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("A_SECRET", "of this machine")
    assert newest.run_tests(layers, tmp_path, ["tests/a b", "-v"], tmp_path / "absent") == 3
    assert capfd.readouterr().out.splitlines() == [newest.SCRIPT, "tests/a b", "-v", "tables: none", "0"]
    assert mounts == {"read": {CHECKOUT: tmp_path, PYTHON: layers.python}, "write": {}}


def test_the_upstream_tables_are_there_if_they_are_here(layers, mounts, tmp_path, capfd):
    tables = tmp_path / "tables"
    tables.mkdir()
    newest.run_tests(layers, tmp_path, [], tables)
    assert f"tables: {newest.VECTORS}" in capfd.readouterr().out
    assert mounts["read"][newest.VECTORS] == tables


def test_a_machine_that_cannot_run_it_is_told_why(monkeypatch, capsys):
    def fail(*_):
        raise HarnessError("no debootstrap")

    monkeypatch.setattr(newest, "ensure_layers", fail)
    assert newest.main(["tests"]) == 2
    assert capsys.readouterr().err == "error: no debootstrap\n"


def test_it_can_be_removed(monkeypatch, tmp_path):
    monkeypatch.setenv("DRA_SDK_CACHE", str(tmp_path))
    for name in (newest.NEWEST.name, "lab"):
        (tmp_path / name / "base").mkdir(parents=True)
    assert newest.main(["--remove"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["lab"]
