"""From Deployments, Jobs and other objects with pod templates to the pods that their controllers make.

Also what is said of objects of other kinds: those of Kubernetes that use no devices are passed over, and a kind of
another API group that may make pods or claims is refused, because a cluster with fewer pods than it will have is not
the cluster that was asked about.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.texts import shortened
from dra_sdk.tools.scheduling.cluster.builtin_types import builtin_kinds, field_problems, kind_problems
from dra_sdk.tools.scheduling.cluster.core_v1 import (
    Namespace,
    Node,
    PartialTopLevel,
    Pod,
    pod_of,
    validate_core_object,
    validate_pod,
)
from dra_sdk.tools.scheduling.cluster.disruption_budgets import PodDisruptionBudget
from dra_sdk.tools.scheduling.cluster.foreign_kinds import WITHOUT_PODS
from dra_sdk.tools.scheduling.cluster.made_objects import RUNTIMES, makes_objects
from dra_sdk.tools.scheduling.cluster.node_filter import rejection_reason, required_node_names
from dra_sdk.tools.scheduling.cluster.pod_groups import KINDS as GROUP_KINDS
from dra_sdk.tools.scheduling.cluster.pod_groups import (
    PodGroup,
    Workload,
    is_group_kind,
    not_served,
    pod_group_problems,
)
from dra_sdk.tools.scheduling.cluster.priority_classes import PriorityClass
from dra_sdk.tools.scheduling.cluster.quotas import ResourceQuota
from dra_sdk.tools.scheduling.cluster.snapshot import (
    DEFAULT_NAMESPACE,
    ObjectKey,
    Snapshot,
    generated_name,
    generated_uid,
    object_key,
    unused_name,
    value_at,
)
from dra_sdk.tools.scheduling.cluster.template_uses import Path, TemplateUse, WorkloadError, kind_key
from dra_sdk.tools.scheduling.cluster.workload_kinds import WorkloadKinds
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.metadata import TopLevel
from dra_sdk.wire.validation.decoding import read_as
from dra_sdk.wire.validation.metadata import new_name
from dra_sdk.wire.validation.problems import Problem, ProblemType, invalid, join_path

CORE_KINDS: Final[Mapping[str, type[TopLevel]]] = {
    "Node": Node,
    "Pod": Pod,
    "Namespace": Namespace,
    "PriorityClass": PriorityClass,
    "PodDisruptionBudget": PodDisruptionBudget,
    "ResourceQuota": ResourceQuota,
    "PodGroup": PodGroup,
    "Workload": Workload,
}
"""The kinds that decide about pods beside those of resource.k8s.io, and their models."""
_CORE_VERSIONS: Final[Mapping[str, str]] = {
    "PriorityClass": "scheduling.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
}
"""Their API versions; v1 for the others."""
_SHOWN: Final = 5
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
DAEMON_SET: Final = ("apps", "DaemonSet")
_TYPED: Final = {"", "apps", "batch"}
"""The API groups of workloads whose fields are all known."""
_SIGN: Final = re.compile(
    r"containers?$|podtemplate|podspec|^template$|replicas?$|resourceclaim|deviceclass|accelerator|gpus?$|devices?$",
    re.IGNORECASE,
)
"""Fields that say that an object may make pods or claims."""
_LABELS: Final = re.compile(r"(?:labels|annotations|selector)$", re.IGNORECASE)
"""Fields whose keys are those of labels and annotations, which say nothing."""
OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of the controller of pods; of a ReplicaSet, the name without its hash."""
OwnedPods = Mapping[OwnerKey, Collection[str]]
"""The names of the pods of each controller."""
_NODE_NAME_FIELD: Final = "metadata.name"
_DAEMON_TOLERATIONS: Final = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
)
"""What the DaemonSet controller adds to its pods. Source: controller/daemon/util, AddOrUpdateDaemonPodTolerations."""


# -- kinds


