"""`dra-sdk discover`: what a driver finds, and the mistakes of a driver."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from tests.cli import cards
from tests.cli.cards import make_cards
from tests.cli.commands import Run, runner

CARDS = "tests.cli.cards"
MARKED = Path(cards.__file__).read_text().partition("# the line that")[0].count("\n") + 1
OVERLAY = """
apiVersion: dra-sdk.dev/v1alpha1
kind: DeviceOverlay
rules:
  - {attributes: {site.example.com/rack: r7}}
  - {attributes: {cards.example.com/model: other}}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_table_has_a_row_for_each_device(run: Run, tmp_path: Path) -> None:
    result = run("discover", f"{CARDS}:Cards", "--host-root", make_cards(tmp_path), "--node-name", "n")
    assert (result.status, result.err) == (0, "")
    assert result.cells[0] == ["n", "card0", "model=v80", "-"]
    assert len(result.cells) == 6


def test_a_row_is_at_most_120_columns_wide_and_complete(run: Run, tmp_path: Path) -> None:
    result = run("discover", f"{CARDS}:Detailed", "--node-name", "n", "--host-root", make_cards(tmp_path))
    assert max(map(len, result.out.splitlines())) <= 120
    assert len(result.cells) > 2
    for number in range(12):
        assert result.out.count(f"attribute{number}=value-of-some-length-{number}\n") + result.out.count(
            f"attribute{number}=value-of-some-length-{number} "
        )
    assert result.cells[0][:2] == ["n", "card0"]
    assert result.cells[1][0] == ""


def test_a_narrow_terminal_has_more_lines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("discover", f"{CARDS}:Detailed", "--node-name", "n", "--host-root", make_cards(tmp_path))
    wide = run(*flags).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "70")
    narrow = run(*flags).out
    assert max(map(len, narrow.splitlines())) <= 70
    assert sorted(narrow.split()) == sorted(wide.split())


@pytest.mark.parametrize("command", ["discover", "simulate", "top", "drivers", "capture"])
def test_what_a_driver_prints_goes_to_stderr(command: str, tmp_path: Path) -> None:
    """Also what the programs that it starts print, so it is tested with a process of its own."""
    flags = {
        "discover": ["discover", f"{CARDS}:Talkative", "-o", "json"],
        "simulate": ["simulate", "--driver", f"{CARDS}:Talkative", "-o", "json"],
        "top": ["top", "--here", f"{CARDS}:Talkative", "--kubelet-dir", str(tmp_path)],
        "drivers": ["drivers", "--schema", f"{CARDS}:Talkative"],
        "capture": ["capture", "-o", str(tmp_path / "x.tar.gz"), "--driver", f"{CARDS}:Talkative"],
    }
    line = [sys.executable, "-m", "dra_sdk.cli.main", *flags[command]]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert "info is asked for\n" in done.stderr
    assert "asked" not in done.stdout
    if command in {"discover", "simulate", "top"}:
        assert "devices are asked for\n" in done.stderr
        assert "asked by a program\n" in done.stderr
    if "json" in flags[command]:
        json.loads(done.stdout)


def test_a_slow_hook_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_sdk.cli.hook_calls.SLOW_SECONDS", 0.05)
    told = threading.Event()
    monkeypatch.setattr("tests.cli.cards.Patient.told", told, raising=False)

    class Stderr(io.StringIO):
        def write(self, text: str) -> int:
            if "dra_discover" in text:
                told.set()
            return super().write(text)

    stderr = Stderr()
    monkeypatch.setattr("sys.stderr", stderr)
    result = run("discover", f"{CARDS}:Patient", "--host-root", make_cards(tmp_path))
    assert result.status == 0
    assert "note: still waiting for dra_discover of driver cards.example.com after 0.05 s\n" in stderr.getvalue()


