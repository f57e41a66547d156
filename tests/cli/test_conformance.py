from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dra_sdk.cli import conformance
from dra_sdk.cli.arguments import Parser
from dra_sdk.cli.main import main
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.conformance.checks import CHECKS
from dra_sdk.tools.conformance.timeouts import Timeouts

COMMAND = f"{sys.executable} -m tests.tools.conformance.mutants cli.example.com"


def test_the_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CHECKS) + 1
    assert lines[1].startswith("REG-001     registration  must    The driver has a unix socket")


def test_a_driver_that_conforms_has_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--level", "wire,REG-001,REG-007,PREP-001", "--level", "ROLL-001"]  # none with a deadline of one second
    files = ["--json", str(tmp_path / "r.json"), "--junit", str(tmp_path / "r.xml")]
    assert main(["conformance", "--command", COMMAND, *flags, *files]) == 0
    out = capsys.readouterr().out
    assert "  REG-001    passed   must    socket is found" in out
    assert "  ROLL-001   not run  must    two instances serve" in out
    assert out.endswith("must 7/7, should 1/1: the driver conforms\n")
    assert json.loads((tmp_path / "r.json").read_text())["driver"] == "cli.example.com"
    assert len(list(ET.parse(tmp_path / "r.xml").iter("testcase"))) == 9


def test_shares_that_consume_a_counter_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole card comes first in the slice, and must not take the counter from the shares."""
    assert main(["conformance", "--driver", "tests.cli.cards:SharedCards", "--level", "PREP-014,PREP-013"]) == 0
    out = capsys.readouterr().out
    assert "  PREP-014   passed" in out
    assert "  PREP-013   passed" in out


def test_the_nri_plugin_of_a_driver_is_checked_with_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    online = tmp_path / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-7")
    flags = ["--command", f"{COMMAND} nri", "--level", "NRI-002,NRI-009,CTR-001,CTR-008", "--host-root", str(tmp_path)]
    assert main(["conformance", *flags]) == 2
    assert "the driver counts as an NRI plugin only with --nri" in capsys.readouterr().out
    assert main(["conformance", "--nri", *flags]) == 0
    assert capsys.readouterr().out.endswith("must 4/4, should 0/0: the driver conforms\n")


@pytest.mark.parametrize("flags", [[], ["--nri"]])
def test_the_levels_of_nri_are_run_only_for_nri_plugins(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} -c 'raise SystemExit'"
    assert main(["conformance", "--command", command, *flags]) == 1
    assert ("NRI: registration and protocol" in capsys.readouterr().out) == bool(flags)


def test_a_driver_that_does_not_conform_has_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{COMMAND} any-device no-guard"
    assert main(["conformance", "-q", "--command", command, "--level", "PREP-012,PREP-015"]) == 1
    out = capsys.readouterr().out
    assert "PREP-015 FAILED" in out
    assert "PREP-012 failed (should)" in out
    assert "NodePrepareResources: {" in out
    assert "must 0/1, should 0/1: the driver does not conform" in out


def test_a_driver_that_ends_at_once_does_not_conform(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} -c 'raise SystemExit(\"no such device\")'"
    assert main(["conformance", "--command", command, "--level", "REG-001,PREP-001"]) == 1
    out = capsys.readouterr().out
    assert (
        "found: the driver's process ended with status 1 before it registered; last lines of its output:\n"
        "    no such device"
    ) in out
    assert "2 checks: 0 passed, 1 failed, 0 not applicable, 1 not run" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the driver: --driver NAME, --command '…' or --registry DIR"),
        (["--driver", "cpu", "--level", "nothing"], "there is no level or check 'nothing'"),
        (["--driver", "absent:Driver"], "absent"),
        (["--command", "/absent/driver"], "cannot run /absent/driver: No such file or directory"),
        (["--registry", "/absent"], "--registry /absent is not a directory"),
        (["--registry", "."], "no driver answers in ."),
        (["--command", "x", "--disruptive"], "--disruptive and --cdi-dir need --registry DIR"),
        (["--command", "x", "--cdi-dir", "/"], "--disruptive and --cdi-dir need --registry DIR"),
        (
            ["--registry", "/", "--nri"],
            "--nri needs --driver or --command: the NRI plugin must connect to",
        ),
        (["--command", "x", "--host-root", "/absent"], "--host-root /absent is not a directory"),
        (["--command", "x", "--junit", "/absent/r.xml"], "cannot write /absent/r.xml: it must be a file in a dire"),
        (["--command", "x", "--json", "/"], "cannot write /: it must be a file in a directory that exists"),
        (["--command", "x", "--kubeconfig", "/absent"], "/absent"),
        (["--command", "x", "--claim", "/absent"], "cannot read /absent: No such file or directory"),
    ],
)
def test_wrong_flags_are_one_line_with_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("dra-sdk: ")
    assert len(captured.err.splitlines()) == 1


def test_sigterm_ends_the_driver_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    driver = shlex.join(["sh", "-c", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 60"])
    command = [sys.executable, "-m", "dra_sdk.cli.main", "conformance", "--command", driver]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait(lambda: pid.exists() or process.poll() is not None)
        process.terminate()
        assert process.wait(LONG) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_report_that_cannot_be_written_is_an_error_before_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--command", COMMAND, "--level", "REG-001", "--json", "/absent/r.json"]) == 2
    captured = capsys.readouterr()
    assert "cannot write" in captured.err
    assert captured.out == ""


def test_a_full_disk_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "-q", "--command", COMMAND, "--level", "REG-001", "--json", "/dev/full"]) == 2
    assert "cannot write /dev/full: No space left on device" in capsys.readouterr().err


def test_a_driver_may_start_for_as_long_as_the_kit_waits_by_default() -> None:
    parser = Parser()
    conformance.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["conformance", "--driver", "cpu"])
    assert parsed.start_timeout == Timeouts().start


@pytest.mark.parametrize(
    ("flag", "value", "rule"),
    [
        ("--load", "0", "must be a whole number, 1 or more"),
        ("--load", "many", "must be a whole number, 1 or more"),
        ("--start-timeout", "-1", "must be a number of seconds above 0"),
        ("--node-name", "Bad_Name", "must be a DNS subdomain"),
    ],
)
def test_a_flag_says_what_it_accepts(flag: str, value: str, rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["conformance", "--command", "x", f"{flag}={value}"])
    assert stop.value.code == 2
    assert f"argument {flag}: '{value}': {rule}" in capsys.readouterr().err