def unknown_kind_problems(obj: JSON, kinds: WorkloadKinds) -> Iterator[Problem]:
    """Yield why an object may not be passed over: a misspelt kind, or a kind that may need devices and is not known."""
    yield from kind_problems(obj.get("apiVersion"), obj.get("kind"))
    version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
    known = kind_key(obj) in {*kinds.table, *WITHOUT_PODS, *RUNTIMES} or makes_objects(obj)
    if not version or version in builtin_kinds() or known:
        return
    content = {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
    if sign := next(_signs(content), ""):
        detail = f"{kind} of {version} is not understood, and its field {sign} may mean that it makes pods or claims; "
        yield Problem("kind", ProblemType.NOT_SUPPORTED, detail + _way_out(content))


def _way_out(content: JSON) -> str:
    """Return what can be done about an object that is not understood."""
    if path := next(_pod_specs(content), None):
        return (
            f"describe it in a file of --workloads (it has pods at {join_path(path)}), or leave it out by --ignore-kind"
        )
    return (
        "it has no pod template that --workloads could describe: add the pods and claims that it makes, as "
        "`kubectl get pods,resourceclaims,resourceclaimtemplates -o yaml` shows them, and leave it out by --ignore-kind"
    )


def _pod_specs(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of what look like PodSpecs."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield path
        for key, item in value.items():
            yield from _pod_specs(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pod_specs(item, (*path, index))


def _signs(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[str]:
    """Yield the paths of fields that say that an object may make pods or claims."""
    if isinstance(value, dict):
        for key, item in value.items():
            if _SIGN.search(str(key)):
                yield join_path([*path, str(key)])
            if not _LABELS.search(str(key)):
                yield from _signs(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _signs(item, (*path, index))


# -- problems


def is_core_kind(obj: JSON) -> bool:
    """Return whether an object has one of these kinds, in its version or without one."""
    kind = str(obj.get("kind") or "")
    if kind in GROUP_KINDS:
        return is_group_kind(obj)
    return kind in CORE_KINDS and str(obj.get("apiVersion") or "") in {"", _CORE_VERSIONS.get(kind, "v1")}


def core_object_problems(obj: JSON, profile: ServerProfile) -> list[Problem]:
    """Return what is wrong with an object of a core kind."""
    problems = [*kind_problems(obj.get("apiVersion"), obj.get("kind"))]
    if is_group_kind(obj) and not problems and (reason := not_served(obj, profile)):
        return [invalid("apiVersion", reason)]
    problems = problems or list(field_problems(str(obj["kind"]), obj, profile))
    if any(problem.type is not ProblemType.UNKNOWN for problem in problems):
        return problems
    value, more = read_as(CORE_KINDS[str(obj["kind"])], obj, profile)
    known = {problem.field for problem in problems}
    problems += [problem for problem in more if problem.field not in known]
    if isinstance(value, PodGroup):
        problems += pod_group_problems(value)
    return problems if value is None else [*problems, *validate_core_object(value)]


def metadata_problems(obj: JSON, profile: ServerProfile) -> list[Problem]:
    """Return what is wrong with the metadata of an object of any kind."""
    value, problems = read_as(PartialTopLevel, obj, profile)
    return problems if value is None else [*problems, *new_name(value.metadata.name, value.metadata.generate_name)]


def workload_problems(obj: JSON, kinds: WorkloadKinds, profile: ServerProfile) -> list[Problem]:
    """Return what an API server would refuse in an object with pod templates, as far as it is known here."""
    group, kind = kind_key(obj)
    problems = [*kind_problems(obj.get("apiVersion"), obj.get("kind"))]
    typed = group in _TYPED and not problems
    if typed:
        problems += field_problems(kind, obj, profile)
    problems += metadata_problems(obj, profile)
    if problems:
        return problems
    try:
        uses = {use.path: use for use in kinds.uses(obj) or ()}
    except WorkloadError as error:
        return [Problem(join_path(error.path), ProblemType.INVALID, error.detail)]
    if not uses:
        detail = f"{kind} has no pod template where one is expected"
        return [Problem("spec", ProblemType.REQUIRED, detail)]
    for use in uses.values():
        found = [] if typed else list(field_problems("PodTemplateSpec", use.template, profile))
        value, more = read_as(Pod, {"metadata": {}, "spec": use.template.get("spec") or {}}, profile)
        found += more if value is None else [*more, *validate_pod(value)]
        problems += [Problem(use.place(problem.field), problem.type, problem.detail) for problem in found]
    return problems


# -- pods


def expand(
    obj: JSON, kinds: WorkloadKinds, pods: Mapping[ObjectKey, JSON], owned: OwnedPods
) -> tuple[list[JSON], list[str]]:
    """Return the pods that the controller of an object has yet to make.

    Also return what is not simulated of it, each as the end of a sentence that begins with the object.

    pods: the pods that exist.
    owned: which of them have which controller.
    """
    namespace = object_key(obj)[0] or DEFAULT_NAMESPACE
    uses = list(kinds.uses(obj) or ())
    owners = Counter(use.owner for use in uses)
    made: dict[ObjectKey, JSON] = {}
    notes = dict.fromkeys(use.note for use in uses if use.note)
    if value_at(obj, ("metadata", "labels", _QUEUE)):
        notes["waits until Kueue admits it, which is not simulated; it is taken as admitted"] = None
    taken: list[str] = []
    for use in uses:
        own = owned.get(_owner_key(use, namespace), ())
        for index in _missing_pods(use, own, alone=owners[use.owner] == 1):
            base = use.names[index]
            is_used = partial(_is_pod, namespace, pods, made)
            name = unused_name(base, is_used, namespace, *use.owner[1:], str(index)) if base.endswith("-") else base
            if is_used(name):
                taken.append(name)
            else:
                made[namespace, name] = made_pod(use, namespace, name, base, use.added[index] if use.added else {})
    if taken:
        notes[f"cannot make pods that others have the names of: {shortened(taken, _SHOWN)}"] = None
    return list(made.values()), list(notes)


def _is_pod(namespace: str, pods: Container[ObjectKey], made: Container[ObjectKey], name: str) -> bool:
    return (namespace, name) in pods or (namespace, name) in made


def _missing_pods(use: TemplateUse, own: Collection[str], *, alone: bool) -> list[int]:
    """Return the indices in `use.names` of the pods that are not among its controller's own pods.

    alone: whether all of these are of this template; else, those are whose names begin as its names do.
    """
    bases = tuple(set(use.names))
    of_template = {name for name in own if alone or name.startswith(bases)}
    left = [index for index, name in enumerate(use.names) if name not in of_template]
    others = len(of_template) - (len(use.names) - len(left))
    return left[: max(0, len(left) - others)]


def made_pod(
    use: TemplateUse, namespace: str, name: str, base: str, added: Mapping[str, Mapping[str, str]] | None = None
) -> JSON:
    """Return a pod from a template, as its controller makes it.

    base: what the controller gives as name or `generateName`.
    added: the labels and annotations that it adds.
    """
    version, kind, owner = use.owner
    metadata: JSON = {key: value for key, value in (use.template.get("metadata") or {}).items() if value is not None}
    uid = generated_uid(kind, (namespace, owner))
    reference = {"apiVersion": version, "kind": kind, "name": owner, "uid": uid, "controller": True}
    for key, values in (added or {}).items():
        metadata[key] = {**(metadata.get(key) or {}), **values}
    metadata |= {"name": name, "namespace": namespace, "uid": generated_uid("Pod", (namespace, name), uid)}
    if base != name:
        metadata["generateName"] = base
    metadata["ownerReferences"] = [reference]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": use.template.get("spec") or {}}


def owned_pods(pods: Mapping[ObjectKey, JSON]) -> OwnedPods:
    """Return the names of the pods of each controller; of a Deployment's ReplicaSets together."""
    owned: dict[OwnerKey, list[str]] = {}
    for (namespace, name), pod in pods.items():
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                key = _named_owner(namespace, str(owner.get("kind")), str(owner.get("name")))
                owned.setdefault(key, []).append(name)
    return owned


def _owner_key(use: TemplateUse, namespace: str) -> OwnerKey:
    return _named_owner(namespace, *use.owner[1:])


def _named_owner(namespace: str, kind: str, name: str) -> OwnerKey:
    return namespace, kind, name.rpartition("-")[0] if kind == "ReplicaSet" and "-" in name else name


# -- DaemonSets


def with_daemon_pods(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with a pod of each DaemonSet on each node that it selects and that has none yet.

    Source: controller/daemon.
    """
    kinds = WorkloadKinds()
    owned = owned_pods(snapshot.pods_by_key) if snapshot.daemon_sets else {}
    made: dict[ObjectKey, JSON] = {}
    for obj in snapshot.daemon_sets:
        for use in kinds.uses(obj) or ():
            namespace = object_key(obj)[0]
            own = owned.get(_owner_key(use, namespace), ())
            present = {_daemon_node(snapshot.pods_by_key[namespace, name]) for name in own}
            is_used = partial(_is_pod, namespace, snapshot.pods_by_key, made)
            for pod in _missing_daemon_pods(snapshot.nodes, namespace, use, present, is_used):
                made[object_key(pod)] = pod
    return replace(snapshot, pods=(*made.values(), *snapshot.pods)) if made else snapshot


def _missing_daemon_pods(
    nodes: Iterable[JSON], namespace: str, use: TemplateUse, present: Container[str], is_used: Callable[[str], bool]
) -> Iterator[JSON]:
    spec = use.template.get("spec") or {}
    tolerations = [*(spec.get("tolerations") or ()), *_DAEMON_TOLERATIONS]
    if spec.get("hostNetwork"):
        tolerations.append({**_DAEMON_TOLERATIONS[-1], "key": "node.kubernetes.io/network-unavailable"})
    wanted = pod_of({"spec": spec | {"tolerations": tolerations}})
    labels = {"controller-revision-hash": generated_name("", "template"), "pod-template-generation": "1"}
    base = f"{use.owner[2]}-"
    for obj in nodes:
        node = str(obj["metadata"]["name"])
        if node in present or rejection_reason(wanted, obj):
            continue
        pod = made_pod(use, namespace, unused_name(base, is_used, namespace, node), base, {"labels": labels})
        yield pod | {"spec": spec | {"tolerations": tolerations, "affinity": _only_on(spec.get("affinity"), node)}}


def _only_on(affinity: JSON | None, node: str) -> JSON:
    """Return the affinity with the node instead of its required terms, as the controller writes it."""
    required = {"key": _NODE_NAME_FIELD, "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [required]}]}
    inner = dict((affinity or {}).get("nodeAffinity") or {})
    inner["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    return {**(affinity or {}), "nodeAffinity": inner}


def _daemon_node(pod: JSON) -> str:
    """Return the node of a DaemonSet's pod: where it runs, or the one that its affinity names."""
    spec: JSON = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    return min(required_node_names(pod_of(pod)) or (), default="")
