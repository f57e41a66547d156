"""The slices that a driver publishes for nodes that are directory trees: real roots, or fixtures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.loader import find_driver, load_driver
from dra_sdk.model.driver import Node
from dra_sdk.node.slices.packing import NEEDED_BY_1_34, split_devices
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.tools.scheduling.cluster import ObjectSource
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import OLDEST, ServerProfile

FIXTURES = "fixtures"
_PARTITIONS = "DRAPartitionableDevices"


def published(name: str, root: Path, nodes: Sequence[str], profile: ServerProfile) -> Iterator[ObjectSource]:
    """What the driver `name` finds under `root` (its `sys`, `proc`, `dev`), once for each of the nodes.

    As slices for a server of this profile; InvalidObjectError where one of 1.34 cannot have the devices' counters.
    """
    driver = load_driver(name)
    for node in nodes:
        pools, source = driver.discover(Node(node, root)), f"driver {name} on node {node}"
        slices = list(resource_slices(pools, driver=driver.info.name, node_name=node, minor=profile.minor))
        lost = split_devices([each["spec"] for each in slices])
        if lost and profile.minor == OLDEST and profile.enabled(_PARTITIONS):
            problem = f"{NEEDED_BY_1_34}: {len(lost)} devices, {lost[0]} the first, have no place beside their sets"
            raise InvalidObjectError(source, [problem])
        yield ObjectSource(source, [Document(each) for each in slices])


def fixture_root(driver: str, fixture: str) -> Path:
    """A directory, or a tree of this name that comes with the driver; SettingsError with what there is.

    A driver's fixtures are the directories in the directory `fixtures` of its package.
    """
    if Path(fixture).is_dir():
        return Path(fixture).absolute()
    known = {path.name: path for path in _fixtures(driver)}
    if fixture not in known:
        has = f"driver {driver} comes with {', '.join(sorted(known))}" if known else f"driver {driver} has no fixtures"
        raise SettingsError(f"{fixture!r} is neither a directory nor a fixture: {has}")
    return known[fixture]


def _fixtures(driver: str) -> Iterator[Path]:
    module = driver.partition(":")[0] if ":" in driver else find_driver(driver).module
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return  # loading the driver will say what is wrong
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / FIXTURES
        yield from (path for path in folder.glob("*") if path.is_dir())
