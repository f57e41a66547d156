"""Workloads drawn at random, and their pods and claims in a form in which those of two clusters can be compared."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tests.cluster.differential.case import JSON

NAMESPACE: Final = "default"
NODES: Final = (("plain", {}, {}), ("labelled", {"disk": "fast"}, {}), ("cordoned", {}, {"unschedulable": True}))
_TAINT: Final = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
_RANDOM_LABELS: Final = (
    "pod-template-hash",
    "controller-revision-hash",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
)
"""Labels whose values are hashes and UIDs."""
_LONG: Final = 40
_DEFAULT_SECONDS: Final = 300
"""The tolerationSeconds that the admission plugin DefaultTolerationSeconds adds to each pod."""


def nodes() -> Iterator[JSON]:
    """Node objects: plain, with a label, cordoned, tainted. There is no kubelet behind them."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    for name, labels, spec in (*NODES, ("tainted", {}, {"taints": [_TAINT]})):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "spec": spec,
            "status": ready,
        }


def templates() -> Iterator[JSON]:
    """The ResourceClaimTemplates that the pods use."""
    for name, count in (("one", 1), ("two", 2)):
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "metadata": {"labels": {"made-from": name}},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            },
        }


def draw_workload(chance: random.Random, number: int) -> JSON:
    """A workload of any kind of apps/v1, batch/v1 or core/v1; its name has the number."""
    draw = chance.choice(list(_KINDS.values()))
    name = f"w{number}-{chance.choice(('a', 'web-server', 'x' * 40))}"
    return draw(chance, name)


def is_ordered(obj: JSON) -> bool:
    """Whether a StatefulSet starts its next pod when the one before is ready, which no pod is without a kubelet."""
    return obj["kind"] == "StatefulSet" and obj["spec"].get("podManagementPolicy") != "Parallel"


def _template(chance: random.Random, name: str, restart: str = "Always") -> JSON:
    claims = [
        {"name": each, "resourceClaimTemplateName": chance.choice(("one", "two"))}
        for each in ("gpu", "nic")[: chance.randrange(3)]
    ]
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": each["name"]} for each in claims]}}
    spec: JSON = {"containers": [container], "restartPolicy": restart}
    if claims:
        spec["resourceClaims"] = claims
    if chance.random() < 0.2:
        spec["nodeSelector"] = {"disk": "fast"}
    if chance.random() < 0.2:
        spec["tolerations"] = [{"key": "reserved", "operator": "Exists"}]
    metadata: JSON = {"labels": {"app": name}}
    if chance.random() < 0.3:
        metadata["annotations"] = {"example.com/note": "kept"}
    return {"metadata": metadata, "spec": spec}


def _workload(version: str, kind: str, name: str, spec: JSON) -> JSON:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _replicas(chance: random.Random) -> JSON:
    return chance.choice(({}, {"replicas": chance.randrange(5)}))


def _selected(chance: random.Random, name: str) -> JSON:
    return {"selector": {"matchLabels": {"app": name}}, "template": _template(chance, name)}


def _deployment(chance: random.Random, name: str) -> JSON:
    paused = {"paused": True} if chance.random() < 0.2 else {}
    return _workload("apps/v1", "Deployment", name, {**_selected(chance, name), **_replicas(chance), **paused})


def _replica_set(chance: random.Random, name: str) -> JSON:
    return _workload("apps/v1", "ReplicaSet", name, {**_selected(chance, name), **_replicas(chance)})


def _replication_controller(chance: random.Random, name: str) -> JSON:
    spec = {"selector": {"app": name}, "template": _template(chance, name), **_replicas(chance)}
    return _workload("v1", "ReplicationController", name, spec)


def _stateful_set(chance: random.Random, name: str) -> JSON:
    spec = {**_selected(chance, name), **_replicas(chance), "serviceName": name}
    if chance.random() < 0.7:
        spec["podManagementPolicy"] = "Parallel"
    if chance.random() < 0.4:
        spec["ordinals"] = {"start": chance.randrange(1, 6)}
    return _workload("apps/v1", "StatefulSet", name, spec)


