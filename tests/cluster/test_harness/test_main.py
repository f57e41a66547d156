"""The command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.harness import HarnessError, debian
from tests.cluster.harness.__main__ import SUITES, flag, gates, main


def test_flags_of_the_environment(monkeypatch):
    monkeypatch.delenv("ALPHA", raising=False)
    assert flag("ALPHA") is False
    for value, expected in (("1", True), ("True", True), ("0", False), ("", False)):
        monkeypatch.setenv("ALPHA", value)
        assert flag("ALPHA") is expected
    monkeypatch.setenv("ALPHA", "perhaps")
    with pytest.raises(HarnessError, match="ALPHA=perhaps"):
        flag("ALPHA")


def test_gates_of_the_environment():
    assert gates("") == {}
    assert gates("A=true, B=false") == {"A": True, "B": False}
    with pytest.raises(HarnessError, match="'A=maybe'"):
        gates("A=maybe")


def test_status_of_a_cluster_that_is_not_there(capsys):
    assert main(["status", "--name", "never-made"]) == 1
    assert capsys.readouterr().out == "cluster 'never-made' is down\n"


def test_error_is_one_message_and_a_failure(capsys):
    assert main(["status", "--name", "Not A Name"]) == 1
    assert capsys.readouterr().err.startswith("error: cluster name 'Not A Name'")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRA_SDK_CACHE", str(tmp_path / "cache"))


def test_check_names_what_is_missing_before_anything_is_built(monkeypatch, capsys, empty_cache):
    absent = replace(debian.PODMAN[0], present=lambda: False)
    monkeypatch.setitem(SUITES, "test-cluster", (absent,))
    monkeypatch.setattr(debian, "TO_BUILD", ())
    assert main(["check"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: make test-cluster needs programs that this machine lacks:\n  podman  ")
    assert said.endswith("install them with: apt-get update && apt-get install -y podman\n")


def test_check_says_nothing_when_nothing_is_missing(monkeypatch, capsys, empty_cache):
    monkeypatch.setitem(SUITES, "test-cluster", ())
    for name in ("TO_BUILD", "TO_DOWNLOAD"):
        monkeypatch.setattr(debian, name, ())
    assert main(["check", "--suite", "test-cluster"]) == 0
    assert capsys.readouterr().err == ""


def test_a_cache_that_is_empty_needs_what_fills_it(monkeypatch, capsys, empty_cache):
    monkeypatch.setitem(SUITES, "test-differential", ())
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(debian, "TO_BUILD", (replace(debian.TO_BUILD[0], present=lambda: False),))
    assert main(["check", "--suite", "test-differential"]) == 2
    assert "Go 1.21 or later" in capsys.readouterr().err


def test_only_the_tests_of_the_image_need_what_builds_it() -> None:
    needs = {suite: set(debian.packages(tools)) for suite, tools in SUITES.items()}
    assert {suite for suite, names in needs.items() if names & {"buildah", "debootstrap"}} == {"test-image"}


def test_the_packages_for_ci_are_those_of_all_suites(monkeypatch, capsys):
    monkeypatch.setattr(debian, "missing", list)
    assert main(["packages"]) == 0
    named = capsys.readouterr().out.split()
    assert {"podman", "buildah", "debootstrap"} <= set(named)
    assert len(set(named)) == len(named)
