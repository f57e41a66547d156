"""The kinds of other projects that make pods. Of their schemas, only the paths to pod templates and claims are kept.

Source: the controllers of JobSet, LeaderWorkerSet, Kubeflow's MPI and training operators, KubeRay, Volcano, Argo
Rollouts, Knative, KubeVirt, Grove, NVIDIA Dynamo and NVIDIA NIM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.kubernetes_kinds import job_uses
from dra_sdk.tools.scheduling.cluster.snapshot import value_at
from dra_sdk.tools.scheduling.cluster.template_uses import (
    MAX_PODS,
    KindKey,
    Path,
    PodTemplateRow,
    TemplateUse,
    Uses,
    WorkloadError,
    count_at,
    limited,
    object_at,
    object_name,
    objects_at,
    owner_of,
    pod_template,
    suspended,
)

_INSTANCE_TYPES: Final = ("Instancetype", "ClusterInstancetype", "Preference", "ClusterPreference")
_CLAIM_FIELDS: Final = ("resourceClaimName", "resourceClaimTemplateName")


def _job_set(obj: JSON) -> Iterator[TemplateUse]:
    """Each replicated job is so many Jobs, which are indexed unless they say otherwise."""
    place: Path = ("spec", "replicatedJobs")
    jobs = value_at(obj, place)
    for number, job in enumerate(jobs if isinstance(jobs, list) else ()):
        where: Path = (*place, number)
        label = value_at(job, ("name",)) or number
        mode = value_at(job, ("template", "spec", "completionMode"))
        for index in range(limited(count_at(job, where, "replicas", 1), where)):
            name = f"{object_name(obj)}-{label}-{index}"
            for use in job_uses(obj, (*where, "template"), name, indexed=mode != "NonIndexed"):
                yield suspended(use, obj) or use


def _leader_worker_set(obj: JSON) -> Iterator[TemplateUse]:
    """Yield groups of `size` pods: a leader, which may have a template of its own, and workers."""
    name, base = object_name(obj), ("spec", "leaderWorkerTemplate")
    groups = count_at(obj, (), "spec.replicas", 1)
    size = count_at(obj, (), "spec.leaderWorkerTemplate.size", 1)
    limited(groups * size, base)
    worker = (*base, "workerTemplate")
    leader = (*base, "leaderTemplate") if value_at(obj, (*base, "leaderTemplate")) is not None else worker
    if size and (template := value_at(obj, leader)) is not None:
        names = [f"{name}-{group}" for group in range(groups)]
        yield TemplateUse(leader, pod_template(template, leader), names, ("apps/v1", "StatefulSet", name))
    if (template := value_at(obj, worker)) is not None:
        for group in range(groups):
            names = [f"{name}-{group}-{index}" for index in range(1, size)]
            yield TemplateUse(
                worker, pod_template(template, worker), names, ("apps/v1", "StatefulSet", f"{name}-{group}")
            )


def _ray(base: str) -> Uses:
    """Yield a head and groups of workers; `base` is the path of the cluster's spec."""
    head = PodTemplateRow(f"{base}.headGroupSpec.template", (), name="{name}-head-")
    place: Path = (*base.split("."), "workerGroupSpecs")

    def uses(obj: JSON) -> Iterator[TemplateUse]:
        for use in head.uses(obj):
            yield suspended(use, obj) or use
        groups = value_at(obj, place)
        for number, group in enumerate(groups if isinstance(groups, list) else ()):
            where: Path = (*place, number)
            if (template := value_at(group, ("template",))) is not None:
                label = value_at(group, ("groupName",)) or number
                names = [f"{object_name(obj)}-{label}-worker-"] * _ray_workers(group, where)
                path: Path = (*where, "template")
                use = TemplateUse(path, pod_template(template, path), names, owner_of(obj))
                yield suspended(use, obj) or use

    return uses


