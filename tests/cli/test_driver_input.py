"""Slices from drivers: `--driver`, `--fixture`, `--node`; notes about sources."""

from __future__ import annotations

import json
import sys

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
CAKES = '''\
"""A driver for tests, whose devices can be cut from cakes."""

from dra_sdk import CounterConsumption, CounterSet, Device, DriverInfo, ResourcePool


class CakeDriver:
    def dra_driver_info(self):
        return DriverInfo("cake.example.com")

    def dra_discover(self, node):
        cakes = dict(line.split() for line in (node.root / "cakes").read_text().splitlines())
        sets = [CounterSet(cake, {"slices": 2}) for cake in cakes]
        devices = [
            Device(f"{cake}-{number}", consumes=[CounterConsumption(cake, {"slices": 1})])
            for cake, most in cakes.items()
            for number in range(int(most))
        ]
        return [ResourcePool(node.name, devices, sets)]

    def dra_prepare(self, claim):
        return []
'''
CAST = """\
from bell_driver_of_tests import BellDriver
from dra_sdk import Device


class FixtureDriver(BellDriver):
    def dra_discover(self, node):
        return [Device(f"cast-{name}") for name in (node.root / "bells").read_text().split()]
"""
PIECES = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: piece}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: pieces}
spec: {devices: {requests: [{name: piece, exactly: {deviceClassName: piece, count: COUNT}}]}}
"""
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
    monkeypatch.delitem(sys.modules, "bell_driver_of_tests", raising=False)  # that of another test: its files are gone
    monkeypatch.chdir(tmp_path)
    go = runner(capsys)
    return lambda *arguments: go("simulate", "claims.yaml", *arguments)


BELL = ("--driver", "bell_driver_of_tests:BellDriver")


def test_a_fixture_of_the_driver_is_read(run):
    result = run(*BELL, "--fixture", "tower")
    assert result.status == 0
    assert [row[1] for row in result.cells] == ["node-1"] * 3
    names = {row[4] for row in result.cells}
    assert names == {f"bell.example.com/node-1/{name}" for name in ("small", "middle", "large")}


def test_a_driver_can_have_another_class_for_fixtures(run, tmp_path, monkeypatch):
    """It is loaded for a fixture only, of whatever kind."""
    (tmp_path / "bell_driver_of_tests/fixtures/__init__.py").write_text(CAST)
    monkeypatch.delitem(sys.modules, "bell_driver_of_tests.fixtures", raising=False)
    assert {row[4] for row in run(*BELL, "--fixture", "tower").cells} == {
        f"bell.example.com/node-1/cast-{name}" for name in ("small", "middle", "large")
    }
    assert '"cast-only"' in run(*BELL, "--fixture", "chapel", "-o", "json").out
    assert "dra_discover of driver bell.example.com failed: FileNotFoundError" in run(*BELL).err
    assert "fixtures of driver bell_driver_of_tests:BellDriver: tower" in run(*BELL, "--fixture", "cathedral").err


def test_a_directory_is_read_for_several_nodes(run):
    result = run(*BELL, "--fixture", "chapel", "--node", "a", "--node", "b", "-o", "json")
    assert result.status == 1
    assert "note: no Node object for a, b: " in result.err
    assert "2 nodes: no devices" in run(*BELL, "--fixture", "chapel", "--node", "a", "--node", "b").out


def test_an_unknown_fixture_is_an_error(run):
    result = run(*BELL, "--fixture", "cathedral")
    assert result.status == 2
    problem = (
        "'cathedral' is neither a directory, an archive nor a fixture; "
        "fixtures of driver bell_driver_of_tests:BellDriver: tower"
    )
    assert result.err == f"dra-sdk: {problem}\n"
    assert "fixtures of driver cpu: none" in run("--driver", "cpu", "--fixture", "cathedral").err


def test_a_driver_that_fails_is_one_line(run, tmp_path):
    result = run(*BELL, "--fixture", str(tmp_path))
    assert result.status == 2
    assert result.err.startswith("dra-sdk: dra_discover of driver bell.example.com failed: FileNotFoundError")


def test_nodes_have_fixtures_of_their_own(run):
    """Those without one have that of --fixture."""
    nodes = ("--fixture", "chapel", "--node", "b", "--node", "a=tower", "--node", "c")
    slices = json.loads(run(*BELL, *nodes, "-o", "json").out)["items"]
    found = {
        item["spec"]["nodeName"]: [device["name"] for device in item["spec"]["devices"]]
        for item in slices
        if item["kind"] == "ResourceSlice"
    }
    assert found == {"b": ["only"], "c": ["only"], "a": ["small", "middle", "large"]}
    assert {row[1] for row in run(*BELL, *nodes).cells} == {"a"}


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (("a=tower", "a=chapel"), "--node a is given with two fixtures: tower and chapel"),
        (("a=",), "'a=': must be NAME or NAME=FIXTURE"),
        (("a=cathedral",), "'cathedral' is neither a directory, an archive nor a fixture"),
    ],
)
def test_a_wrong_fixture_of_a_node_is_one_sentence(run, nodes, problem):
    result = run(*BELL, *(word for node in nodes for word in ("--node", node)))
    assert result.status == 2
    assert problem in result.err


def test_the_cpu_driver_discovers_two_numa_nodes(capsys, tmp_path):
    """The same claims as docs/examples/cpu-numa.yaml, on what the driver itself finds."""
    regular_machine(sockets=2, cores=8, l3_caches=2).write(tmp_path)
    files = (EXAMPLES / "classes.yaml", EXAMPLES / "cpu-numa.yaml")
    result = runner(capsys)("simulate", *files, "--driver", "cpu", "--fixture", tmp_path, "--node", "numa-1")
    by_slices = runner(capsys)("simulate", *files, EXAMPLES / "nodes" / "cpu-numa.yaml")
    assert result.status == by_slices.status == 0
    assert result.cells == by_slices.cells


@pytest.fixture
def eat(capsys, tmp_path, monkeypatch):
    """Requests pieces of cake. Each cake gives two, however many pieces it can be cut into."""
    (tmp_path / "cake_driver_of_tests.py").write_text(CAKES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def simulate(cakes, pieces, version, *, on):
        (tmp_path / "cakes").write_text(cakes)
        (tmp_path / "pieces.yaml").write_text(PIECES.replace("COUNT", str(pieces)))
        gates = ("--server-version", version, "--feature-gates", f"DRAPartitionableDevices={str(on).lower()}")
        driver = ("--driver", "cake_driver_of_tests:CakeDriver", "--fixture", tmp_path)
        return runner(capsys)("simulate", "pieces.yaml", *driver, *gates)

    return simulate


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.37"])
def test_partitions_are_published_as_the_release_accepts_them(eat, version):
    """1.34 requires them in one slice with their counters, later releases in another."""
    result = eat("sponge 3\nfruit 3", 4, version, on=True)
    assert result.status == 0, result.err
    pieces = [f"cake.example.com/node-1/{name}" for name in ("sponge-0", "sponge-1", "fruit-0", "fruit-1")]
    assert [row[4] for row in result.cells] == pieces
    assert eat("sponge 3\nfruit 3", 5, version, on=True).status == 1


def test_devices_that_1_34_cannot_have_are_one_line(eat):
    result = eat("wedding 129", 1, "1.34", on=True)
    assert result.status == 2
    rule = "1.34 needs counter sets in one slice with the devices that use them, at most 32 counters and 128 devices"
    lost = "129 devices, wedding-0 the first, do not fit into a slice with their counter sets"
    source = "driver cake_driver_of_tests:CakeDriver on node node-1"
    assert result.err == f"dra-sdk: {source}: {rule}: {lost}\n"
    assert eat("wedding 129", 1, "1.35", on=True).status == 0


def test_1_34_drops_counters_by_default_and_gets_what_fits_together(eat):
    result = eat("wedding 129", 2, "1.34", on=False)
    assert result.status == 0, result.err
    assert "pool node-1: not published: wedding-2, wedding-3, " in result.err
    assert "probably these feature gates are disabled: DRAPartitionableDevices" in result.err
    assert eat("wedding 129", 3, "1.34", on=False).status == 1


def test_an_empty_source_is_noted(tmp_path, capsys):
    (tmp_path / "empty.yaml").touch()
    run = runner(capsys)
    for command in ("simulate", "explain"):
        done = run(command, tmp_path / "empty.yaml", "--driver", "tests.cli.cards:Cards", "--fixture", tmp_path)
        assert done.status == 0
        assert f"note: {tmp_path}/empty.yaml has no object\n" in done.err
        source = "driver tests.cli.cards:Cards on node node-1"
        assert f"note: {source} finds no device; --fixture gives it another tree to read\n" in done.err
