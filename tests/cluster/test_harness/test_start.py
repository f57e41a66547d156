"""What is missing is named before anything is built or started; one command at a time changes a cluster."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.harness import HarnessError, cleanup, debian
from tests.cluster.harness.__main__ import SUITES, main
from tests.cluster.harness.build import BINARIES, missing
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.state import State, boot_id


def test_check_names_what_is_missing_and_the_command_that_installs_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DRA_SDK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(SUITES, "test-cluster", (replace(debian.PODMAN[0], present=lambda: False),))
    monkeypatch.setattr(debian, "TO_BUILD", ())
    assert main(["check"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: make test-cluster needs programs that this machine lacks:\n  podman  ")
    assert said.endswith("install them with: apt-get update && apt-get install -y podman\n")


@pytest.mark.parametrize("command", ["packages", "check"])
def test_what_ci_calls_before_it_installs_anything_needs_no_package(command):
    python = [sys.executable, "-S", "-m", "tests.cluster.harness", command]
    done = subprocess.run(python, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert "Error" not in done.stderr
    assert done.returncode in {0, 2}


@pytest.mark.parametrize(("version", "accepted"), [("1.19.8", False), ("1.21.0", True), ("1.26", True)])
def test_go_must_be_able_to_fetch_a_newer_toolchain(monkeypatch, tmp_path, version, accepted):
    program = tmp_path / "go"
    program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert debian.find_go() == (program if accepted else None)


def test_a_binary_of_an_interrupted_build_does_not_count(tmp_path):
    for name in BINARIES:
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "kubectl").rename(tmp_path / ".kubectl.partial")
    assert missing(tmp_path) == ["kubectl"]


def test_a_second_command_is_refused_until_the_cluster_is_removed(tmp_path):
    layout = Layout.of("unit", tmp_path / "run")
    with cleanup.lock(layout), pytest.raises(HarnessError, match="another command"), cleanup.lock(layout):
        pass
    assert list(tmp_path.iterdir()) == []


def test_state_of_an_earlier_boot_is_none(tmp_path, make_state):
    first, second = Layout.of("first", tmp_path), Layout.of("second", tmp_path)
    first.root.mkdir()
    make_state(sysctls={"kernel/panic": "77"}).save(first.state_file)
    assert cleanup.original_sysctls(second) == {"kernel/panic": "77"}
    first.state_file.write_text(first.state_file.read_text().replace(boot_id(), "another-boot"))
    assert State.load(first.state_file) is None


def test_sockets_of_drivers_with_common_names_fit_into_107_bytes():
    longest = Layout.of("x" * 16).kubelet_dir / "plugins_registry" / f"{'driver' * 7}-reg.sock"
    assert len(str(longest)) <= 107