def _ray_workers(group: Any, where: Path) -> int:
    """Return the pods of a group of workers: its replicas, within its limits, each of so many hosts."""
    least = count_at(group, where, "minReplicas", 0)
    replicas = min(
        max(count_at(group, where, "replicas", least), least), count_at(group, where, "maxReplicas", MAX_PODS)
    )
    hosts = 0 if value_at(group, ("suspend",)) is True else count_at(group, where, "numOfHosts", 1)
    return limited(replicas * hosts, where)


def _virtual_machine(base: str) -> Uses:
    """Yield the pod virt-launcher that runs a virtual machine; `base` is the path of the machine's spec."""

    def uses(obj: JSON) -> Iterator[TemplateUse]:
        path: Path = tuple(base.split("."))
        spec = value_at(obj, path)
        if spec is None:
            return
        stopped = value_at(obj, ("spec", "running")) is False or value_at(obj, ("spec", "runStrategy")) == "Halted"
        count = 0 if stopped else count_at(obj, (), "spec.replicas", 1)
        names = [f"virt-launcher-{object_name(obj)}-"] * limited(count, path)
        template = {"spec": _launcher(pod_template(spec, path))}
        yield TemplateUse(path, template, names, owner_of(obj), "is stopped, so it has no pod" if stopped else "")

    return uses


