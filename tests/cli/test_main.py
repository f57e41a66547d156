"""The `dra-sdk` command as a user meets it: a process, its output, its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk.cli.main import main
from tests.cli.commands import Run, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def process(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a shell starts it."""
    command = [sys.executable, "-m", "dra_sdk.cli.main", *arguments]
    return subprocess.run(command, text=True, check=False, timeout=50, **{"stderr": subprocess.PIPE, **more})


def test_drivers_lists_the_installed_drivers() -> None:
    done = process("drivers", stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["NAME", "DRIVER", "FROM", "HOOKS"]
    assert any(line.split()[:2] == ["cpu", "dra.cpu"] for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("place", "reason"),
    [("full", "No space left on device"), ("closed", "Bad file descriptor"), ("pipe", "")],
)
@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [("--version", "1"), ("discover --help", ""), ("drivers", "1"), ("simulate --driver cpu", "")],
)
def test_an_answer_that_cannot_be_written_has_status_2_and_a_sentence_unless_its_reader_has_gone(
    monkeypatch: pytest.MonkeyPatch, command: str, unbuffered: str, place: str, reason: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("wb") as full, os.fdopen(writer, "wb") as pipe:
        script = f'exec "$0" -m dra_sdk.cli.main {command}{" >&-" if place == "closed" else ""}'
        stdout = full if place == "full" else pipe
        done = subprocess.run(
            ["sh", "-c", script, sys.executable],
            text=True,
            check=False,
            timeout=50,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
    assert "Traceback" not in done.stderr
    sentences = [line for line in done.stderr.splitlines() if "stdout" in line]
    wanted = [f"dra-sdk: cannot write to stdout: {reason}"] if reason else []
    assert (sentences, done.returncode) == (wanted, 2)


@pytest.mark.parametrize("place", ["2>/dev/full", "2>&-"])
def test_messages_that_cannot_be_written_change_neither_answer_nor_status(place: str) -> None:
    script = f'"$0" -m dra_sdk.cli.main simulate --driver cpu -o json {place}; echo "status $?"'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], text=True, check=False, timeout=50, stdout=subprocess.PIPE
    )
    answer, status = done.stdout.rstrip().rsplit("\n", 1)
    assert json.loads(answer)["kind"] == "List"
    assert status in {"status 0", "status 1"}


def test_discover_prints_exact_slices(run: Run) -> None:
    listed = json.loads(run("discover", "cpu", "-o", "json", "--node-name", "node-a").out)
    written = list(yaml.safe_load_all(run("discover", "cpu", "-o", "yaml", "--node-name", "node-a").out))
    assert written == listed["items"]
    assert written[0]["kind"] == "ResourceSlice"
    assert written[0]["spec"]["nodeName"] == "node-a"
    assert written[0]["spec"]["pool"] == {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    table = run("discover", "cpu").out
    assert "cpudevnuma000" in table
    assert re.search(r"smtEnabled=(true|false)\b", table)


def test_an_unknown_driver_is_one_line(run: Run) -> None:
    done = run("run", "gpuu")
    assert done.status == 2
    assert "unknown driver 'gpuu'; installed drivers: " in done.err
    assert len(done.err.splitlines()) == 1


def test_a_wrong_setting_names_the_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_CPU_RESERVED_CPUS", "0-")
    done = run("discover", "cpu")
    assert done.status == 2
    assert "DRA_CPU_RESERVED_CPUS" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [("run", "cpu"), ("discover", "cpu"), ("state", "cpu"), ("top", "--here", "cpu")])
def test_commands_read_the_drivers_section_of_the_file(run: Run, words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("driver: {reservedCpu: 0}")
    done = run(*words, "--config", str(file))
    assert done.status == 2
    assert f"settings file {file}: unknown setting driver.reservedCpu; did you mean reservedCpus?" in done.err
    assert len(done.err.splitlines()) == 1


def test_each_wrong_setting_is_a_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_CPU_RESERVED_CPUS", "0-")
    monkeypatch.setenv("DRA_CPU_COLOUR", "red")
    done = run("run", "cpu")
    assert done.status == 2
    first, second = done.err.splitlines()
    assert first.startswith("dra-sdk: unknown environment variable DRA_CPU_COLOUR")
    assert second.startswith("dra-sdk: environment variable DRA_CPU_RESERVED_CPUS='0-'")


def test_a_driver_with_wrong_settings_is_listed_and_hides_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_CPU_RESERVED_CPUS", "0-")
    done = run("drivers")
    assert done.status == 1
    assert "does not load: environment variable DRA_CPU_RESERVED_CPUS='0-': " in done.out
    assert "gpu.nvidia.com" in done.out


def test_run_without_a_kubelet_says_what_is_missing(run: Run, tmp_path: object) -> None:
    done = run("run", "cpu", "--kubelet-dir", str(tmp_path), "--cdi-dir", str(tmp_path))
    assert done.status == 2
    assert "plugins_registry is not a directory" in done.err
    assert "Traceback" not in done.err


def test_a_socket_path_that_is_too_long_is_reported_with_the_limit(run: Run, tmp_path: Path) -> None:
    kubelet = tmp_path / ("x" * 100)
    (kubelet / "plugins_registry").mkdir(parents=True)
    done = run("run", "cpu", "--kubelet-dir", str(kubelet))
    assert done.status == 2
    assert "the limit is 107" in done.err


def test_usage_errors_have_status_2(run: Run) -> None:
    assert run().status == 2
    assert run("run").status == 2


def test_the_demo_runs_to_its_end(run: Run) -> None:
    done = run("demo", "cpu")
    assert done.status == 0, done.err
    for part in ("cpudevnuma000", "cdi_device_ids", '"cdiVersion"', "DRA_CPUSET_", "Remaining CDI specs: none"):
        assert part in done.out


def test_a_path_that_the_machine_refuses_is_one_line(run: Run, tmp_path: Path) -> None:
    """Root may read everything, so a link to itself takes the place of a forbidden path."""
    (tmp_path / "round").symlink_to(tmp_path / "round")
    done = run("run", "cpu", "--kubelet-dir", str(tmp_path / "round"))
    assert (done.status, "Traceback" in done.err) == (2, False)
    assert str(tmp_path / "round") in done.err
    result = run("discover", "cpu", "--host-root", str(tmp_path / "round/x"))
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "is not a directory" in result.err


def test_an_error_of_the_operating_system_names_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", "/etc/shadow")

    monkeypatch.setattr("dra_sdk.cli.drivers.run", refuse)
    assert main(["drivers"]) == 2
    assert capsys.readouterr().err == "dra-sdk: /etc/shadow: Permission denied\n"


def test_ctrl_c_has_the_status_of_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("dra_sdk.cli.drivers.run", interrupt)
    assert main(["drivers"]) == 130


def test_who_reads_no_further_gets_no_traceback() -> None:
    """As with `dra-sdk run cpu --help | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = process("run", "cpu", "--help", stdout=writing)
    os.close(writing)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "first"), [(["help"], "usage: dra-sdk "), (["help", "validate"], "usage: dra-sdk validate")]
)
def test_help_is_a_command_too(arguments, first, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(first)
