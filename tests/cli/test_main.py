"""The `dra-sdk` command as a user meets it: a process, its output, its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dra_sdk.cli.main import main


def dra_sdk(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dra_sdk.cli.main", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", **environment}, timeout=50
    )


def test_drivers_lists_the_installed_drivers() -> None:
    done = dra_sdk("drivers")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["NAME", "DRIVER", "FROM", "HOOKS"]
    assert any(line.split()[:2] == ["cpu", "dra.cpu"] for line in done.stdout.splitlines())


def test_discover_prints_exact_slices() -> None:
    listed = json.loads(dra_sdk("discover", "cpu", "-o", "json", "--node-name", "node-a").stdout)
    written = list(yaml.safe_load_all(dra_sdk("discover", "cpu", "-o", "yaml", "--node-name", "node-a").stdout))
    assert written == listed["items"]
    assert written[0]["kind"] == "ResourceSlice"
    assert written[0]["spec"]["nodeName"] == "node-a"
    assert written[0]["spec"]["pool"] == {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    table = dra_sdk("discover", "cpu").stdout
    assert "cpudevnuma000" in table
    assert re.search(r"smtEnabled=(true|false)\b", table)


def test_an_unknown_driver_is_one_line() -> None:
    done = dra_sdk("run", "gpuu")
    assert done.returncode == 2
    assert "unknown driver 'gpuu'; installed drivers: " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_setting_names_the_variable() -> None:
    done = dra_sdk("discover", "cpu", DRA_CPU_RESERVED_CPUS="0-")
    assert done.returncode == 2
    assert "DRA_CPU_RESERVED_CPUS" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("run", "cpu"), ("discover", "cpu"), ("state", "cpu"), ("top", "--here", "cpu")])
def test_commands_read_the_drivers_section_of_the_file(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("driver: {reservedCpu: 0}")
    done = dra_sdk(*words, "--config", str(file))
    assert done.returncode == 2
    assert f"settings file {file}: unknown setting driver.reservedCpu; did you mean reservedCpus?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_each_wrong_setting_is_a_line() -> None:
    done = dra_sdk("run", "cpu", DRA_CPU_RESERVED_CPUS="0-", DRA_CPU_COLOUR="red")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("dra-sdk: unknown environment variable DRA_CPU_COLOUR")
    assert second.startswith("dra-sdk: environment variable DRA_CPU_RESERVED_CPUS='0-'")


def test_a_driver_with_wrong_settings_is_listed_with_the_reason_and_hides_no_other() -> None:
    done = dra_sdk("drivers", DRA_CPU_RESERVED_CPUS="0-")
    assert done.returncode == 1
    assert "does not load: environment variable DRA_CPU_RESERVED_CPUS='0-': " in done.stdout
    assert "gpu.nvidia.com" in done.stdout


def test_run_without_a_kubelet_says_what_is_missing(tmp_path: object) -> None:
    done = dra_sdk("run", "cpu", "--kubelet-dir", str(tmp_path), "--cdi-dir", str(tmp_path))
    assert done.returncode == 2
    assert "plugins_registry is not a directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_socket_path_that_is_too_long_is_reported_with_the_limit(tmp_path: Path) -> None:
    kubelet = tmp_path / ("x" * 100)
    (kubelet / "plugins_registry").mkdir(parents=True)
    done = dra_sdk("run", "cpu", "--kubelet-dir", str(kubelet))
    assert done.returncode == 2
    assert "the limit is 107" in done.stderr


def test_usage_errors_have_status_2() -> None:
    assert dra_sdk().returncode == 2
    assert dra_sdk("run").returncode == 2


def test_the_demo_runs_to_its_end() -> None:
    done = dra_sdk("demo", "cpu")
    assert done.returncode == 0, done.stderr
    for part in ("cpudevnuma000", "cdi_device_ids", '"cdiVersion"', "DRA_CPUSET_", "Remaining CDI specs: none"):
        assert part in done.stdout


def test_a_path_that_the_machine_refuses_is_one_line(tmp_path: Path) -> None:
    """Root may read everything, so a link to itself takes the place of a forbidden path."""
    (tmp_path / "round").symlink_to(tmp_path / "round")
    done = dra_sdk("run", "cpu", "--kubelet-dir", str(tmp_path / "round"))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert str(tmp_path / "round") in done.stderr
    found = dra_sdk("discover", "cpu", "--host-root", str(tmp_path / "round/x"))
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert "is not a directory" in found.stderr


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
    command = [sys.executable, "-m", "dra_sdk.cli.main", "run", "cpu", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
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
