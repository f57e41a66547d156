"""The story that the demo tells, with drivers of several kinds."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from dra_sdk.cli import demo
from tests.cli.cards import make_cards
from tests.cli.commands import Run, runner

LAMPS = "tests.testing.lamps"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def told(capsys: pytest.CaptureFixture[str], driver: str, status: int = 0) -> str:
    parser = argparse.ArgumentParser()
    demo.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["demo", driver])
    assert parsed.run(parsed) == status
    return capsys.readouterr().out


def test_the_whole_story_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, f"{LAMPS}:Labelled")
    parts = [
        "1. Describe: lamps.example.com runs",
        "lamp-0  colour=red",
        "… and 2 more",
        'expression: device.driver == "lamps.example.com"',
        'expression: device.attributes["lamps.example.com"].colour == "red"',
        "3. Match: a pod uses the claim. The scheduler puts it on node-1 and allocates:",
        "device: lamp-0",
        '.colour == "something else"',
        "claim demo-too-much cannot be allocated on node-1",
        "What would help",
        "5. Actuate",
        "cdi_device_ids",
        '"cdiVersion"',
        "env:\n- LAMP=lamp-0",
        "7. The pod ends, the claim is unprepared. CDI specs left: none; its devices are free again.",
    ]
    places = [out.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_devices_without_attributes_run_out(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, f"{LAMPS}:Bare")
    assert "count: 2" in out
    assert "claim demo-too-much cannot be allocated on node-1" in out


def test_without_a_device_the_story_ends(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, f"{LAMPS}:Unplugged", status=1)
    assert "It found no device" in out
    assert "2. Request" not in out


def test_a_tree_of_files_and_a_driver_with_several_slices(run: Run, tmp_path: Path) -> None:
    told = run("demo", "tests.cli.cards:Cards", "--host-root", make_cards(tmp_path))
    assert told.status == 0, told.err
    assert "card0-a" in told.out
    assert "env:\n- CARD=card0" in told.out


@pytest.mark.parametrize(
    ("driver", "said", "steps"),
    [
        ("Unreadable", "dra_discover of driver cards.example.com failed: FileNotFoundError", 0),
        ("Twice", "device card0: there are 2 of this name", 0),
        ("Misshapen", "device card0: attributes must be a mapping", 0),
        ("Burning", "dra_prepare of driver cards.example.com failed: KeyError: 'voltage'", 4),
    ],
)
def test_a_driver_that_fails_ends_the_story_with_the_reason(
    run: Run, tmp_path: Path, driver: str, said: str, steps: int
) -> None:
    told = run("demo", f"tests.cli.cards:{driver}", "--host-root", make_cards(tmp_path))
    assert told.status == 1
    assert said in told.err.splitlines()[-1]
    assert f"{steps + 1}. " not in told.out
    assert not steps or f"{steps}. " in told.out


def test_bad_input_is_status_2(run: Run, tmp_path: Path) -> None:
    assert run("demo", "nobody").status == 2
    assert "--host-root /absent is no directory" in run("demo", "cpu", "--host-root", "/absent").err
    empty = run("demo", "tests.cli.cards:Cards", "--host-root", tmp_path)
    assert (empty.status, "cannot read the boot id" in empty.err) == (2, True)
