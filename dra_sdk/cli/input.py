"""The objects that commands look at: from files, from drivers and from a running cluster."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dra_sdk.cli.arguments import (
    DEFAULT_NODE,
    REPEATED,
    UNDER_KUBECTL,
    Parser,
    add_server_flags,
    from_text,
    is_directory,
)
from dra_sdk.cli.live_cluster import (
    LiveCluster,
    add_connection_flags,
    add_selection_flags,
    add_watch_flags,
    names_cluster,
    opened_cluster,
)
from dra_sdk.cli.progress import phase
from dra_sdk.errors import DraError, InvalidObjectError, SettingsError
from dra_sdk.input_files import MIB, read_limited, read_stream
from dra_sdk.texts import shortened
from dra_sdk.tools.scheduling.cluster import ObjectSource, Snapshot, SnapshotReadError, SnapshotReading, read_snapshot
from dra_sdk.tools.scheduling.cluster.list_files import read_list
from dra_sdk.tools.scheduling.cluster.simulation_notes import contradicting_slices, idle_daemon_sets
from dra_sdk.tools.scheduling.cluster.snapshot import DEFAULT_NAMESPACE, Count, no_count
from dra_sdk.tools.scheduling.cluster.workload_kinds import WorkloadKinds
from dra_sdk.wire.documents import read_documents
from dra_sdk.wire.profile import DEFAULT_VERSION, ServerProfile

STDIN: Final = "-"
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_RENDER_SECONDS: Final = 120
FILE_LIMIT: Final = 1024 * MIB
"""Bytes of one file; a million devices in one file have about 200 MiB."""
_TEMPLATE_HINTS: Final[Mapping[bytes, str]] = {
    b"{{": "give the directory of its Helm chart, or the output of `helm template`",
    b"${": "give it with the values of its variables, such as the output of `envsubst`",
}
"""What to do with a file that has these bytes and is no YAML."""
MAX_NAMES: Final = 5
"""The most names in one note."""


# -- files


def read_content(name: str) -> bytes:
    """Return the content of a file, of standard input for `-`, or what a chart or a kustomization renders to.

    SettingsError if it cannot be read.
    """
    try:
        if name == STDIN:
            return read_stream(sys.stdin.buffer, FILE_LIMIT)
        return _rendered(name) if Path(name).is_dir() else read_limited(Path(name), FILE_LIMIT)
    except OSError as error:
        raise SettingsError(f"cannot read {name}: {error.strerror}") from error


def file_names(names: Iterable[str]) -> Iterator[str]:
    """Yield the names, with those of its YAML and JSON files for a directory; charts and kustomizations stay.

    So do directories without such files, which `read_file` refuses. Directories below are not read, as by
    `kubectl apply -f`.
    """
    for name in names:
        if not is_directory(Path(name)) or _renderers(name):
            yield name
            continue
        files = sorted(str(path) for path in Path(name).iterdir() if path.suffix in _SUFFIXES and path.is_file())
        yield from files or [name]


def _renderers(name: str) -> tuple[str, list[list[str]]] | None:
    """Return what a directory is, and the commands of which any renders it; None for a directory of files."""
    path = Path(name)
    if (path / "Chart.yaml").is_file():
        return "a Helm chart", [["helm", "template", name]]
    if any((path / file).is_file() for file in ("kustomization.yaml", "kustomization.yml", "Kustomization")):
        return "a kustomization", [["kubectl", "kustomize", name], ["kustomize", "build", name]]
    return None


def _rendered(name: str) -> bytes:
    """Return what a chart or a kustomization renders to; SettingsError if its tool is missing or fails."""
    renderers = _renderers(name)
    if renderers is None:
        raise SettingsError(f"cannot read {name}: it is a directory without files that end in {', '.join(_SUFFIXES)}")
    what, commands = renderers
    command = next((command for command in commands if shutil.which(command[0])), None)
    if command is None:
        tools, first = " or ".join(command[0] for command in commands), " ".join(commands[0])
        raise SettingsError(f"{name} is {what}, which needs {tools}: install it, or give the output of `{first}`")
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_RENDER_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SettingsError(f"`{' '.join(command)}` did not end within {_RENDER_SECONDS} s") from error
    if done.returncode:
        raise SettingsError(f"`{' '.join(command)}` failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def file_title(name: str) -> str:
    """Return the name of a file in messages."""
    return "<stdin>" if name == STDIN else name


def read_file(name: str) -> ObjectSource:
    """Return the objects in a file; SettingsError if it cannot be read, InvalidObjectError if it is no YAML or JSON."""
    title, content = file_title(name), read_content(name)
    try:
        return ObjectSource(title, read_documents(content, title))
    except InvalidObjectError as error:
        hints = [hint for sign, hint in _TEMPLATE_HINTS.items() if sign in content]
        if not hints:
            raise
        raise InvalidObjectError(title, [*error.problems, f"it looks like a template; {hints[0]}"]) from error


def read_objects(name: str, count: Count = no_count) -> ObjectSource:
    """Read as `read_file` does, but the items of a large List are documents of their own, and are read one by one.

    count: called with how many bytes of such a List are read, and of how many.
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
        **REPEATED,
        metavar="KIND",
        help="pass over objects of this kind, even if it may need devices; may be repeated",
    )