def _launcher(spec: JSON) -> JSON:
    """Return the pod's spec: claims and choice of nodes as in the machine's spec, one container with its devices."""
    domain = value_at(spec, ("domain",)) or {}
    requests = dict(value_at(domain, ("resources", "requests")) or {})
    if (guest := value_at(domain, ("memory", "guest"))) is not None:
        requests.setdefault("memory", guest)
    limits = dict(value_at(domain, ("resources", "limits")) or {})
    claims = []
    devices = value_at(domain, ("devices",)) or {}
    for device in (*(value_at(devices, ("gpus",)) or ()), *(value_at(devices, ("hostDevices",)) or ())):
        if name := value_at(device, ("claimName",)):
            request = value_at(device, ("requestName",))
            claims.append({"name": name, "request": request} if request else {"name": name})
        elif resource := value_at(device, ("deviceName",)):
            limits[resource] = int(limits.get(resource, 0)) + 1
    resources = {"requests": requests, "limits": limits, "claims": claims}
    kept = ("resourceClaims", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName")
    copied = {key: spec[key] for key in (*kept, "priorityClassName") if key in spec}
    return copied | {"containers": [{"name": "compute", "resources": resources}]}


_TRAINING: Final = {
    "PyTorchJob": "pytorch", "TFJob": "tf", "XGBoostJob": "xgb", "PaddleJob": "paddle", "JAXJob": "jax",
}  # fmt: skip


def _roles(items: str) -> Uses:
    return PodTemplateRow("template", ("replicas",), items, name="{name}-{item}-{index}").uses


def _volcano_job(obj: JSON) -> Iterator[TemplateUse]:
    """Yield the pods of each task; they are for the job's scheduler, by default Volcano."""
    scheduler = value_at(obj, ("spec", "schedulerName")) or "volcano"
    for use in _roles("spec.tasks")(obj):
        spec = object_at(use.template, "spec")
        yield replace(use, template=use.template | {"spec": {"schedulerName": scheduler} | spec})


def _pod_clique_set(obj: JSON) -> Iterator[TemplateUse]:
    """Yield the pods of each replica's cliques; one of a scaling group exists once for each replica of the group."""
    name, place = object_name(obj), ("spec", "template", "cliques")
    scaled: dict[str, list[str]] = {}
    for number, group in enumerate(objects_at(obj, "spec", "template", "podCliqueScalingGroups")):
        where: Path = ("spec", "template", "podCliqueScalingGroups", number)
        copies = limited(count_at(group, where, "replicas", 1), where)
        names = group.get("cliqueNames")
        for clique in names if isinstance(names, list) else ():
            scaled[str(clique)] = [f"{value_at(group, ('name',))}-{copy}-" for copy in range(copies)]
    note = "shares claims by resourceSharing, which is not simulated" if _has_field(obj, "resourceSharing") else ""
    cliques = objects_at(obj, *place)
    for replica in range(limited(count_at(obj, (), "spec.replicas", 1), ("spec", "replicas"))):
        for number, clique in enumerate(cliques):
            label = str(value_at(clique, ("name",)) or number)
            for copy in scaled.get(label, [""]):
                yield from _clique(clique, (*place, number), f"{name}-{replica}-{copy}{label}", note)


def _clique(clique: Any, place: Path, name: str, note: str = "") -> Iterator[TemplateUse]:
    path: Path = (*place, "spec", "podSpec")
    if (spec := value_at(clique, ("spec", "podSpec"))) is None:
        return
    names = [f"{name}-"] * limited(count_at(clique, place, "spec.replicas", 1), path)
    metadata = {key: clique[key] for key in ("labels", "annotations") if isinstance(clique.get(key), dict)}
    template = pod_template(spec, path)
    template = template if "spec" in template else {"spec": template}
    owner = ("grove.io/v1alpha1", "PodClique", name)
    yield TemplateUse(path, template | {"metadata": metadata}, names, owner, note, of_spec=True)


def _pod_clique(obj: JSON) -> Iterator[TemplateUse]:
    yield from _clique(obj, (), object_name(obj))


def _has_field(value: Any, name: str) -> bool:
    if isinstance(value, dict):
        return bool(value.get(name)) or any(_has_field(item, name) for item in value.values())
    return isinstance(value, list) and any(_has_field(item, name) for item in value)


def _dynamo(obj: JSON) -> Iterator[TemplateUse]:
    """Yield the pods of each service of v1alpha1 or component of v1beta1, each replica on so many nodes."""
    for place in (("spec", "services"), ("spec", "components")):
        parts = value_at(obj, place)
        pairs = parts.items() if isinstance(parts, dict) else enumerate(parts if isinstance(parts, list) else ())
        for key, part in pairs:
            where: Path = (*place, key)
            if not isinstance(part, dict):
                raise WorkloadError(where, "must be an object")
            label = str(part.get("name") or key).lower()
            nodes = count_at(part, where, "multinode.nodeCount", 1)
            names = [f"{object_name(obj)}-{label}-"] * limited(count_at(part, where, "replicas", 1) * nodes, where)
            if (template := part.get("podTemplate")) is not None:
                path: Path = (*where, "podTemplate")
                yield TemplateUse(path, pod_template(template, path), names, owner_of(obj))
            else:
                path = (*where, "extraPodSpec")
                yield TemplateUse(path, {"spec": _dynamo_spec(part)}, names, owner_of(obj), of_spec=True)


def _dynamo_spec(part: JSON) -> JSON:
    """Return the spec of a service's pods: `extraPodSpec` with its `mainContainer` and the service's `resources`."""
    extra = object_at(part, "extraPodSpec")
    main = object_at(extra, "mainContainer")
    own = dict(object_at(main, "resources"))
    for field in ("requests", "limits"):
        amounts = object_at(part, "resources", field)
        named = {key: amounts[key] for key in ("cpu", "memory") if key in amounts} | object_at(amounts, "custom")
        if "gpu" in amounts:
            named[str(amounts.get("gpuType") or "nvidia.com/gpu")] = amounts["gpu"]
        if named:
            own[field] = named | object_at(own, field)
    if claims := [*objects_at(part, "resources", "claims"), *objects_at(own, "claims")]:
        own["claims"] = claims
    others = {key: value for key, value in extra.items() if key not in {"mainContainer", "containers"}}
    return others | {"containers": [{"name": "main", **main, "resources": own}, *objects_at(extra, "containers")]}


def _nim_service(obj: JSON) -> Iterator[TemplateUse]:
    """Yield the pods of a NIMService, whose container has all its claims; with `multiNode`, several for a replica."""
    path: Path = ("spec",)
    spec = object_at(obj, *path)
    size = count_at(obj, (), "spec.multiNode.backend.lws.size", 1) if value_at(spec, ("multiNode",)) else 1
    number = limited(count_at(obj, (), "spec.replicas", 1) * size, path)
    entries, claims = [], []
    for index, resource in enumerate(objects_at(spec, "draResources")):
        name = f"claim-{index}"
        named = {key: resource[key] for key in _CLAIM_FIELDS if value_at(resource, (key,))}
        entries.append({"name": name, **(named or {"resourceClaimTemplateName": nim_template_name(obj, index)})})
        requests = resource.get("requests")
        some = requests if isinstance(requests, list) else ()
        claims += [{"name": name, "request": request} for request in some] or [{"name": name}]
    own: JSON = {"claims": claims} if claims else {}
    resources = object_at(spec, "resources") | own
    copied: JSON = {key: spec[key] for key in ("nodeSelector", "tolerations", "schedulerName") if key in spec}
    if spec.get("podAffinity"):
        copied["affinity"] = {"podAffinity": spec["podAffinity"]}
    container = {"name": f"{object_name(obj)}-ctr", "resources": resources}
    template = {"spec": copied | {"resourceClaims": entries, "containers": [container]}}
    yield TemplateUse(path, template, [f"{object_name(obj)}-"] * number, owner_of(obj), of_spec=True)


def nim_template_name(obj: JSON, index: int) -> str:
    """Return the name of the ResourceClaimTemplate that is made for an entry of `draResources` with a `claimSpec`."""
    base = value_at(obj, ("spec", "draResources", index, "claimSpec", "generateName")) or "claimtemplate"
    return f"{object_name(obj)}-{base}-{index}"


WITHOUT_PODS: Final[frozenset[KindKey]] = frozenset(
    {
        *(("kueue.x-k8s.io", kind) for kind in ("ClusterQueue", "LocalQueue", "Cohort", "Workload")),
        *(("scheduling.volcano.sh", kind) for kind in ("Queue", "PodGroup")),
        *(("scheduling.run.ai", kind) for kind in ("Queue", "PodGroup")),
        *(("karpenter.sh", kind) for kind in ("NodePool", "NodeClaim")),
        *(("instancetype.kubevirt.io", f"VirtualMachine{kind}") for kind in _INSTANCE_TYPES),
        ("nvidia.com", "ClusterPolicy"),
        ("grove.io", "ClusterTopology"),
    }
)
"""Kinds that make no pods or claims though their fields look so: quotas, queues, nodes to come, settings."""
FOREIGN: Final[Mapping[KindKey, Uses]] = {
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("kubeflow.org", "MPIJob"): _roles("spec.mpiReplicaSpecs"),
    **{("kubeflow.org", kind): _roles(f"spec.{prefix}ReplicaSpecs") for kind, prefix in _TRAINING.items()},
    ("kubeflow.org", "Notebook"): PodTemplateRow(replicas=(), name="{name}-{index}").uses,
    ("ray.io", "RayCluster"): _ray("spec"),
    ("ray.io", "RayJob"): _ray("spec.rayClusterSpec"),
    ("ray.io", "RayService"): _ray("spec.rayClusterConfig"),
    ("batch.volcano.sh", "Job"): _volcano_job,
    ("argoproj.io", "Rollout"): PodTemplateRow().uses,
    ("serving.knative.dev", "Service"): PodTemplateRow(replicas=()).uses,
    ("kubevirt.io", "VirtualMachine"): _virtual_machine("spec.template.spec"),
    ("kubevirt.io", "VirtualMachineInstance"): _virtual_machine("spec"),
    ("kubevirt.io", "VirtualMachineInstanceReplicaSet"): _virtual_machine("spec.template.spec"),
    ("pool.kubevirt.io", "VirtualMachinePool"): _virtual_machine("spec.virtualMachineTemplate.spec.template.spec"),
    ("grove.io", "PodCliqueSet"): _pod_clique_set,
    ("grove.io", "PodClique"): _pod_clique,
    ("nvidia.com", "DynamoGraphDeployment"): _dynamo,
    ("apps.nvidia.com", "NIMService"): _nim_service,
}
"""What yields the pod templates of each kind."""
