"""What drivers discover on a directory tree, as a source of objects."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from dra_sdk.cli.arguments import DEFAULT_NODE
from dra_sdk.cli.hook_calls import discover, load_driver
from dra_sdk.cli.output import print_notes
from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.loader import Driver, find_driver
from dra_sdk.model.driver import Node
from dra_sdk.node.runtime.settings import read_settings
from dra_sdk.node.slices.packing import NEEDED_BY_1_34, split_devices
from dra_sdk.node.slices.plan import PoolPlan, fit_profile, resource_slices, valid_plans
from dra_sdk.node.slices.writer import DroppedFieldsError
from dra_sdk.tools.node_archive.archive import opened_root
from dra_sdk.tools.scheduling.cluster import ObjectSource
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import OLDEST, ServerProfile

FIXTURES: Final = "fixtures"
ARCHIVE: Final = ".tar.gz"
_PARTITIONS: Final = "DRAPartitionableDevices"


class OpenedDriver(NamedTuple):
    """A driver that is loaded, and what it reads.

    name: as the user wrote it.
    root: the directory with the files of its nodes, which may be there only until the next driver is opened.
    nodes: the names of its nodes.
    """

    name: str
    driver: Driver
    root: Path
    nodes: Sequence[str]


def opened_drivers(arguments: argparse.Namespace) -> Iterator[OpenedDriver]:
    """Yield each of the drivers that the flags name, one after the other, once for each fixture of the nodes."""
    fixtures = _fixtures_of_nodes(arguments)
    for name in dict.fromkeys(arguments.driver):
        for fixture in dict.fromkeys(fixtures.values()):
            nodes = [node for node, of_node in fixtures.items() if of_node == fixture]
            with opened_driver(name, fixture, nodes) as driver:
                yield driver


def _fixtures_of_nodes(arguments: argparse.Namespace) -> dict[str, str | None]:
    """Return the fixture of each node: its own of `--node NAME=FIXTURE`, else that of --fixture; None: this machine."""
    fixtures: dict[str, str | None] = {}
    for node, own in arguments.node:
        fixture = own or arguments.fixture
        if fixtures.setdefault(node, fixture) != fixture:
            raise SettingsError(
                f"--node {node} is given with two fixtures: {fixtures[node] or '/'} and {fixture or '/'}"
            )
    if fixtures or not arguments.driver:
        return fixtures
    return {DEFAULT_NODE if arguments.fixture else read_settings(argparse.Namespace()).node_name: arguments.fixture}


@contextmanager
def opened_driver(name: str, fixture: str | None, nodes: Sequence[str]) -> Iterator[OpenedDriver]:
    """Yield the driver on a fixture, a directory or an archive (`fixture_path`); None: on this machine."""
    driver = load_driver(_fixture_driver(name) if fixture else name)
    with opened_root(fixture_path(name, fixture) if fixture else Path("/")) as root:
        yield OpenedDriver(name, driver, root, nodes)


def discovered_slices(source: OpenedDriver, profile: ServerProfile) -> Iterator[ObjectSource]:
    """Yield the slices that a driver publishes for what it discovers, once for each node.

    They are the slices for a server with this profile. InvalidObjectError if a server of 1.34 cannot have the devices
    in one slice with the counters that they consume.
    """
    driver = source.driver
    for node in source.nodes:
        pools, title = discover(driver, Node(node, source.root)), f"driver {source.name} on node {node}"
        slices = list(resource_slices(pools, driver=driver.info.name, node_name=node, server=profile))
        lost = split_devices([raw_slice["spec"] for raw_slice in slices])
        if lost and profile.minor == OLDEST and profile.enabled(_PARTITIONS):
            problem = f"{len(lost)} devices, {lost[0]} the first, do not fit into a slice with their counter sets"
            raise InvalidObjectError(title, [f"{NEEDED_BY_1_34}: {problem}"])
        planned = valid_plans(pools, driver=driver.info.name, node_name=node)
        print_notes(f"{title}: {note}" for plan in planned for note in _dropped_notes(plan, profile))
        yield ObjectSource(title, [Document(raw_slice) for raw_slice in slices])


def _dropped_notes(planned: PoolPlan, profile: ServerProfile) -> Iterator[str]:
    """Yield what a server with this profile drops of a pool, and which devices are not published for that reason."""
    fit = fit_profile(planned, profile)
    if fit.dropped:
        yield str(DroppedFieldsError(planned.name, fit.dropped, fit.withheld))


def fixture_path(driver: str, fixture: str) -> Path:
    """Return a directory or an archive, or a fixture of the driver: one of these in `fixtures` of its package.

    SettingsError with the names of the driver's fixtures if it is neither.
    """
    if Path(fixture).exists():
        return Path(fixture).absolute()
    known = {path.name.removesuffix(ARCHIVE): path for path in _fixtures(driver)}
    if fixture not in known:
        names = ", ".join(sorted(known)) or "none"
        raise SettingsError(
            f"{fixture!r} is neither a directory, an archive nor a fixture; fixtures of driver {driver}: {names}"
        )
    return known[fixture]


def _fixture_driver(driver: str) -> str:
    """Return the driver to load for a fixture: `FixtureDriver` of `fixtures` if its package has that package.

    It stands for what no file of a node shows, such as a library. Else the driver itself reads the fixture.
    """
    is_package = any((folder / "__init__.py").is_file() for folder in _fixture_folders(driver))
    return f"{_package(driver)}.{FIXTURES}:FixtureDriver" if is_package else driver


def _fixtures(driver: str) -> Iterator[Path]:
    for folder in _fixture_folders(driver):
        yield from (path for path in folder.glob("[!_]*") if path.is_dir() or path.name.endswith(ARCHIVE))


def _fixture_folders(driver: str) -> list[Path]:
    try:
        spec = find_spec(_package(driver))
    except (ImportError, ValueError):
        return []  # loading the driver reports the problem
    return [Path(location) / FIXTURES for location in (spec and spec.submodule_search_locations) or ()]


def _package(driver: str) -> str:
    module = driver.partition(":")[0] if ":" in driver else find_driver(driver).module
    return module.partition(".")[0]