def read_kinds(file: Path | None) -> WorkloadKinds:
    """Return the built-in kinds with pod templates and those of a user's file; SettingsError, InvalidObjectError."""
    kinds = WorkloadKinds()
    for document in read_file(str(file)).documents if file else ():
        kinds = kinds.with_rows(document.value, str(file))
    return kinds


# -- a cluster


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
        """Return namespace and name of `[NAMESPACE/]NAME`."""
        namespace, slash, name = text.partition("/")
        return (namespace, name) if slash else (self.namespace, namespace)


def add_scenario_flags(parser: Parser) -> None:
    """Add the flags for the sources of the objects and the release of the cluster."""
    kinds = "slices, classes, claims, templates, pods, workloads, nodes, taint rules"
    parser.add_files(
        f"YAML or JSON with {kinds}; a directory, a Helm chart or a kustomization; {STDIN} is standard input"
    )
    parser.add_argument("--driver", **REPEATED, metavar="NAME", help="add what a driver discovers; may be repeated")
    parser.add_argument(
        "--fixture",
        metavar="NAME|DIR|ARCHIVE",
        help="what the driver reads instead of /: a directory, an archive of `dra-sdk capture`, or a driver's fixture",
    )
    parser.add_argument(
        "--node",
        **REPEATED,
        type=from_text(_node),
        metavar="NAME[=FIXTURE]",
        help=f"the driver's node, with a fixture of its own (default: as for discover; with a fixture {DEFAULT_NODE}); "
        "may be repeated",
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
    """Yield the cluster that the flags describe, with a node for each name in the slices; DraError for bad input.

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
        for _ in cluster.moments(arguments.timeout):
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
        files = [replace(source, namespace=namespace) for source in _files(arguments.files)]
        return cls(profile, namespace, list(_discovered(arguments, profile)), files)

    def scenario(self, arguments: argparse.Namespace, cluster: LiveCluster | None) -> Scenario:
        kinds = read_kinds(arguments.workloads)
        sources = [*([cluster.source()] if cluster else []), *self.discovered, *self.files]
        with phase("reading objects") as reads:
            reading = read_snapshot(sources, self.profile, kinds=kinds, ignore=arguments.ignore_kind, count=reads.count)
        snapshot, added = reading.snapshot.with_missing_nodes()
        notes = (
            _empty_sources(self.discovered, self.files),
            _reading_notes(reading, added),
            _missing_objects(snapshot),
            contradicting_slices(snapshot),
            idle_daemon_sets(snapshot),
        )
        return Scenario(snapshot, tuple(note for some in notes for note in some), self.namespace)


def _discovered(arguments: argparse.Namespace, profile: ServerProfile) -> Iterator[ObjectSource]:
    if not arguments.driver and (arguments.fixture or arguments.node):
        raise SettingsError("--fixture and --node need --driver NAME")
    if arguments.driver:
        from dra_sdk.cli.driver_input import discovered_slices, opened_drivers  # noqa: PLC0415 (imports the node's half)

        for driver in opened_drivers(arguments):
            yield from discovered_slices(driver, profile)


def _node(text: str) -> tuple[str, str]:
    """Return the name of a node and its own fixture, or an empty one."""
    from dra_sdk.node.runtime.settings import node_name  # noqa: PLC0415 (imports the node's half)

    name, equals, fixture = text.partition("=")
    if equals and not (name and fixture):
        raise ValueError("must be NAME or NAME=FIXTURE")
    return node_name(name), fixture


def _files(names: list[str]) -> Iterator[ObjectSource]:
    """Yield the objects of all files; SnapshotReadError with all files that cannot be read."""
    problems = []
    for name in file_names(names):
        try:
            with phase(f"reading {file_title(name)}") as reads:
                source = read_objects(name, reads.count_bytes)
            yield source
        except DraError as error:
            problems.append(f"dra-sdk: {error}")
    if problems:
        raise SnapshotReadError(problems)


def _empty_sources(discovered: Sequence[ObjectSource], files: Sequence[ObjectSource]) -> Iterator[str]:
    for source in discovered:
        if not any(document.value["spec"].get("devices") for document in source.documents):
            yield f"{source.name} finds no device; --fixture gives it another tree to read"
    for source in files:
        if not any(document.value for document in source.documents):
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
