"""Where commands read objects from: files, and what a driver discovers on a directory tree."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from dra_sdk.cli.arguments import is_directory
from dra_sdk.cli.hook_calls import discover, load_driver
from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.loader import Driver, find_driver
from dra_sdk.model.driver import Node
from dra_sdk.node.slices.packing import NEEDED_BY_1_34, split_devices
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.tools.node_archive import opened_root
from dra_sdk.tools.scheduling.cluster import ObjectSource
from dra_sdk.tools.scheduling.cluster.list_files import read_list
from dra_sdk.tools.scheduling.cluster.snapshot import Count, no_count
from dra_sdk.tools.scheduling.cluster.workload_kinds import WorkloadKinds
from dra_sdk.wire.documents import Document, read_documents
from dra_sdk.wire.profile import OLDEST, ServerProfile

STDIN: Final = "-"
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_RENDER_SECONDS: Final = 120
FIXTURES: Final = "fixtures"
ARCHIVE: Final = ".tar.gz"
_PARTITIONS: Final = "DRAPartitionableDevices"


# -- files


def read_content(name: str) -> bytes:
    """The content of a file, or of standard input for `-`, or what a chart or a kustomization renders to.

    SettingsError if it cannot be read.
    """
    try:
        if name == STDIN:
            return sys.stdin.buffer.read()
        return _rendered(name) if Path(name).is_dir() else Path(name).read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {name}: {error.strerror}") from error


def file_names(names: Iterable[str]) -> Iterator[str]:
    """The names with those of its YAML and JSON files in place of each directory; charts and kustomizations stay.

    So do directories without such files, which `read_file` refuses. Directories below are not read, as by
    `kubectl apply -f`.
    """
    for name in names:
        if not is_directory(Path(name)) or _renderers(name):
            yield name
            continue
        found = sorted(str(each) for each in Path(name).iterdir() if each.suffix in _SUFFIXES and each.is_file())
        yield from found or [name]


def _renderers(name: str) -> tuple[str, list[list[str]]] | None:
    """What a directory is, and the commands of which each one renders it; None for a directory of files."""
    path = Path(name)
    if (path / "Chart.yaml").is_file():
        return "a Helm chart", [["helm", "template", name]]
    if any((path / each).is_file() for each in ("kustomization.yaml", "kustomization.yml", "Kustomization")):
        return "a kustomization", [["kubectl", "kustomize", name], ["kustomize", "build", name]]
    return None


def _rendered(name: str) -> bytes:
    """What a chart or a kustomization renders to, by the tool for it; SettingsError if it is missing or fails."""
    found = _renderers(name)
    if found is None:
        raise SettingsError(f"cannot read {name}: it is a directory without files that end in {', '.join(_SUFFIXES)}")
    what, commands = found
    command = next((each for each in commands if shutil.which(each[0])), None)
    if command is None:
        tools, first = " or ".join(each[0] for each in commands), " ".join(commands[0])
        raise SettingsError(f"{name} is {what}, which needs {tools}: install it, or give the output of `{first}`")
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_RENDER_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SettingsError(f"`{' '.join(command)}` did not end within {_RENDER_SECONDS} s") from error
    if done.returncode:
        raise SettingsError(f"`{' '.join(command)}` failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def file_title(name: str) -> str:
    """The name of a file in messages."""
    return "<stdin>" if name == STDIN else name


def read_file(name: str) -> ObjectSource:
    """The objects in a file; SettingsError if it cannot be read, InvalidObjectError if it is not YAML or JSON."""
    title, content = file_title(name), read_content(name)
    try:
        return ObjectSource(title, read_documents(content, title))
    except InvalidObjectError as error:
        if b"{{" not in content:
            raise
        hint = "it looks like a template; give the directory of its Helm chart, or the output of `helm template`"
        raise InvalidObjectError(title, [*error.problems, hint]) from error


def read_objects(name: str, count: Count = no_count) -> ObjectSource:
    """As `read_file`, but the items of a large List are documents of their own, and are read one by one.

    count: is told how many bytes of such a List are read, and of how many.
    """
    items = read_list(Path(name), count=count) if name != STDIN else None
    return read_file(name) if items is None else ObjectSource(file_title(name), items)


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


# -- a driver


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


@contextmanager
def opened_driver(name: str, fixture: str | None, nodes: Sequence[str]) -> Iterator[OpenedDriver]:
    """The driver on a fixture, a directory or an archive (`fixture_path`); None: on this machine."""
    driver = load_driver(_fixture_driver(name) if fixture else name)
    with opened_root(fixture_path(name, fixture) if fixture else Path("/")) as root:
        yield OpenedDriver(name, driver, root, nodes)


def discovered_slices(source: OpenedDriver, profile: ServerProfile) -> Iterator[ObjectSource]:
    """The slices that a driver publishes for what it finds, once for each node.

    They are the slices for a server with this profile. InvalidObjectError if a server of 1.34 cannot have the devices
    in one slice with the counters that they consume.
    """
    driver = source.driver
    for node in source.nodes:
        pools, title = discover(driver, Node(node, source.root)), f"driver {source.name} on node {node}"
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


def _fixture_driver(driver: str) -> str:
    """The driver to load for a fixture: `FixtureDriver` of `fixtures` if that is a package in that of the driver.

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
