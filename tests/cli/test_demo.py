"""The steps of the demo, with drivers of several kinds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cards import make_cards
from tests.cli.commands import Run, runner

LAMPS = "tests.testing.lamps"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_all_steps_are_shown_in_order(run: Run) -> None:
    out = run("demo", f"{LAMPS}:Labelled").out
    parts = [
        "1. Describe: lamps.example.com runs",
        "lamp-0  colour=red",
        "and 2 more devices",
        'expression: device.driver == "lamps.example.com"',
        'expression: device.attributes["lamps.example.com"].colour == "red"',
        "3. Allocate: a pod uses the claim. The scheduler places it on node-1 and allocates:",
        "device: lamp-0",
        '.colour == "something else"',
        "claim demo-too-much cannot be allocated on node-1",
        "What would help",
        "5. Prepare",
        "cdi_device_ids",
        '"cdiVersion"',
        "env:\n- LAMP=lamp-0",
        "7. Unprepare: the pod ends. Remaining CDI specs: none; the devices of the claim are free again.",
    ]
    places = [out.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_the_impossible_claim_requests_too_many_devices_without_attributes(run: Run) -> None:
    out = run("demo", f"{LAMPS}:Bare").out
    assert "count: 2" in out
    assert "claim demo-too-much cannot be allocated on node-1" in out


def test_without_a_device_the_demo_ends(run: Run) -> None:
    done = run("demo", f"{LAMPS}:Unplugged")
    assert done.status == 1
    assert "It found no device" in done.out
    assert "2. Request" not in done.out


def test_a_tree_of_files_and_a_driver_with_several_slices(run: Run, tmp_path: Path) -> None:
    done = run("demo", "tests.cli.cards:Cards", "--host-root", make_cards(tmp_path))
    assert done.status == 0, done.err
    assert "card0-a" in done.out
    assert "env:\n- CARD=card0" in done.out


def test_a_driver_reads_an_absolute_path_of_a_relative_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cards(tmp_path / "tree")
    monkeypatch.chdir(tmp_path)
    done = run("demo", "tests.cli.cards:RootedCards", "--host-root", "tree")
    assert done.status == 0, done.err
    assert f"ROOT={tmp_path}/tree" in done.out


@pytest.mark.parametrize(
    ("driver", "message", "steps"),
    [
        ("Unreadable", "dra_discover of driver cards.example.com failed: FileNotFoundError", 0),
        ("Twice", "device card0: there are 2 of this name", 0),
        ("Misshapen", "device card0: attributes must be a mapping", 0),
        ("Burning", "dra_prepare of driver cards.example.com failed: KeyError: 'voltage'", 4),
    ],
)
def test_a_driver_that_fails_ends_the_demo_with_the_reason(
    run: Run, tmp_path: Path, driver: str, message: str, steps: int
) -> None:
    done = run("demo", f"tests.cli.cards:{driver}", "--host-root", make_cards(tmp_path))
    assert done.status == 1
    assert message in done.err.splitlines()[-1]
    assert f"{steps + 1}. " not in done.out
    assert not steps or f"{steps}. " in done.out


def test_bad_input_is_status_2(run: Run, tmp_path: Path) -> None:
    assert run("demo", "nobody").status == 2
    assert "--host-root /absent is not a directory" in run("demo", "cpu", "--host-root", "/absent").err
    empty = run("demo", "tests.cli.cards:Cards", "--host-root", tmp_path)
    assert (empty.status, "cannot read the boot id" in empty.err) == (2, True)


def test_a_claim_of_the_users_own_is_prepared_with_its_classes(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(
        """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: red-lamps}
spec: {selectors: [{cel: {expression: 'device.attributes["lamps.example.com"].colour == "red"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mine}
spec: {spec: {devices: {requests: [{name: mine, exactly: {deviceClassName: red-lamps, count: 2}}]}}}
"""
    )
    out = run("demo", f"{LAMPS}:Labelled", "--claim", file).out
    assert "deviceClassName: red-lamps" in out
    assert "device: lamp-1" in out


def test_a_hook_that_fails_is_one_sentence_without_frames_of_the_sdk(run: Run) -> None:
    done = run("demo", f"{LAMPS}:Failing")
    assert done.status == 1
    assert "ValueError: the bulb is loose" in done.err
    assert "Traceback" not in done.err


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "dra_sdk.cli", "drivers"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
