"""Where commands read objects from: files, a running cluster, and what a driver discovers on a directory tree."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dra_sdk.cli.hook_calls import discover, load_driver
from dra_sdk.errors import InvalidObjectError, NotFoundError, SettingsError
from dra_sdk.kube import paths
from dra_sdk.loader import find_driver
from dra_sdk.model import JSON
from dra_sdk.model.driver import Node
from dra_sdk.node.slices.packing import NEEDED_BY_1_34, split_devices
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.tools.scheduling.cluster import ObjectSource
from dra_sdk.tools.scheduling.cluster.workload_kinds import WorkloadKinds
from dra_sdk.wire.documents import Document, read_documents
from dra_sdk.wire.profile import OLDEST, ServerProfile

STDIN: Final = "-"
FIXTURES: Final = "fixtures"
ARCHIVE: Final = ".tar.gz"
_PARTITIONS: Final = "DRAPartitionableDevices"
_COLLECTIONS: Final = {
    "Node": paths.nodes(),
    "Pod": paths.pods(),
    "ResourceSlice": paths.resource_slices(),
    "DeviceClass": paths.device_classes(),
    "ResourceClaim": paths.resource_claims(),
    "ResourceClaimTemplate": paths.resource_claim_templates(),
}
_CORE_KINDS: Final = {"Node", "Pod"}


# -- files


def read_content(name: str) -> bytes:
    """The content of a file, or of standard input for `-`; SettingsError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except IsADirectoryError as error:
        raise SettingsError(
            f"cannot read {name}: it is a directory; name its files, as in {name.rstrip('/')}/*.yaml"
        ) from error
    except OSError as error:
        raise SettingsError(f"cannot read {name}: {error.strerror}") from error


def file_title(name: str) -> str:
    """The name of a file in messages."""
    return "<stdin>" if name == STDIN else name


def read_file(name: str) -> ObjectSource:
    """The objects in a file; SettingsError if it cannot be read, InvalidObjectError if it is not YAML or JSON."""
    title = file_title(name)
    return ObjectSource(title, read_documents(read_content(name), title))


def add_kind_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for kinds that are not known here."""
    parser.add_argument(
        "--workloads",
        type=Path,
        metavar="FILE",
        help="YAML: a list of kinds with pod templates: kind, group, template, replicas, items, item, name, default",
    )
    parser.add_argument(
        "--ignore-kind",
        action="append",
        default=[],
        metavar="KIND",
        help="pass over objects of this kind, even if it may need devices; may be repeated",
    )


def read_kinds(file: Path | None) -> WorkloadKinds:
    """The built-in kinds with pod templates and those of a user's file; SettingsError, InvalidObjectError."""
    kinds = WorkloadKinds()
    for each in read_file(str(file)).documents if file else ():
        kinds = kinds.with_rows(each.value, str(file))
    return kinds


# -- a running cluster


def read_cluster(kubeconfig: Path | None) -> tuple[ObjectSource, str]:
    """The objects of a cluster that matter, and its version such as `v1.36.3`; SettingsError or ApiError."""
    from dra_sdk.kube.client import KubeClient  # noqa: PLC0415 (only for a running cluster)

    with closing(KubeClient.connect(kubeconfig)) as client:
        version = str(client.get("/version").get("gitVersion", ""))
        objects: list[JSON] = []
        for kind, path in _COLLECTIONS.items():
            api_version = "v1" if kind in _CORE_KINDS else paths.API_VERSION
            objects += [{"apiVersion": api_version, "kind": kind} | each for each in client.list(path)["items"]]
        # DeviceTaintRules in the best version that the server has; before 1.37 it may have none.
        for rule_version in ServerProfile.of(version).taint_rule_versions():
            api_version = f"{paths.GROUP}/{rule_version}"
            try:
                items = client.list(paths.device_taint_rules(api_version))["items"]
            except NotFoundError:
                continue
            objects += [{"apiVersion": api_version, "kind": "DeviceTaintRule"} | each for each in items]
            break
        return ObjectSource(client.server, [Document(each) for each in objects], stored=True), version


# -- a driver


def discovered_slices(name: str, root: Path, nodes: Sequence[str], profile: ServerProfile) -> Iterator[ObjectSource]:
    """The slices that the driver `name` publishes for what it finds under `root`, once for each node.

    They are the slices for a server with this profile. InvalidObjectError if a server of 1.34 cannot have the devices
    in one slice with the counters that they consume.
    """
    driver = load_driver(name)
    for node in nodes:
        pools, title = discover(driver, Node(node, root)), f"driver {name} on node {node}"
        slices = list(resource_slices(pools, driver=driver.info.name, node_name=node, minor=profile.minor))
        lost = split_devices([each["spec"] for each in slices])
        if lost and profile.minor == OLDEST and profile.enabled(_PARTITIONS):
            problem = f"{len(lost)} devices, {lost[0]} the first, do not fit into a slice with their counter sets"
            raise InvalidObjectError(title, [f"{NEEDED_BY_1_34}: {problem}"])
        yield ObjectSource(title, [Document(each) for each in slices])


def fixture_path(driver: str, fixture: str) -> Path:
    """A directory or an archive, or a fixture of the driver: one of these in `fixtures` of its package.

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


def _fixtures(driver: str) -> Iterator[Path]:
    module = driver.partition(":")[0] if ":" in driver else find_driver(driver).module
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return  # loading the driver reports the problem
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location) / FIXTURES
        yield from (path for path in folder.glob("*") if path.is_dir() or path.name.endswith(ARCHIVE))
