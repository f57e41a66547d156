"""`dra-sdk validate`: would an API server accept these objects?

Checks ResourceSlice, ResourceClaim, ResourceClaimTemplate, DeviceClass and DeviceTaintRule in YAML or JSON files,
without a cluster; of pods, nodes and the pod templates of workloads, it checks the names and types of all fields and
the values that concern devices. Other objects of Kubernetes are ignored. Of devices that exclude each other by
counters which the server drops, a warning says which ones overlap. With `--driver`, the opaque configuration for
this driver is checked too, as the driver itself and its admission policy do, and the CEL rules of its configuration
classes are compared with the classes. Exit status: 0 if all would be accepted, 1 if not, 2 for a file
that cannot be read, or for a kind that is not understood and may need devices.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.cli.arguments import REPEATED, Commands, add_output, add_server_flags
from dra_sdk.cli.hook_calls import load_driver
from dra_sdk.cli.input import STDIN, add_kind_flags, file_names, file_title, read_file, read_kinds
from dra_sdk.cli.live_cluster import add_label_flag, labels_of
from dra_sdk.cli.output import print_lines, print_notes
from dra_sdk.cli.validation_report import FORMATS, ValidationFinding, report
from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.texts import counted, shortened
from dra_sdk.tools.configuration.comparison import compare
from dra_sdk.tools.configuration.review import ConfigReviewer
from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.tools.scheduling.cluster.snapshot import DEFAULT_NAMESPACE
from dra_sdk.tools.scheduling.cluster.snapshot_reader import version_note
from dra_sdk.tools.scheduling.cluster.template_uses import kind_key
from dra_sdk.tools.scheduling.cluster.workload_kinds import WorkloadKinds
from dra_sdk.tools.scheduling.cluster.workloads import (
    core_object_problems,
    is_core_kind,
    unknown_kind_problems,
    workload_problems,
)
from dra_sdk.wire.conversion import older_version, original_path, reading_problem, to_v1
from dra_sdk.wire.counters import overlapping
from dra_sdk.wire.documents import Document, objects
from dra_sdk.wire.profile import DEFAULT_VERSION
from dra_sdk.wire.selectors import LabelSelector, labels_match
from dra_sdk.wire.validation import Problem, ServerProfile, dropped, title, validate
from dra_sdk.wire.validation.decoding import GROUP, KINDS, without_disabled
from dra_sdk.wire.validation.problems import DECODING, ProblemType, split_path

_PARTITIONS: Final = "DRAPartitionableDevices"
_SHOWN: Final = 10  # devices in a warning
_NAMESPACED: Final = {
    "Pod",
    "PodDisruptionBudget",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "PodGroup",
}


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("validate", help="check objects in files against the API", description=__doc__)
    parser.add_files(
        f"YAML or JSON, a directory, a Helm chart or a kustomization; {STDIN} is standard input", required=True
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help="the namespace of objects that name none (default %(default)s)",
    )
    add_label_flag(parser, "objects")
    parser.add_argument(
        "--driver",
        **REPEATED,
        metavar="NAME",
        help="also check the opaque configuration for this driver: a name that `dra-sdk drivers` lists, or "
        "module:Class; may be repeated",
    )
    add_server_flags(parser)
    parser.set_defaults(server_version=None)  # so that the last line can say that it was not given
    add_kind_flags(parser)
    add_output(
        parser,
        FORMATS,
        "text: a line for each problem (default); json; sarif: for code scanning; junit: for a report of tests",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each problem; status 1 if there are any, 2 if a file cannot be read."""
    profile = ServerProfile.of(arguments.server_version or DEFAULT_VERSION, arguments.feature_gates)
    drivers = [load_driver(name).info for name in arguments.driver]
    validation = _Validation(
        profile,
        read_kinds(arguments.workloads),
        frozenset(arguments.ignore_kind),
        arguments.namespace,
        arguments.selector,
        ConfigReviewer(drivers),
    )
    for config in (config for info in drivers for config in info.configs):
        validation.check_rules(config)
    for name in file_names(arguments.files):
        validation.check_file(name)
    validation.check_overlaps()
    print(report(validation.findings, validation.objects, arguments.output), end="")
    print_lines([validation.summary(by_default=arguments.server_version is None)], sys.stderr)
    return validation.exit_status


@dataclass(frozen=True, slots=True)
class _PlacedSlice:
    """A ResourceSlice that has no problem.

    file: its file.
    line: the line of its spec.
    subject: its title.
    spec: its spec.
    """

    file: str
    line: int
    subject: str
    spec: dict[str, Any]

    def finding(self, warning: str) -> ValidationFinding:
        """Return a warning about its devices."""
        return ValidationFinding(self.file, self.line, self.subject, "spec.devices", warning, "warning")


