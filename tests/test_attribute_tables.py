"""The tables of attributes and capacities in the drivers' pages are what the drivers publish.

Each driver publishes its slices here for the nodes that it brings along (fixtures, machines, examples), in every mode
that changes what a device has. Every name of these slices must be in the tables of the driver's section, and every name
of a table in a slice, or in NOT_HERE with the reason.

In the first cell of a row, code is a name. One without a domain has the driver's. `domain/…` gives the domain of the
names that follow it in the cell, and `…/name` has the domain before it. `<n>` and `<minor>` stand for a number.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import dra_driver_amd
import dra_driver_gpu
import pytest
from dra_driver_amd import AmdGpuDriver
from dra_driver_amd.settings import AmdSettings
from dra_driver_amd.testing import RX7900XTX, KernelEffects, mi300x, write_gpus
from dra_driver_cpu import CpuDriver, MemoryDriver
from dra_driver_cpu.settings import CpuSettings
from dra_driver_gpu import GpuDriver
from dra_driver_gpu.fixtures import FixtureDriver
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.examples import NODES
from dra_driver_gpu.testing.fabric import MemoryFabricManager
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import fake_gpu
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.testing.machines import MACHINES as NIC_MACHINES
from dra_driver_plugin import PluginDriver, PluginSettings
from dra_driver_plugin.testing import FakePlugin, wire_devices

from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.machines import MACHINES
from dra_sdk.testing.sysfs import FakePci, regular_machine

ROOT: Final = Path(__file__).parents[1]
LISTS: Final = {"DRAListTypeAttributes": True}
"""The feature gate without which the API server drops attributes that are lists."""
Nodes = Callable[[str], FakeNode]
Slices = Iterator[list[dict[str, Any]]]


@dataclass(frozen=True)
class Section:
    """The part of a page that describes what a driver publishes.

    page: its file.
    heading: the line with which it begins; it ends at the next heading of its level.
    """

    page: str
    heading: str

    @property
    def text(self) -> str:
        """Its text."""
        level = self.heading.partition(" ")[0]
        after = f"\n{(ROOT / self.page).read_text()}".partition(f"\n{self.heading}\n")[2]
        assert after, f"{self.page} has no section {self.heading!r}"
        return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


@dataclass(frozen=True)
class Published:
    """The names in slices, with their domain.

    attributes, capacities: those of all devices.
    counter_sets, counters: those of all pools, without a domain.
    """

    attributes: frozenset[str]
    capacities: frozenset[str]
    counter_sets: frozenset[str]
    counters: frozenset[str]


def published(driver: str, slices: Slices) -> Published:
    """What all these slices have."""
    specs = [each["spec"] for found in slices for each in found]
    assert {spec["driver"] for spec in specs} == {driver}
    devices = [device for spec in specs for device in spec.get("devices", ())]
    attributes, capacities = (
        frozenset(name if "/" in name else f"{driver}/{name}" for device in devices for name in device.get(field, ()))
        for field in ("attributes", "capacity")
    )
    assert attributes, f"{driver} has published no device"
    sets = [each for spec in specs for each in spec.get("sharedCounters", ())]
    counters = frozenset(name for each in sets for name in each["counters"])
    return Published(attributes, capacities, frozenset(each["name"] for each in sets), counters)


# -- what drivers publish


def cpu_slices(nodes: Nodes) -> Slices:
    """Machines of all kinds in each mode, each with a PCI function on every NUMA node."""
    functions = tuple(FakePci(address=f"0000:{n + 1}1:00.0", root=f"pci0000:{n + 1}0", numa_node=n) for n in (0, 1))
    for name, machine in MACHINES.items():
        node = nodes(name)
        node.machine(replace(machine, pci=functions))
        for mode in ("grouped", "individual", "partitionable"):
            settings = CpuSettings.model_validate({"device_mode": mode, "expose_pcie_roots": True})
            yield DriverHarness(CpuDriver, node, settings=settings, feature_gates=LISTS).slices()


def memory_slices(nodes: Nodes) -> Slices:
    """Machines of all kinds, with huge pages."""
    for name, machine in MACHINES.items():
        node = nodes(name)
        node.machine(replace(machine, hugepages={1 << 21: 8, 1 << 30: 1}))
        yield DriverHarness(MemoryDriver, node).slices()


def gpu_slices(nodes: Nodes) -> Slices:
    """The driver's fixtures with MIG as it is and on demand, the nodes of the examples, and an HGX board."""
    for file in sorted((Path(dra_driver_gpu.__file__).parent / "fixtures").glob("*/nvml.yaml")):
        node = nodes(file.parent.name)
        shutil.copy(file, node.root)
        for dynamic in (False, True):
            settings = GpuSettings(dynamic_mig=dynamic)
            yield DriverHarness(FixtureDriver, node, settings=settings).slices()
    for name, example in NODES.items():
        node = nodes(name)
        example.write(node.root)
        yield DriverHarness(FixtureDriver, node, settings=GpuSettings.read(example.settings)).slices()
    board = nodes("hgx")
    gpus = GpuNode(board.root, [fake_gpu("H100-80GB", minor) for minor in range(8)], machine=regular_machine(sockets=2))
    settings = GpuSettings(fabric_manager="/run/fm", passthrough=True, list_attributes=True, state_dir="/state")
    make = partial(
        GpuDriver,
        settings,
        nvml=lambda _: gpus.nvml(),
        effects=board.effects,
        fabric=lambda *_: MemoryFabricManager(8),
    )
    yield DriverHarness(make, board, feature_gates=LISTS).slices()


