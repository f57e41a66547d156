"""The cluster that `simulate` and `explain` look at: objects from files, from drivers and from a running cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dra_sdk.cli.arguments import UNDER_KUBECTL, Parser, add_server_flags, from_text
from dra_sdk.cli.live_cluster import (
    LiveCluster,
    add_connection_flags,
    add_selection_flags,
    add_watch_flags,
    names_cluster,
    opened_cluster,
)
from dra_sdk.cli.output import error_lines, printable
from dra_sdk.cli.progress import phase
from dra_sdk.cli.sources import (
    STDIN,
    OpenedDriver,
    add_kind_flags,
    discovered_slices,
    file_names,
    file_title,
    opened_driver,
    read_kinds,
    read_objects,
)
from dra_sdk.errors import DraError, SettingsError
from dra_sdk.node.runtime.settings import node_name, read_settings
from dra_sdk.texts import shortened
from dra_sdk.tools.scheduling.cluster import ObjectSource, Snapshot, SnapshotReadError, SnapshotReading, read_snapshot
from dra_sdk.tools.scheduling.cluster.snapshot import DEFAULT_NAMESPACE
from dra_sdk.wire.profile import DEFAULT_VERSION, ServerProfile

BAD_INPUT: Final = 2
DEFAULT_NODE: Final = "node-1"
MAX_NAMES: Final = 5
"""The most names in one note."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster to look at.

    snapshot: its objects.
    notes: what was assumed, ignored or missing, in sentences.
    namespace: the namespace of names that have none.
    """

    snapshot: Snapshot
    notes: tuple[str, ...]
    namespace: str = DEFAULT_NAMESPACE

    def key(self, text: str) -> tuple[str, str]:
        """Namespace and name of `[NAMESPACE/]NAME`."""
        namespace, slash, name = text.partition("/")
        return (namespace, name) if slash else (self.namespace, namespace)


def add_scenario_flags(parser: Parser) -> None:
    """Add the flags for the sources of the objects and the release of the cluster."""
    kinds = "slices, classes, claims, templates, pods, workloads, nodes, taint rules"
    parser.add_files(
        f"YAML or JSON with {kinds}; a directory, a Helm chart or a kustomization; {STDIN} is standard input"
    )
    parser.add_argument(
        "--driver", action="append", default=[], metavar="NAME", help="add what a driver discovers; may be repeated"
    )
    parser.add_argument(
        "--fixture",
        metavar="NAME|DIR|ARCHIVE",
        help="what the driver reads instead of /: a directory, an archive of `dra-sdk capture`, or a driver's fixture",
    )
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        type=from_text(node_name),
        metavar="NAME",
        help=f"the driver's node (default: as for discover; with a fixture {DEFAULT_NODE}); may be repeated",
    )
    parser.add_argument(
        "--from-cluster",
        action=argparse.BooleanOptionalAction,
        default=parser.prog.startswith(UNDER_KUBECTL),
        help="add the objects of a running cluster; --kubeconfig and --context mean it too",
    )
    add_connection_flags(parser)
    add_selection_flags(parser, "pods and claims", "pods")
    add_watch_flags(parser, "until everything that is asked for can be placed")
    add_kind_flags(parser)
    add_server_flags(parser, running=True)


def scenarios(arguments: argparse.Namespace) -> Generator[Scenario, None, None]:
    """The cluster that the flags describe, with a node for each name in the slices; DraError for bad input.

    With --watch, the cluster again after each change, until --timeout. To be closed.
    """
    running = names_cluster(arguments)
    if not (arguments.files or arguments.driver or running):
        raise SettingsError("there are no objects to read: give files, --driver NAME or --from-cluster")
    if arguments.watch and not running:
        raise SettingsError("--watch follows a running cluster, so it needs --from-cluster")
    if arguments.timeout and not arguments.watch:
        raise SettingsError("--timeout needs --watch")
    if not running:
        yield _Sources.read(arguments, None).scenario(arguments, None)
        return
    with opened_cluster(arguments, follow=arguments.watch) as cluster:
        sources = _Sources.read(arguments, cluster)
        yield sources.scenario(arguments, cluster)
        for _ in cluster.changes(arguments.timeout) if arguments.watch else ():
            yield sources.scenario(arguments, cluster)


@dataclass(frozen=True, slots=True)
class _Sources:
    """What is read once: files, and what drivers discover."""

    profile: ServerProfile
    namespace: str
    discovered: Sequence[ObjectSource]
    files: Sequence[ObjectSource]

    @classmethod
    def read(cls, arguments: argparse.Namespace, cluster: LiveCluster | None) -> _Sources:
        version = arguments.server_version or (cluster.version if cluster else DEFAULT_VERSION)
        namespace = arguments.namespace or (cluster.namespace if cluster else DEFAULT_NAMESPACE)
        profile = ServerProfile.of(version, arguments.feature_gates)
        files = [replace(each, namespace=namespace) for each in _files(arguments.files)]
        return cls(profile, namespace, list(_discovered(arguments, profile)), files)

    def scenario(self, arguments: argparse.Namespace, cluster: LiveCluster | None) -> Scenario:
        kinds = read_kinds(arguments.workloads)
        sources = [*([cluster.source()] if cluster else []), *self.discovered, *self.files]
        with phase("reading objects") as reads:
            reading = read_snapshot(sources, self.profile, kinds=kinds, ignore=arguments.ignore_kind, count=reads.count)
        snapshot, added = reading.snapshot.with_missing_nodes()
        notes = _empty_sources(self.discovered, self.files), _reading_notes(reading, added), _missing_objects(snapshot)
        return Scenario(snapshot, tuple(each for some in notes for each in some), self.namespace)


def print_bad_input(error: DraError) -> int:
    """Print what is wrong with the input; returns the exit status."""
    if isinstance(error, SnapshotReadError):
        lines = [line for problem in error.problems for line in problem.split("\n")]
    else:
        lines = error_lines(error)
    for line in lines:
        print(printable(line), file=sys.stderr)
    return BAD_INPUT


def _discovered(arguments: argparse.Namespace, profile: ServerProfile) -> Iterator[ObjectSource]:
    if not arguments.driver and (arguments.fixture or arguments.node):
        raise SettingsError("--fixture and --node need --driver NAME")
    for driver in opened_drivers(arguments):
        yield from discovered_slices(driver, profile)


def opened_drivers(arguments: argparse.Namespace) -> Iterator[OpenedDriver]:
    """Each of the drivers that the flags name, one after the other."""
    nodes = list(dict.fromkeys(arguments.node))
    if arguments.driver and not nodes:
        nodes = [DEFAULT_NODE if arguments.fixture else read_settings(argparse.Namespace()).node_name]
    for name in dict.fromkeys(arguments.driver):
        with opened_driver(name, arguments.fixture, nodes) as driver:
            yield driver


def _files(names: list[str]) -> Iterator[ObjectSource]:
    """The objects of all files; SnapshotReadError with all files that cannot be read."""
    problems = []
    for name in file_names(names):
        try:
            with phase(f"reading {file_title(name)}") as reads:
                found = read_objects(name, reads.count_bytes)
            yield found
        except DraError as error:
            problems.append(f"dra-sdk: {error}")
    if problems:
        raise SnapshotReadError(problems)


def _empty_sources(discovered: Sequence[ObjectSource], files: Sequence[ObjectSource]) -> Iterator[str]:
    for source in discovered:
        if not any(each.value["spec"].get("devices") for each in source.documents):
            yield f"{source.name} finds no device; --fixture gives it another tree to read"
    for source in files:
        if not any(each.value for each in source.documents):
            yield f"{source.name} has no object"


def _reading_notes(reading: SnapshotReading, added: list[str]) -> Iterator[str]:
    if added:
        names = shortened(added, MAX_NAMES)
        yield f"no Node object for {names}: assuming nodes without labels and limits that accept every pod"
    yield from reading.warnings
    if reading.ignored_kinds:
        yield f"ignored kinds: {', '.join(sorted(reading.ignored_kinds))}"


def _missing_objects(snapshot: Snapshot) -> Iterator[str]:
    remedy = "add a file that has them, --driver NAME or --from-cluster"
    if not (snapshot.pods or snapshot.claims):
        return
    if not snapshot.nodes:
        yield f"there are no Nodes and no ResourceSlices, so nothing can be scheduled: {remedy}"
    elif not snapshot.slices:
        yield f"there are no ResourceSlices, so there are no devices: {remedy}"