@dataclass(slots=True)
class _Validation:
    """The files that were checked so far.

    profile: release and feature gates of the server.
    kinds: the kinds with pod templates.
    ignore: kinds to pass over, even if they may need devices.
    namespace: the namespace of objects that name none.
    labels: the labels of the objects to check.
    reviewer: checks opaque configuration for the drivers that it knows.
    checked: number of checked objects.
    problems: number of problems.
    unreadable: number of files that cannot be read.
    not_understood: number of objects that may need devices and whose kind is not known.
    ignored: number of objects of other kinds, by kind.
    older: number of objects of older versions in the current file, by version.
    findings: what was found.
    objects: file and title of each checked object.
    pools: the slices with devices or counters of each pool, by driver and pool, for a server that drops counters.
    """

    profile: ServerProfile
    kinds: WorkloadKinds
    ignore: frozenset[str]
    namespace: str
    labels: LabelSelector
    reviewer: ConfigReviewer
    checked: int = 0
    problems: int = 0
    unreadable: int = 0
    not_understood: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    older: Counter[str] = field(default_factory=Counter)
    findings: list[ValidationFinding] = field(default_factory=list)
    objects: list[tuple[str, str]] = field(default_factory=list)
    pools: dict[tuple[str, str], list[_PlacedSlice]] = field(default_factory=dict)

    @property
    def exit_status(self) -> int:
        """The exit status."""
        return 2 if self.unreadable or self.not_understood else 1 if self.problems else 0

    def check_rules(self, config: type[OpaqueConfig]) -> None:
        """Check the CEL rules of a configuration class; print a note about what the class refuses beyond them."""
        comparison, (file, line) = compare(config), _source(config)
        self.problems += len(comparison.errors)
        self.findings += [ValidationFinding(file, line, config.kind, "", error) for error in comparison.errors]
        if comparison.notices:
            more = f" (and {len(comparison.notices) - 1} more)" if len(comparison.notices) > 1 else ""
            print_notes([f"{comparison.notices[0]}{more}"])

    def check_file(self, name: str) -> None:
        """Check all objects of one file."""
        try:
            documents = read_file(name).documents
        except (InvalidObjectError, SettingsError) as error:
            self.unreadable += 1
            self.findings.append(ValidationFinding(file_title(name), 1, "", "", str(error)))
            print_lines([f"dra-sdk: {error}"], sys.stderr)
            return
        if not any(document.value is not None for document in documents):
            print_notes([f"{file_title(name)} has no object"])
        for document in documents:
            for path, obj in objects(document.value):
                self._check_object(file_title(name), document, path, obj)
        print_notes(version_note(file_title(name), version, count) for version, count in self.older.items())
        self.older.clear()

    def _check_object(self, file: str, document: Document, path: Sequence[str | int], obj: Any) -> None:
        if self.labels and not labels_match(self.labels, labels_of(obj)):
            return
        if isinstance(obj, dict) and self._is_ignored(obj):
            self.ignored[str(obj["kind"])] += 1
            return
        self.checked += 1
        version = older_version(obj)
        if version:
            self.older[version] += 1
        obj = self._with_namespace(to_v1(obj))
        subject = title(obj).replace(" ", "/", 1)
        problems, warnings = self._problems_and_warnings(obj)
        wrong, unchecked = self.reviewer.problems(str(obj.get("kind")), obj) if isinstance(obj, dict) else ([], [])
        self.problems += len(problems) + len(wrong)
        self.objects.append((file, subject))
        findings = [(problem.field, problem.detail, "error") for problem in problems]
        findings += [(name, text, "error") for name, text in wrong]
        findings += [("", warning, "warning") for warning in unchecked]
        findings += [(problem.field, problem.detail, "warning") for problem in warnings]
        findings += [
            (problem.field, str(problem).removeprefix(f"{problem.field}: "), "warning")
            for problem in dropped(obj, self.profile)
        ]
        lines = [
            ValidationFinding(
                file, document.line([*path, *original_path(version, split_path(name))]), subject, name, text, level
            )
            for name, text, level in findings
        ]
        self.findings += sorted(lines, key=lambda finding: finding.line)
        if not problems and obj.get("kind") == "ResourceSlice" and not self.profile.enabled(_PARTITIONS):
            spec = obj["spec"]
            place = _PlacedSlice(file, document.line([*path, "spec"]), subject, spec)
            self.pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(place)

    def check_overlaps(self) -> None:
        """Warn of devices that exclude each other by counters which the server drops: claims may get both of them."""
        for (_, pool), slices in self.pools.items():
            devices = [device for placed in slices for device in placed.spec.get("devices") or ()]
            sets = [counters for placed in slices for counters in placed.spec.get("sharedCounters") or ()]
            for placed in slices:
                own = {device["name"] for device in placed.spec.get("devices") or ()}
                overlaps = {name: rivals for name, rivals in overlapping(devices, sets).items() if name in own}
                if overlaps:
                    self.findings.append(placed.finding(_overlap_warning(pool, overlaps, self.profile)))

    def _problems_and_warnings(self, obj: Any) -> tuple[list[Problem], list[Problem]]:
        """Return the problems for which the server refuses the object, and those in fields that it drops before."""
        if isinstance(obj, dict) and not _is_resource(obj):
            return self._core_problems(obj), []
        if problem := reading_problem(obj):
            return [problem], []
        compile_cel = cel_compiler(self.profile)
        refused = validate(obj, profile=self.profile, compile_cel=compile_cel)
        if not dropped(obj, self.profile):
            return refused, []
        kept = without_disabled(obj, None, self.profile)
        problems = [problem for problem in refused if problem.type in DECODING]
        problems += validate(kept, profile=self.profile, compile_cel=compile_cel)
        known = {(problem.field, problem.type) for problem in problems}
        return problems, [problem for problem in refused if (problem.field, problem.type) not in known]

    def _is_ignored(self, obj: dict[str, Any]) -> bool:
        """Return whether nothing is checked of an object: its kind is ignored or has nothing to do with devices."""
        if not obj.get("kind") or _is_resource(obj) or is_core_kind(obj):
            return False
        known = kind_key(obj) in self.kinds.table or bool(list(unknown_kind_problems(obj, self.kinds)))
        return not known or str(obj["kind"]) in self.ignore

    def _core_problems(self, obj: dict[str, Any]) -> list[Problem]:
        """Return what is wrong with a pod, a node, a namespace, a workload, or an object whose kind is not known."""
        if kind_key(obj) in self.kinds.table:
            return workload_problems(obj, self.kinds, self.profile)
        if is_core_kind(obj):
            return core_object_problems(obj, self.profile)
        problems = list(unknown_kind_problems(obj, self.kinds))
        self.not_understood += any(problem.type is ProblemType.NOT_SUPPORTED for problem in problems)
        return problems

    def _with_namespace(self, obj: Any) -> Any:
        """Return the object as `kubectl` sends it: in the namespace of `-n` unless it names another one."""
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        if not isinstance(metadata, dict) or not (
            str(obj.get("kind")) in _NAMESPACED or kind_key(obj) in self.kinds.table
        ):
            return obj
        return obj | {"metadata": {"namespace": self.namespace} | metadata}

    def summary(self, *, by_default: bool) -> str:
        """Return the last line; `by_default` says that nobody chose the release."""
        release = f"{self.profile.version}{', as --server-version was not given' if by_default else ''}"
        parts = [f"{counted(self.checked, 'object')} checked for Kubernetes {release}"]
        parts.append(counted(self.problems, "problem"))
        if self.unreadable:
            parts.append(f"{counted(self.unreadable, 'file')} not readable")
        if self.not_understood:
            parts.append(f"{counted(self.not_understood, 'object')} not understood")
        if self.ignored:
            parts.append(f"ignored kinds: {', '.join(sorted(self.ignored))}")
        return "; ".join(parts)


def _overlap_warning(pool: str, overlaps: Mapping[str, Sequence[str]], profile: ServerProfile) -> str:
    rivals = list(dict.fromkeys(rival for names in overlaps.values() for rival in names))
    beside = f" beside {shortened(rivals, _SHOWN)}" if rivals else ""
    return (
        f"{shortened(list(overlaps), _SHOWN)} of pool {pool} cannot be had{beside}; Kubernetes {profile.version} drops "
        f"the counters that say so, because its feature gate {_PARTITIONS} is off, so claims may get them"
    )


def _source(config: type[OpaqueConfig]) -> tuple[str, int]:
    """Return file and line of a class; its module and line 1 if it has no source."""
    try:
        return inspect.getsourcefile(config) or config.__module__, inspect.getsourcelines(config)[1]
    except (OSError, TypeError):
        return config.__module__, 1


def _is_resource(obj: dict[str, Any]) -> bool:
    return str(obj.get("kind")) in KINDS or str(obj.get("apiVersion") or "").startswith(f"{GROUP}/")
