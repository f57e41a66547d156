"""`dra-sdk discover`: what a driver finds, and the mistakes of a driver."""

from __future__ import annotations

import re
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
    found = run("discover", f"{CARDS}:Cards", "--host-root", make_cards(tmp_path), "--node-name", "n")
    assert (found.status, found.err) == (0, "")
    assert found.cells[0] == ["n", "card0", "model=v80", "-"]
    assert len(found.cells) == 6


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
    found = run("discover", f"{CARDS}:Cards", "--host-root", root, "--overlay-file", tmp_path / "overlay.yaml")
    assert found.cells[0][2] == "model=v80 site.example.com/rack=r7"
    assert f"note: overlay {tmp_path}/overlay.yaml: rules[1].attributes" in found.err
    missing = run("discover", f"{CARDS}:Cards", "--host-root", root, "--overlay-file", "/absent")
    assert (missing.status, missing.out) == (2, "")
    assert "/absent" in missing.err


def test_a_driver_that_finds_nothing_is_reported_with_the_root(run: Run, tmp_path: Path) -> None:
    found = run("discover", f"{CARDS}:Cards", "--host-root", tmp_path)
    assert found.status == 0
    assert found.err == f"driver cards.example.com finds no device under {tmp_path}\n"


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
    found = run("discover", f"{CARDS}:{driver}", "-o", output, "--node-name", "n", "--host-root", tmp_path)
    assert (found.status, found.out) == (1, "")
    assert found.err.startswith("dra-sdk: ")
    assert message in found.err
    assert len(found.err.splitlines()) == 1


def test_a_root_that_does_not_exist_is_bad_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root, said in (("/absent", "is not a directory; it must contain "), (tmp_path / "file", "is not an archive")):
        found = run("discover", f"{CARDS}:Cards", "--host-root", root)
        assert (found.status, found.out) == (2, "")
        assert f"{root} {said}" in found.err


def test_only_relevant_settings_are_flags(run: Run) -> None:
    said = run("discover", "--help").out
    flags = re.findall(r"^  (?:-\w(?: \S+)?, )?(--[a-z-]+)", said, re.MULTILINE)
    assert flags == ["--help", "--output", "--config", "--node-name", "--host-root", "--overlay-file"]
    assert "a row for each device" in said
    assert "[$DRA_SDK_HOST_ROOT]" in said
