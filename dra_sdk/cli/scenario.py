"""The cluster that `simulate` and `explain` look at: objects from files, from drivers and from a running cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.cli.arguments import Parser, feature_gates, from_text
from dra_sdk.cli.output import error_lines, printable
from dra_sdk.cli.sources import (
    STDIN,
    add_kind_flags,
    discovered_slices,
    file_names,
    fixture_path,
    read_cluster,
    read_file,
    read_kinds,
)
from dra_sdk.errors import DraError, SettingsError
from dra_sdk.node.runtime.settings import node_name, read_settings
from dra_sdk.tools.node_archive import opened_root
from dra_sdk.tools.scheduling.cluster import ObjectSource, Snapshot, SnapshotReadError, SnapshotReading, read_snapshot
from dra_sdk.wire.profile import NEWEST, OLDEST, ServerProfile

BAD_INPUT: Final = 2
DEFAULT_NODE: Final = "node-1"
DEFAULT_MINOR: Final = 36
"""The release of the cluster unless a flag or a running cluster says otherwise."""
MAX_NAMES: Final = 5
"""The most names in one note."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster to look at.

    snapshot: its objects.
    notes: what was assumed, ignored or missing, in sentences.
    """

    snapshot: Snapshot
    notes: tuple[str, ...]


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
    parser.add_argument("--from-cluster", action="store_true", help="add the objects of a running cluster")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig of the running cluster (default: as for kubectl)"
    )
    add_kind_flags(parser)
    versions = [f"1.{minor}" for minor in range(OLDEST, NEWEST + 1)]
    parser.add_argument(
        "--server-version",
        choices=versions,
        help=f"release of the cluster (default: that of the running cluster, or 1.{DEFAULT_MINOR})",
    )
    parser.add_argument(
        "--feature-gates",
        type=feature_gates,
        default={},
        metavar="NAME=true,…",
        help="feature gates of the cluster that differ from the defaults",
    )


def read_scenario(arguments: argparse.Namespace) -> Scenario:
    """The cluster that the flags describe, with a node for each name in the slices; DraError for bad input."""
    if not (arguments.files or arguments.driver or arguments.from_cluster):
        raise SettingsError("there are no objects to read: give files, --driver NAME or --from-cluster")
    if arguments.kubeconfig and not arguments.from_cluster:
        raise SettingsError("--kubeconfig needs --from-cluster")
    sources, version = [], arguments.server_version
    if arguments.from_cluster:
        source, running = read_cluster(arguments.kubeconfig)
        sources.append(source)
        version = version or running
    profile = ServerProfile.of(version or f"1.{DEFAULT_MINOR}", arguments.feature_gates)
    discovered, files = list(_discovered(arguments, profile)), list(_files(arguments.files))
    kinds = read_kinds(arguments.workloads)
    reading = read_snapshot([*sources, *discovered, *files], profile, kinds=kinds, ignore=arguments.ignore_kind)
    snapshot, added = reading.snapshot.with_missing_nodes()
    notes = (*_empty_sources(discovered, files), *_reading_notes(reading, added), *_missing_objects(snapshot))
    return Scenario(snapshot, notes)


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
    for driver, root, nodes in opened_drivers(arguments):
        yield from discovered_slices(driver, root, nodes, profile)


def opened_drivers(arguments: argparse.Namespace) -> Iterator[tuple[str, Path, Sequence[str]]]:
    """Each of the drivers that the flags name, the directory that it reads until the next one, and its nodes."""
    nodes = list(dict.fromkeys(arguments.node))
    if arguments.driver and not nodes:
        nodes = [DEFAULT_NODE if arguments.fixture else read_settings(argparse.Namespace()).node_name]
    for driver in dict.fromkeys(arguments.driver):
        fixture = fixture_path(driver, arguments.fixture) if arguments.fixture else Path("/")
        with opened_root(fixture) as root:
            yield driver, root, nodes


def _files(names: list[str]) -> Iterator[ObjectSource]:
    """The objects of all files; SnapshotReadError with all files that cannot be read."""
    problems = []
    for name in file_names(names):
        try:
            yield read_file(name)
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
        more = f" and {len(added) - MAX_NAMES} more" if len(added) > MAX_NAMES else ""
        names = ", ".join(added[:MAX_NAMES]) + more
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
