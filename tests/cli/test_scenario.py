"""Slices from drivers: `--driver`, `--fixture`, `--node`."""

from __future__ import annotations

import pytest

from dra_sdk.testing.sysfs import regular_machine
from tests.cli.commands import EXAMPLES, runner

DRIVER = '''\
"""A driver for tests, with a fixture."""

from dra_sdk import Device, DriverInfo


class BellDriver:
    def dra_driver_info(self):
        return DriverInfo("bell.example.com")

    def dra_discover(self, node):
        names = (node.root / "bells").read_text().split()
        return [Device(name, attributes={"node": node.name}) for name in names]

    def dra_prepare(self, claim):
        return []
'''
CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: bell}
spec: {selectors: [{cel: {expression: 'device.driver == "bell.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: three}
spec: {devices: {requests: [{name: bell, exactly: {deviceClassName: bell, count: 3}}]}}
"""


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    package = tmp_path / "bell_driver_of_tests"
    (package / "fixtures" / "tower").mkdir(parents=True)
    (package / "__init__.py").write_text(DRIVER)
    (package / "fixtures" / "tower" / "bells").write_text("small middle large")
    (package / "fixtures" / "readme.txt").write_text("not a fixture")
    (tmp_path / "chapel").mkdir()
    (tmp_path / "chapel" / "bells").write_text("only")
    (tmp_path / "claims.yaml").write_text(CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    go = runner(capsys)
    return lambda *arguments: go("simulate", "claims.yaml", *arguments)


BELL = ("--driver", "bell_driver_of_tests:BellDriver")


def test_a_fixture_that_comes_with_the_driver(run):
    result = run(*BELL, "--fixture", "tower")
    assert result.status == 0
    assert [row[1] for row in result.cells] == ["node-1"] * 3
    names = {row[4] for row in result.cells}
    assert names == {f"bell.example.com/node-1/{name}" for name in ("small", "middle", "large")}


def test_a_directory_and_several_nodes(run):
    result = run(*BELL, "--fixture", "chapel", "--node", "a", "--node", "b", "-o", "json")
    assert result.status == 1
    assert "note: no Node object for a, b: " in result.err
    assert "2 nodes: no devices" in run(*BELL, "--fixture", "chapel", "--node", "a", "--node", "b").out


def test_a_fixture_that_is_not_there(run):
    result = run(*BELL, "--fixture", "cathedral")
    assert result.status == 2
    told = "'cathedral' is neither a directory nor a fixture: driver bell_driver_of_tests:BellDriver comes with tower"
    assert result.err == f"dra-sdk: {told}\n"
    assert "driver cpu has no fixtures" in run("--driver", "cpu", "--fixture", "cathedral").err


def test_a_driver_that_fails_is_told_in_a_sentence(run, tmp_path):
    result = run(*BELL, "--fixture", str(tmp_path))
    assert result.status == 2
    assert result.err.startswith("dra-sdk: dra_discover of driver bell.example.com failed: FileNotFoundError")


def test_the_cpu_driver_on_a_machine_with_two_numa_nodes(capsys, tmp_path):
    """The same claims as docs/examples/cpu-numa.yaml, on what the driver itself finds."""
    regular_machine(sockets=2, cores=8, l3_caches=2).write(tmp_path)
    files = (EXAMPLES / "classes.yaml", EXAMPLES / "cpu-numa.yaml")
    result = runner(capsys)("simulate", *files, "--driver", "cpu", "--fixture", tmp_path, "--node", "numa-1")
    by_slices = runner(capsys)("simulate", *files, EXAMPLES / "nodes" / "cpu-numa.yaml")
    assert result.status == by_slices.status == 0
    assert result.cells == by_slices.cells
