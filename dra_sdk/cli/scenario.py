"""What `simulate` and `explain` are asked about: objects from files, from drivers, from a running cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.cli import sentences
from dra_sdk.cli.files import STDIN, printable, read_content, shown_name
from dra_sdk.cli.parser import from_text
from dra_sdk.cli.validate import feature_gates
from dra_sdk.errors import DraError, SettingsError
from dra_sdk.node.runtime.settings import node_name
from dra_sdk.tools.scheduling.cluster import ObjectSource, Snapshot, SnapshotReadError, SnapshotReading, read_snapshot
from dra_sdk.wire.documents import read_documents
from dra_sdk.wire.profile import NEWEST, OLDEST, ServerProfile

BAD_INPUT = 2
_NODE = "node-1"
_USUAL = 36  # the release that files are for unless something else is said
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Scenario:
    """The cluster in question, and what was made up or passed over in reading it, in sentences."""

    snapshot: Snapshot
    notes: tuple[str, ...]


def add_scenario_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the objects come from and how old the cluster is."""
    kinds = "slices, classes, claims, templates, pods, nodes, taint rules"
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help=f"YAML or JSON with {kinds}; {STDIN} is standard input"
    )
    parser.add_argument(
        "--driver", action="append", default=[], metavar="NAME", help="add what a driver discovers; may be repeated"
    )
    parser.add_argument(
        "--fixture", metavar="NAME|DIR", help="where it discovers, instead of /: a directory, or a tree it comes with"
    )
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        type=from_text(node_name),
        metavar="NAME",
        help=f"node it discovers on, {_NODE} by default; may be repeated",
    )
    parser.add_argument("--from-cluster", action="store_true", help="add the objects of a running cluster")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="its kubeconfig; by default as kubectl finds it"
    )
    versions = [f"1.{minor}" for minor in range(OLDEST, NEWEST + 1)]
    parser.add_argument(
        "--server-version", choices=versions, help=f"its release; by default that of the running cluster, or 1.{_USUAL}"
    )
    parser.add_argument(
        "--feature-gates",
        type=feature_gates,
        default={},
        metavar="NAME=true,…",
        help="what the cluster turned on or off beside its defaults",
    )


def read_scenario(arguments: argparse.Namespace) -> Scenario:
    """The cluster that the flags describe, with a node for each name that is mentioned; DraError for bad input."""
    if not (arguments.files or arguments.driver or arguments.from_cluster):
        raise SettingsError("nothing to look at: give files, --driver NAME or --from-cluster")
    if arguments.kubeconfig and not arguments.from_cluster:
        raise SettingsError("--kubeconfig says which cluster: give --from-cluster too")
    sources, version = [], arguments.server_version
    if arguments.from_cluster:
        from dra_sdk.cli.live import read_cluster  # noqa: PLC0415 (the others need no client)

        source, found = read_cluster(arguments.kubeconfig)
        sources.append(source)
        version = version or found
    profile = ServerProfile.of(version or f"1.{_USUAL}", arguments.feature_gates)
    discovered, files = list(_discovered(arguments, profile)), list(_files(arguments.files))
    sources += discovered + files
    reading = read_snapshot(sources, profile)
    snapshot, made_up = reading.snapshot.with_missing_nodes()
    return Scenario(snapshot, (*_empty(discovered, files), *_notes(reading, made_up), *_missing(snapshot)))


def report(error: DraError) -> int:
    """Say what is wrong with the input; the exit status for it."""
    if isinstance(error, SnapshotReadError):
        lines = [line for problem in error.problems for line in problem.split("\n")]
    else:
        lines = sentences.lines(error)
    for line in lines:
        print(printable(line), file=sys.stderr)
    return BAD_INPUT


def _discovered(arguments: argparse.Namespace, profile: ServerProfile) -> Iterator[ObjectSource]:
    if arguments.driver:
        from dra_sdk.cli.published import fixture_root, published  # noqa: PLC0415 (the others need no driver)

        for driver in dict.fromkeys(arguments.driver):
            root = fixture_root(driver, arguments.fixture) if arguments.fixture else Path("/")
            yield from published(driver, root, list(dict.fromkeys(arguments.node)) or [_NODE], profile)
    elif arguments.fixture or arguments.node:
        raise SettingsError("--fixture and --node say where a driver discovers: give --driver NAME too")


def _files(names: list[str]) -> Iterator[ObjectSource]:
    """The documents of all files; SnapshotReadError for those that cannot be read at all."""
    problems = []
    for name in names:
        try:
            yield ObjectSource(shown_name(name), read_documents(read_content(name), shown_name(name)))
        except DraError as error:
            problems.append(f"dra-sdk: {error}")
    if problems:
        raise SnapshotReadError(problems)


def _empty(discovered: Sequence[ObjectSource], files: Sequence[ObjectSource]) -> Iterator[str]:
    """Who was asked and has nothing to tell, which is seldom meant."""
    for source in discovered:
        if not any(each.value["spec"].get("devices") for each in source.documents):
            yield f"{source.name} finds no device; --fixture says where else to look"
    for source in files:
        if not any(each.value for each in source.documents):
            yield f"{source.name} holds no object"


def _missing(snapshot: Snapshot) -> Iterator[str]:
    """What every scenario needs, and where it comes from."""
    how = "add a file that has them, --driver NAME or --from-cluster"
    if not (snapshot.pods or snapshot.claims):
        return
    if not snapshot.nodes:
        yield f"no Nodes and no ResourceSlices were given, so nothing can be placed: {how}"
    elif not snapshot.slices:
        yield f"no ResourceSlices were given, so there are no devices: {how}"


def _notes(reading: SnapshotReading, made_up: list[str]) -> Iterator[str]:
    if made_up:
        names = ", ".join(made_up[:_SHOWN]) + (f" and {len(made_up) - _SHOWN} more" if len(made_up) > _SHOWN else "")
        yield f"no Node object for {names}: taken for nodes without labels or limits that let every pod in"
    yield from reading.warnings
    if reading.ignored_kinds:
        yield f"passed over: {', '.join(sorted(reading.ignored_kinds))}"
