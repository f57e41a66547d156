"""`dra-sdk DRIVER top`: the driver's own picture of this node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dra_driver_cpu import CpuDriver

from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.sysfs import regular_machine
from tests.cli.commands import Run, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node on which a claim has two CPUs."""
    node = FakeNode(tmp_path)
    node.machine(regular_machine(cores=4))
    asked = claim(request("cpu", capacity={"dra.cpu/cpu": "2"}), name="web")
    DriverHarness(CpuDriver, node).prepare(asked)
    return node


def flags(node: FakeNode) -> list[str]:
    return ["--host-root", str(node.root), "--kubelet-dir", str(node.kubelet_dir), "--node-name", node.name]


def test_the_cpu_driver_draws_who_has_which_cpu(run, node):
    shown = run("cpu", "top", *flags(node))
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.splitlines() == [
        "SOCKET  NUMA  L3  CPUS  CORES",
        "0       0     0   0-7   .. AA .. ..",
        "",
        "A  default/web  1,5",
        ".  shared by all other containers: 0,2-4,6-7",
    ]


def test_the_picture_and_the_claims_as_json(run, node):
    picture = json.loads(run("cpu", "top", "-o", "json", *flags(node)).out)
    assert picture["lines"][1].endswith(".. AA .. ..")
    (held,) = picture["claims"]
    assert (held["claim"], [device["request"] for device in held["devices"]]) == ("default/web", ["cpu"])


def test_a_driver_without_a_picture_names_the_command_that_has_its_devices(run, node):
    shown = run("gpu-amd", "top", *flags(node))
    assert shown.status == 2
    assert "`dra-sdk top --here gpu-amd`" in shown.err


def test_a_state_file_that_cannot_be_read_is_told(run, node):
    (file,) = node.kubelet_dir.glob("plugins/dra.cpu/claims*/*.json")
    file.write_bytes(b"x")
    shown = run("cpu", "top", *flags(node))
    assert shown.status == 2
    assert "`dra-sdk state dra.cpu` shows, repairs or forgets it" in shown.err


def test_another_directory_of_the_kubelet_is_not_taken_for_free_devices(run, node, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shown = run("cpu", "top", *flags(node)[:2], "--kubelet-dir", elsewhere)
    assert (shown.status, shown.out) == (2, "")
    assert f"there is no directory {elsewhere}/plugins/dra.cpu: driver dra.cpu never ran here" in shown.err


def test_an_unknown_name_is_no_command(run):
    shown = run("cpus", "top")
    assert shown.status == 2
    assert "'cpus' is not one of " in shown.err