def amd_slices(nodes: Nodes) -> Slices:
    """The driver's fixtures, and a node with a GPU for displays and one that has virtual functions."""
    for archive in sorted((Path(dra_driver_amd.__file__).parent / "fixtures").iterdir()):
        node = FakeNode.from_archive(archive, nodes(archive.name).root)
        yield DriverHarness(AmdGpuDriver, node, settings=AmdSettings(passthrough=True)).slices()
    gpus = (RX7900XTX, mi300x(driver="gim", vfs=2))
    node = nodes("virtual-functions")
    write_gpus(node.root, gpus)
    make = partial(AmdGpuDriver, AmdSettings(passthrough=True), effects=KernelEffects(node.root, gpus))
    yield DriverHarness(make, node).slices()


def nic_slices(nodes: Nodes) -> Slices:
    """Servers with each kind of card: alone, with physical functions beside their virtual ones, and shared."""
    for name, machine in NIC_MACHINES.items():
        if name == "hundreds-of-vfs":  # slow, and its card is that of `mlx5`
            continue
        node = nodes(name)
        machine.write(node)
        for fields in ({}, {"device_mode": "partitionable"}, {"shared": ("*",)}):
            make = partial(NicDriver, effects=node.effects)
            yield DriverHarness(make, node, settings=NicSettings.model_validate(fields)).slices()


def plugin_slices(nodes: Nodes) -> Slices:
    """A device plugin with a device on two NUMA nodes, and replicas of a PCI function."""
    node = nodes("n")
    address = "0000:3b:00.0"
    node.machine(replace(regular_machine(sockets=2), pci=(FakePci(address=address),)))
    settings = PluginSettings.model_validate(
        {"directory": str(node.root), "numa_lists": True, "replica_pattern": "(.+)::[0-9]+"}
    )
    devices = wire_devices({f"{address}::1": "Healthy", "wide": "Healthy"}, {"wide": [0, 1]})
    driver = DriverHarness(PluginDriver, node, settings=settings, feature_gates=LISTS)
    with FakePlugin(node.root, devices) as plugin, driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        yield driver.slices()


SLICES: Final = {
    "dra.cpu": cpu_slices,
    "dra.memory": memory_slices,
    "gpu.nvidia.com": gpu_slices,
    "gpu.amd.com": amd_slices,
    "dra.net": nic_slices,
    "plugin.dra.dev": plugin_slices,
}
SECTIONS: Final = {
    "dra.cpu": Section("drivers/cpu/README.md", "## Attributes"),
    "dra.memory": Section("drivers/cpu/PINNING.md", "## Memory and huge pages"),
    "gpu.nvidia.com": Section("drivers/gpu/README.md", "## Devices"),
    "gpu.amd.com": Section("drivers/gpu/README.md", "## AMD GPUs: gpu.amd.com"),
    "dra.net": Section("drivers/nic/README.md", "## Attributes"),
    "plugin.dra.dev": Section("drivers/plugin/README.md", "## Devices"),
}
_NETLINK: Final = "the kernel tells it over netlink, not in files; drivers/nic/tests/describe/test_devices.py has it"
NOT_HERE: Final = {
    "dra.net/alias": _NETLINK,
    "dra.net/ipv4": _NETLINK,
    "dra.net/ipv6": _NETLINK,
}
"""Names in tables that no node here publishes, with the reason."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Published]:
    """What a driver publishes; each driver is run once."""
    known: dict[str, Published] = {}

    def publish(driver: str) -> Published:
        if driver not in known:
            folder = tmp_path_factory.mktemp("n")
            known[driver] = published(driver, SLICES[driver](lambda name: FakeNode(folder / name)))
        return known[driver]

    return publish


# -- what pages say


def tables(text: str, kind: str) -> Iterator[str]:
    """The first cell of each row of the tables whose first column is called `kind`."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = (line.split("|")[1].strip() for line in table.splitlines())
        if head == kind:
            yield from rows


