"""Reads a snapshot from documents: objects as the API server would store them, or a line for each problem.

Objects of resource.k8s.io are validated and get their defaults, and fields that the server would drop are dropped. Of
pods and nodes, the fields that matter here are validated. Objects from a cluster are not changed.
Admin access needs a label on the namespace. Source: KEP-5018; registry/resource, authorization of admin access.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.texts import counted
from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.tools.scheduling.cluster.located_objects import LocatedObject, ObjectSource
from dra_sdk.tools.scheduling.cluster.made_objects import RUNTIMES, made_objects, makes_objects
from dra_sdk.tools.scheduling.cluster.pod_groups import is_group_kind, not_served
from dra_sdk.tools.scheduling.cluster.snapshot import (
    FIELD_OF_KIND,
    Count,
    ObjectKey,
    Snapshot,
    generated_uid,
    grouped,
    no_count,
    object_key,
    unused_name,
)
from dra_sdk.tools.scheduling.cluster.template_uses import KindKey, WorkloadError, kind_key
from dra_sdk.tools.scheduling.cluster.valid_shapes import ValidShapes
from dra_sdk.tools.scheduling.cluster.workload_kinds import WorkloadKinds
from dra_sdk.tools.scheduling.cluster.workloads import (
    CORE_KINDS,
    DAEMON_SET,
    core_object_problems,
    expand,
    is_core_kind,
    metadata_problems,
    owned_pods,
    unknown_kind_problems,
    workload_problems,
)
from dra_sdk.wire.conversion import older_version, reading_problem, to_v1
from dra_sdk.wire.documents import objects
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import Dropped, Problem, title, validate
from dra_sdk.wire.validation.availability import drop_disabled, dropped_fields
from dra_sdk.wire.validation.decoding import GROUP, read_object, set_defaults
from dra_sdk.wire.validation.decoding import KINDS as RESOURCE_KINDS
from dra_sdk.wire.validation.problems import UnknownFunction, invalid, join_path, show

ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"
_LABEL_NEEDED: Final = f'admin access is only granted in namespaces with the label {ADMIN_ACCESS_LABEL}: "true"'
_CLAIM_KINDS: Final = {"ResourceClaim", "ResourceClaimTemplate"}
_CLUSTER_KINDS: Final = {"Node", "Namespace", "PriorityClass", "ClusterTrainingRuntime"}
_INDEX = re.compile(r"\[\d+\]")


class SnapshotReadError(DraError):
    """The API server would reject objects; `problems` has a line for each problem: file, line, object, field, text."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class SnapshotReading:
    """The result of `read_snapshot`.

    snapshot: the objects.
    warnings: what the API server would silently change, in sentences.
    ignored_kinds: how many objects of each kind were ignored because the kind does not matter here.
    """

    snapshot: Snapshot
    warnings: tuple[str, ...]
    ignored_kinds: Counter[str]


def read_snapshot(
    sources: Iterable[ObjectSource],
    profile: ServerProfile | None = None,
    *,
    kinds: WorkloadKinds | None = None,
    ignore: Collection[str] = (),
    count: Count = no_count,
) -> SnapshotReading:
    """Return a snapshot of all objects in `sources`; SnapshotReadError with every problem of every object.

    Objects without a namespace are in `default`. Those without a name or a UID get one that is the same in every run.
    Objects with pod templates become pods.

    kinds: the kinds with pod templates; None: those that are built in.
    ignore: kinds to pass over, even if they may need devices.
    count: called with how many documents are read.
    """
    profile = profile or ServerProfile.of()
    reader = _SnapshotReader(profile, kinds or WorkloadKinds(), frozenset(ignore), ValidShapes(profile))
    documents = ((source, document) for source in sources for document in source.documents)
    for done, (source, document) in enumerate(documents, 1):
        count(done, 0)
        for path, obj in objects(document.value, document.place):
            reader.read(LocatedObject(source, document, path, to_v1(obj), older_version(obj)))
    reader.warn_about_versions()
    reader.make_objects()
    reader.expand_workloads()
    reader.check_admin_access()
    if reader.problems:
        raise SnapshotReadError(reader.problems)
    kept: dict[str, Any] = {field: tuple(by_key.values()) for field, by_key in reader.objects.items()}
    return SnapshotReading(Snapshot(profile=reader.profile, **kept), tuple(reader.warnings), reader.ignored_kinds)