def _daemon_set(chance: random.Random, name: str) -> JSON:
    made = _workload("apps/v1", "DaemonSet", name, _selected(chance, name))
    pod = made["spec"]["template"]["spec"]
    if chance.random() < 0.3:
        pod["hostNetwork"] = True
    if chance.random() < 0.3:
        expression = {"key": "disk", "operator": chance.choice(("Exists", "DoesNotExist"))}
        terms = [{"matchExpressions": [expression]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod["affinity"] = {"nodeAffinity": required}
    return made


def _job_spec(chance: random.Random, name: str) -> JSON:
    spec: JSON = {"template": _template(chance, name, "Never")}
    if chance.random() < 0.7:
        spec["parallelism"] = chance.randrange(5)
    if chance.random() < 0.6:
        spec["completions"] = chance.randrange(1, 6)
        if chance.random() < 0.6:
            spec["completionMode"] = "Indexed"
    if chance.random() < 0.15:
        spec["suspend"] = True
    if chance.random() < 0.1:
        spec["managedBy"] = "example.com/other"
    return spec


def _job(chance: random.Random, name: str) -> JSON:
    return _workload("batch/v1", "Job", name, _job_spec(chance, name))


def _cron_job(chance: random.Random, name: str) -> JSON:
    # Forbid: the first run never ends, so there is no second one.
    spec: JSON = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid"}
    spec["jobTemplate"] = {"spec": _job_spec(chance, name)}
    if chance.random() < 0.2:
        spec["suspend"] = True
    return _workload("batch/v1", "CronJob", name, spec)


_KINDS: Final[Mapping[str, Callable[[random.Random, str], JSON]]] = {
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "ReplicationController": _replication_controller,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "CronJob": _cron_job,
}


# -- what is compared


def pods_by_workload(pods: Iterable[JSON], workloads: Iterable[JSON]) -> dict[str, list[JSON]]:
    """The pods of each workload, by its name; the label `app` of the template tells it."""
    found: dict[str, list[JSON]] = {each["metadata"]["name"]: [] for each in workloads}
    for pod in pods:
        app = (pod["metadata"].get("labels") or {}).get("app")
        if app in found:
            found[app].append(pod)
    return found


def pod_forms(pods: Iterable[JSON]) -> Counter[str]:
    """Pods without what is random: hashes, UIDs, generated names."""
    return Counter(repr(_pod_form(each)) for each in pods)


def claim_forms(claims: Iterable[JSON], pods: Iterable[JSON]) -> Counter[str]:
    """The claims that were made for these pods, without what is random."""
    names = {each["metadata"]["name"]: _pod_name(each) for each in pods}
    return Counter(repr(_claim_form(each, names)) for each in claims if _owner(each).get("name") in names)


def _pod_form(pod: JSON) -> list[Any]:
    metadata, spec = pod["metadata"], pod["spec"]
    owner = _owner(pod)
    labels = {key: "#" if key in _RANDOM_LABELS else value for key, value in (metadata.get("labels") or {}).items()}
    for key in ("job-name", "batch.kubernetes.io/job-name"):
        if key in labels:
            labels[key] = _owner_name(pod)
    tolerations = [each for each in spec.get("tolerations") or () if each.get("tolerationSeconds") != _DEFAULT_SECONDS]
    return [
        _pod_name(pod),
        [owner.get("apiVersion"), owner.get("kind"), _owner_name(pod), owner.get("controller")],
        sorted(labels.items()),
        sorted((metadata.get("annotations") or {}).items()),
        spec.get("resourceClaims") or [],
        sorted(map(repr, (sorted(each.items()) for each in tolerations))),
        spec.get("affinity") or {},
        spec.get("nodeSelector") or {},
    ]


def _claim_form(claim: JSON, names: Mapping[str, str]) -> list[Any]:
    metadata, owner = claim["metadata"], _owner(claim)
    pod = names[owner["name"]]
    # Names of claims are cut in the random part of a long name.
    cut = pod.endswith("-") and len(pod) > _LONG
    return [
        pod if cut else str(metadata.get("generateName")).replace(owner["name"], pod),
        [owner.get("apiVersion"), owner.get("kind"), owner.get("controller")],
        sorted((metadata.get("labels") or {}).items()),
        sorted((metadata.get("annotations") or {}).items()),
        claim["spec"],
    ]


def _pod_name(pod: JSON) -> str:
    """The name, or what was given to generate it; a StatefulSet gives a name although it sets `generateName`."""
    metadata = pod["metadata"]
    generated = _owner(pod).get("kind") != "StatefulSet"
    name = str((generated and metadata.get("generateName")) or metadata["name"])
    return name.replace(str(_owner(pod).get("name")), _owner_name(pod), 1)


def _owner_name(pod: JSON) -> str:
    """The name of the owner; its end is random if the owner was made by a Deployment or a CronJob."""
    owner, app = _owner(pod), pod["metadata"]["labels"]["app"]
    name = str(owner.get("name"))
    return f"{app}-#" if name != app and name.startswith(f"{app}-") else name


def _owner(obj: JSON) -> JSON:
    return next(iter(obj["metadata"].get("ownerReferences") or ()), {})