def test_a_quick_hook_is_not_told(run: Run, tmp_path: Path) -> None:
    assert run("discover", f"{CARDS}:Cards", "--host-root", make_cards(tmp_path)).err == ""


def test_the_slices_have_no_yaml_references_and_are_valid(run: Run, tmp_path: Path) -> None:
    written = run("discover", f"{CARDS}:Cards", "--host-root", make_cards(tmp_path / "root"), "-o", "yaml").out
    assert not re.search(r"[&*]id\d+", written)
    assert len(list(yaml.safe_load_all(written))) == 2
    (tmp_path / "slices.yaml").write_text(written)
    checked = run("validate", tmp_path / "slices.yaml")
    assert (checked.status, checked.out) == (0, "")


def test_the_overlay_of_the_settings_is_applied(run: Run, tmp_path: Path) -> None:
    (tmp_path / "overlay.yaml").write_text(OVERLAY)
    root = make_cards(tmp_path / "root", 1)
    result = run("discover", f"{CARDS}:Cards", "--host-root", root, "--overlay-file", tmp_path / "overlay.yaml")
    assert result.cells[0][2] == "model=v80 site.example.com/rack=r7"
    assert f"note: overlay {tmp_path}/overlay.yaml: rules[1].attributes" in result.err
    missing = run("discover", f"{CARDS}:Cards", "--host-root", root, "--overlay-file", "/absent")
    assert (missing.status, missing.out) == (2, "")
    assert "/absent" in missing.err


def test_a_driver_that_finds_nothing_is_reported_with_the_root(run: Run, tmp_path: Path) -> None:
    result = run("discover", f"{CARDS}:Cards", "--host-root", tmp_path)
    assert result.status == 0
    assert result.err == f"driver cards.example.com finds no device under {tmp_path}\n"


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        ("Twice", "pool n: device card0: there are 2 of this name"),
        ("Misshapen", "pool n: device card0: attributes must be a mapping, is [('model', 'v80')]"),
        ("OneDevice", "dra_discover of driver cards.example.com returned one Device, not a list of them; want Device"),
        ("Unreadable", f"sys/class/card/index' (cards.py, line {MARKED})"),
    ],
)
@pytest.mark.parametrize("output", ["table", "yaml"])
def test_a_mistake_of_a_driver_is_status_1(run: Run, tmp_path: Path, driver: str, message: str, output: str) -> None:
    result = run("discover", f"{CARDS}:{driver}", "-o", output, "--node-name", "n", "--host-root", tmp_path)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("dra-sdk: ")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_a_root_that_does_not_exist_is_bad_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root, said in (("/absent", "is not a directory; it must contain "), (tmp_path / "file", "is not an archive")):
        result = run("discover", f"{CARDS}:Cards", "--host-root", root)
        assert (result.status, result.out) == (2, "")
        assert f"{root} {said}" in result.err


def test_only_relevant_settings_are_flags(run: Run) -> None:
    said = run("discover", "--help").out
    flags = re.findall(r"^  (?:-\w(?: \S+)?, )?(--[a-z-]+)", said, re.MULTILINE)
    assert flags == ["--help", "--output", "--config", "--node-name", "--kubelet-dir", "--host-root", "--overlay-file"]
    assert "a row for each device" in said
    assert "[$DRA_SDK_HOST_ROOT]" in said


def test_the_directory_of_the_kubelet_is_that_of_the_driver_too(run: Run, tmp_path: Path) -> None:
    """The CPU driver looks there for a kubelet that gives CPUs away by itself."""
    for name, policy in {"var/lib/kubelet": "none", "data/kubelet": "static"}.items():
        state = tmp_path / name / "cpu_manager_state"
        state.parent.mkdir(parents=True)
        state.write_text(json.dumps({"policyName": policy}))
    result = run("discover", "cpu", "--host-root", tmp_path, "--kubelet-dir", "/data/kubelet")
    assert "cpuManagerPolicy static (/data/kubelet/cpu_manager_state)" in result.err