def names(driver: str, cells: Iterator[str]) -> Iterator[str]:
    """The names of these cells, with their domain."""
    for cell in cells:
        own = last = driver
        for code in re.findall(r"`([^`]+)`", cell):
            domain, slash, name = code.rpartition("/")
            last = last if domain in {"", "…"} else domain
            if name == "…":
                own = domain
            else:
                yield f"{last if slash else own}/{name}"


def stands_for(name: str, real: str) -> bool:
    """Whether a name of a page is this name of a slice."""
    return re.fullmatch(re.sub("<(n|minor)>", r"\\d+", re.escape(name)), real) is not None


def differences(told: frozenset[str], real: frozenset[str]) -> dict[str, list[str]]:
    """Names that are on one side alone."""
    return {
        "published, but in no table": sorted(each for each in real if not any(stands_for(name, each) for name in told)),
        "in a table, but not published": sorted(
            name for name in told - NOT_HERE.keys() if not any(stands_for(name, each) for each in real)
        ),
    }


NO_DIFFERENCES: Final = differences(frozenset(), frozenset())


@pytest.mark.parametrize("driver", SLICES)
def test_the_tables_have_the_attributes_that_the_driver_publishes(
    driver: str, found: Callable[[str], Published]
) -> None:
    told = frozenset(names(driver, tables(SECTIONS[driver].text, "attribute")))
    assert differences(told, found(driver).attributes) == NO_DIFFERENCES


@pytest.mark.parametrize("driver", SLICES)
def test_the_tables_have_the_capacities_that_the_driver_publishes(
    driver: str, found: Callable[[str], Published]
) -> None:
    told = frozenset(names(driver, tables(SECTIONS[driver].text, "capacity")))
    assert differences(told, found(driver).capacities) == NO_DIFFERENCES


def test_what_is_excepted_is_in_a_table_and_published_by_no_node(found: Callable[[str], Published]) -> None:
    for name in NOT_HERE:
        driver = name.rpartition("/")[0]
        assert name in set(names(driver, tables(SECTIONS[driver].text, "attribute")))
        assert name not in found(driver).attributes


@pytest.fixture
def same_names() -> dict[str, str]:
    """What the page for those who come from the existing GPU driver says: the second cell of a row by the first."""
    rows = [line.split("|")[1:3] for line in Section("drivers/gpu/MIGRATION.md", "## Same names").text.splitlines()]
    return {row[0].strip(): row[1] for row in rows if len(row) > 1}


@pytest.mark.parametrize("kind", ["attributes", "capacities"])
def test_the_page_about_migration_has_the_names_of_the_gpu_driver(
    kind: str, same_names: Mapping[str, str], found: Callable[[str], Published]
) -> None:
    told = frozenset(names("gpu.nvidia.com", iter([same_names[kind]])))
    assert differences(told, getattr(found("gpu.nvidia.com"), kind)) == NO_DIFFERENCES


def test_the_page_about_migration_has_the_counters_of_the_gpu_driver(
    same_names: Mapping[str, str], found: Callable[[str], Published]
) -> None:
    """The name of the set is the first, those of its counters are the others."""
    counter_set, *counters = re.findall(r"`([^`]+)`", same_names["counters"])
    real = found("gpu.nvidia.com")
    assert differences(frozenset([counter_set]), real.counter_sets) == NO_DIFFERENCES
    assert differences(frozenset(counters), real.counters) == NO_DIFFERENCES