@dataclass(slots=True)
class _SnapshotReader:
    profile: ServerProfile
    kinds: WorkloadKinds
    ignored: frozenset[str]
    valid_shapes: ValidShapes
    objects: dict[str, dict[ObjectKey, JSON]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ignored_kinds: Counter[str] = field(default_factory=Counter)
    _seen: dict[tuple[str, ObjectKey], LocatedObject] = field(default_factory=dict)
    _named: set[tuple[str, ObjectKey]] = field(default_factory=set)
    _admin_claims: list[tuple[LocatedObject, str]] = field(default_factory=list)
    _older: Counter[tuple[str, str]] = field(default_factory=Counter)
    _workloads: list[tuple[LocatedObject, JSON]] = field(default_factory=list)
    _makers: list[tuple[LocatedObject, JSON]] = field(default_factory=list)
    _sources: dict[tuple[KindKey, ObjectKey], JSON] = field(default_factory=dict)

    def read(self, located: LocatedObject) -> None:
        """Keep the object, or its problems, or count it as ignored."""
        obj = located.obj
        if problem := reading_problem(obj):
            self.problems.append(located.problem_line(problem))
            return
        kind, version = str(obj.get("kind") or ""), str(obj.get("apiVersion") or "")
        if kind.endswith("List") and "items" in obj:
            self.problems.append(located.problem_line(invalid("items", f"must be a list, is {show(obj['items'])}")))
            return
        if located.version:
            self._older[located.source.name, located.version] += 1
        if kind in self.ignored:
            self.ignored_kinds[kind] += 1
            return
        is_workload = kind_key(obj) in self.kinds.table
        if self._is_passed_over(obj, located) or (self._keep_maker(obj, located) and not is_workload):
            return
        known = is_workload or kind in RESOURCE_KINDS or version.startswith(f"{GROUP}/")
        if not known and not is_core_kind(obj):
            unknown = list(map(located.problem_line, unknown_kind_problems(obj, self.kinds)))
            self.problems += unknown
            self.ignored_kinds.update([kind] if not unknown else [])
            return
        obj = self._with_names(obj, located)
        problems, stored = ([], obj) if located.source.stored else self._checked(kind, obj, located)
        self.problems += [located.problem_line(problem) for problem in problems]
        if not problems and stored is not None:
            if is_workload and kind_key(obj) != DAEMON_SET:
                self._workloads.append((located, stored))
            elif kind in FIELD_OF_KIND:
                self._keep(kind, stored, located)

    def _is_passed_over(self, obj: JSON, located: LocatedObject) -> bool:
        """Count a PodGroup or Workload that the server does not have, with a warning; return whether it is one."""
        if not is_group_kind(obj) or not (reason := not_served(obj, self.profile)):
            return False
        self.warnings.append(f"{located.location()} is passed over: {reason}")
        self.ignored_kinds[str(obj["kind"])] += 1
        return True

    def _keep_maker(self, obj: JSON, located: LocatedObject) -> bool:
        """Keep an object that makes others, or that one of these refers to; return whether it is one."""
        if kind_key(obj) not in RUNTIMES and not makes_objects(obj):
            return False
        obj = self._with_names(obj, located)
        problems = [] if located.source.stored else metadata_problems(obj, self.profile)
        self.problems += [located.problem_line(problem) for problem in problems]
        if not problems and makes_objects(obj):
            self._makers.append((located, obj))
        elif not problems:
            self._sources[kind_key(obj), object_key(obj)] = obj
        return True

    def _with_names(self, obj: JSON, located: LocatedObject) -> JSON:
        """Return the object with the default namespace, and with a name in place of `generateName`."""
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            return obj if metadata is not None else obj | {"metadata": {}}
        metadata = {name: value for name, value in metadata.items() if value is not None}
        kind = str(obj.get("kind"))
        if kind in _CLAIM_KINDS or kind not in {*RESOURCE_KINDS, *_CLUSTER_KINDS}:
            metadata = {"namespace": located.source.namespace} | metadata
        base = metadata.get("generateName")
        if isinstance(base, str) and base and not metadata.get("name"):
            namespace = str(metadata.get("namespace") or "")
            is_used = partial(self._is_used, kind, namespace)
            metadata["name"] = unused_name(base, is_used, located.source.name, str(len(self._named)))
            self._named.add((kind, (namespace, metadata["name"])))
        return obj | {"metadata": metadata}

    def _is_used(self, kind: str, namespace: str, name: str) -> bool:
        return (kind, (namespace, name)) in self._named or (kind, (namespace, name)) in self._seen

    def make_objects(self) -> None:
        """Keep, after all objects are read, the templates and workloads that controllers make, if not given."""
        given = {(kind_key(obj), object_key(obj)) for _, obj in self._workloads}
        for located, obj in self._makers:
            try:
                made = list(made_objects(obj, self._sources))
            except WorkloadError as error:
                self.problems.append(located.problem_line(invalid(join_path(error.path), error.detail)))
                continue
            for other in made:
                key, kind, where = object_key(other), str(other["kind"]), replace(located, obj=other)
                if (kind, key) in self._seen or (kind_key(other), key) in given:
                    continue
                problems, stored = self._checked(kind, other, where)
                self.problems += [where.problem_line(problem) for problem in problems]
                if not problems and stored is not None and kind in FIELD_OF_KIND:
                    self._keep(kind, stored, where)
                elif not problems and stored is not None:
                    self._workloads.append((where, stored))

    def expand_workloads(self) -> None:
        """Keep, after all objects are read, the pods that the controllers of workloads make."""
        seen: dict[tuple[KindKey, ObjectKey], LocatedObject] = {}
        pods = self.objects.setdefault("pods", {})
        owned = owned_pods(pods)
        for located, obj in self._workloads:
            if before := seen.get((kind_key(obj), object_key(obj))):
                self.problems.append(located.second_definition(before))
                continue
            seen[kind_key(obj), object_key(obj)] = located
            made, notes = expand(obj, self.kinds, pods, owned)
            self.warnings += [f"{located.location()} {note}" for note in notes]
            pods |= {object_key(pod): pod for pod in made}

    def warn_about_versions(self) -> None:
        """Say which sources have objects of older versions."""
        self.warnings += [version_note(source, version, count) for (source, version), count in self._older.items()]

    def check_admin_access(self) -> None:
        """Check, after all objects are read, that namespaces grant the admin access that claims request."""
        namespaces = self.objects.get("namespaces", {})
        for located, name in self._admin_claims:
            namespace = namespaces.get(("", name))
            if namespace is None:
                self.warnings.append(f"{located.location('spec')}: {assumed_admin_access(name)}")
            elif reason := admin_access_refusal(namespace):
                self.problems.append(f"{located.location('spec')}: {reason}")

    def _checked(self, kind: str, obj: JSON, located: LocatedObject) -> tuple[list[Problem], JSON | None]:
        if kind_key(obj) in self.kinds.table:
            return workload_problems(obj, self.kinds, self.profile), obj
        if known := self.valid_shapes.stored(located.document, obj) if located.is_whole else None:
            return [], known
        if kind in CORE_KINDS:
            return core_object_problems(obj, self.profile), _with_spec(obj)
        problems = self._without_unknown_functions(
            validate(obj, profile=self.profile, compile_cel=cel_compiler(self.profile)), located
        )
        if not problems and kind == "ResourceClaim" and obj.get("status"):
            problems = self._problems_of_status(obj)
        if problems:
            return problems, None
        stored, dropped = _stored(obj, self.profile)
        if dropped:
            warnings = [
                f"{located.location(alike[0].field)}: {alike[0]}{_and_more(len(alike) - 1)}"
                for alike in grouped(dropped, lambda problem: _INDEX.sub("[]", problem.field)).values()
            ]
            problems = validate(stored, profile=self.profile)  # without the dropped fields it may be invalid
            (self.problems if problems else self.warnings).extend(warnings)  # then they are the cause
        elif located.is_whole:
            self.valid_shapes.remember(located.document, obj, stored)
        return problems, stored

    def _without_unknown_functions(self, problems: list[Problem], located: LocatedObject) -> list[Problem]:
        """Warn of functions that a later release may have, if nothing else is wrong; their selectors match nothing."""
        if not all(isinstance(problem, UnknownFunction) for problem in problems):
            return problems
        unknown = "a later release may have this function; here its selector matches no device"
        self.warnings += [f"{located.location(problem.field)}: {problem}: {unknown}" for problem in problems]
        return []

    def _problems_of_status(self, claim: JSON) -> list[Problem]:
        """Return what is invalid in the status of a claim that is already allocated."""
        metadata = claim["metadata"] | {"resourceVersion": "1"}
        stored = claim | {"metadata": metadata}
        before = {name: value for name, value in stored.items() if name != "status"}
        problems = validate(stored, old=before, subresource="status", profile=self.profile)
        return [problem for problem in problems if problem.field.startswith("status")]

    def _keep(self, kind: str, obj: JSON, located: LocatedObject) -> None:
        metadata = obj["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        if before := self._seen.get((kind, key)):
            self.problems.append(located.second_definition(before))
            return
        # What is stored says the same, and is kept in any case; the object as it was read need not be.
        self._seen[kind, key] = replace(located, obj=obj) if title(located.obj) == title(obj) else located
        if kind in _CLAIM_KINDS and requests_admin_access(obj) and not located.source.stored:
            self._admin_claims.append((located, key[0]))
        if not metadata.get("uid"):
            obj = obj | {"metadata": metadata | {"uid": generated_uid(kind, key)}}
        self.objects.setdefault(FIELD_OF_KIND[kind], {})[key] = obj


def version_note(source: str, version: str, count: int) -> str:
    """Return what is done with objects of an older version."""
    what = f"{count} object of {version} is" if count == 1 else f"{count} objects of {version} are"
    return f"{source}: {what} read as v1; a cluster may not serve {version}, and `dra-sdk convert` writes v1"


def requests_admin_access(obj: JSON) -> bool:
    """Return whether a claim, or the claims made from a template, request admin access."""
    spec = obj["spec"].get("spec", {}) if obj["kind"] == "ResourceClaimTemplate" else obj["spec"]
    requests = spec.get("devices", {}).get("requests") or ()
    return any((request.get("exactly") or {}).get("adminAccess") for request in requests)


def admin_access_refusal(namespace: JSON) -> str:
    """Return why this namespace does not grant admin access; empty if it does."""
    metadata = namespace["metadata"]
    if (metadata.get("labels") or {}).get(ADMIN_ACCESS_LABEL) == "true":
        return ""
    return f"{_LABEL_NEEDED}; {metadata['name']} has none"


def assumed_admin_access(namespace: str) -> str:
    """Return what is assumed about a namespace that is not given."""
    return f"{_LABEL_NEEDED}; namespace {namespace} is not given and is assumed to have it"


def _stored(obj: JSON, profile: ServerProfile) -> tuple[JSON, list[Dropped]]:
    """Return a valid object as the server stores it, with defaults, and the fields that the server drops."""
    value, _ = read_object(obj, profile)
    if value is None:
        raise ValueError(f"{title(obj)} is not valid")
    dropped = list(dropped_fields(value, profile))
    if dropped:
        drop_disabled(value, None, profile)
    set_defaults(value)
    stored = value.to_json()
    spec = stored.setdefault("spec", {})
    if stored["kind"] in _CLAIM_KINDS:
        (spec if stored["kind"] == "ResourceClaim" else spec.setdefault("spec", {})).setdefault("devices", {})
    return stored, dropped


def _and_more(more: int) -> str:
    return f" (and {counted(more, 'more such field')})" if more else ""


def _with_spec(obj: JSON) -> JSON:
    """Return an object of a core kind with a spec, if its kind has one."""
    return obj if obj["kind"] == "PriorityClass" else obj | {"spec": obj.get("spec") or {}}
