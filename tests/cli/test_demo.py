"""The story that the demo tells, with drivers of several kinds."""

from __future__ import annotations

import argparse

import pytest

from dra_sdk.cli import demo

LAMPS = "tests.testing.lamps"


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
        "claim demo-too-much cannot be had on node-1",
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
    assert "claim demo-too-much cannot be had on node-1" in out


def test_without_a_device_the_story_ends(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, f"{LAMPS}:Unplugged", status=1)
    assert "It found no device" in out
    assert "2. Request" not in out
