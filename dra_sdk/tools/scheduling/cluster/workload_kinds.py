"""Where objects of each kind have their pod templates, and how many pods their controllers make with which names.

Most kinds are a row of a table, which a user can extend by a file of `--workloads`. Kinds whose controllers count in
another way have a function. Source: the controllers of apps/v1 and batch/v1, and of JobSet, LeaderWorkerSet, Kubeflow's
MPI and training operators, KubeRay, Volcano, Argo Rollouts, Knative and KubeVirt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

from dra_sdk.errors import SettingsError
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import generated_name, generated_uid, value_at

KindKey = tuple[str, str]
"""API group (empty for core/v1) and kind."""
Path = tuple[str | int, ...]
_BATCH: Final = "batch.kubernetes.io"
_JOB_CONTROLLER: Final = "kubernetes.io/job-controller"
MAX_PODS: Final = 100_000
"""The most pods of one object."""


class WorkloadError(Exception):
    """A field of a workload has no usable value."""

    def __init__(self, path: Path, detail: str) -> None:
        self.path, self.detail = path, detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """One pod template of an object, and the pods that are made from it.

    path: the path of the template in the object.
    template: the template: `metadata` and `spec` of the pods.
    names: the name of each pod; one that ends in `-` gets five random characters, as `generateName` does.
    owner: apiVersion, kind and name of the pods' controller.
    note: what is not simulated of it, as the end of a sentence; empty if nothing.
    added: labels and annotations that the controller adds to each pod, in the order of `names`; empty if it adds none.
    """

    path: Path
    template: JSON
    names: Sequence[str]
    owner: tuple[str, str, str]
    note: str = ""
    added: Sequence[Mapping[str, Mapping[str, str]]] = ()


Uses = Callable[[JSON], Iterator[TemplateUse]]


@dataclass(frozen=True, slots=True)
class PodTemplateRow:
    """A row of the table: a kind whose controller makes a fixed number of pods from each template.

    template: the path of the template, such as `spec.template`; below an item if there are items.
    replicas: paths of numbers that are multiplied; a number that is not set counts as `default`.
    items: path of a list or a map of which each item has a template; empty if the object has one template.
    item: the field with the name of an item; the key of a map needs none.
    name: the names of the pods: `{name}` is the object, `{item}` the item, `{index}` counts from 0; a name that ends in
        `-` gets a random suffix.
    default: the number of pods if no field says it.
    """

    template: str = "spec.template"
    replicas: tuple[str, ...] = ("spec.replicas",)
    items: str = ""
    item: str = "name"
    name: str = "{name}-"
    default: int = 1

    def uses(self, obj: JSON) -> Iterator[TemplateUse]:
        """Yield the templates of an object; items that have none are left out."""
        for place, label, holder in self._holders(obj):
            path = (*place, *self.template.split("."))
            template = value_at(holder, self.template.split("."))
            if template is None:
                continue
            counts = [_count(holder, place, replicas_path, self.default) for replicas_path in self.replicas]
            size = _limited(prod(counts), path)
            names = [self.name.format(name=object_name(obj), item=label, index=index) for index in range(size)]
            yield TemplateUse(path, _template(template, path), names, owner_of(obj))

    def _holders(self, obj: JSON) -> Iterator[tuple[Path, str, Any]]:
        if not self.items:
            yield (), "", obj
            return
        where = tuple(self.items.split("."))
        items = value_at(obj, where)
        if isinstance(items, dict):
            for key, item in items.items():
                yield (*where, key), str(key).lower(), item
        for index, item in enumerate(items if isinstance(items, list) else ()):
            label = item.get(self.item) if isinstance(item, dict) else None
            yield (*where, index), str(label or index), item


@dataclass(frozen=True, slots=True)
class WorkloadKinds:
    """The kinds that make pods.

    table: for each kind, what yields its templates.
    """

    table: Mapping[KindKey, Uses] = field(default_factory=lambda: BUILTIN)

    def uses(self, obj: JSON) -> Iterator[TemplateUse] | None:
        """Return the templates of an object, None if its kind is not known. WorkloadError for a field without a use."""
        uses = self.table.get(kind_key(obj))
        return None if uses is None else uses(obj)

    def with_rows(self, rows: Any, source: str) -> WorkloadKinds:
        """Return the kinds with those of a user's file: a list of objects with `kind`, `group` and the fields of a row.

        SettingsError for anything else.
        """
        table = dict(self.table)
        for index, row in enumerate(rows if isinstance(rows, list) else [rows]):
            table.update(_row(row, f"{source}: item {index}"))
        return WorkloadKinds(table)


def kind_key(obj: JSON) -> KindKey:
    """Return the API group and kind of an object."""
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    return (group if slash else ""), str(obj.get("kind") or "")


def object_name(obj: JSON) -> str:
    """Return the name of an object."""
    return str(value_at(obj, ("metadata", "name")) or "")


def owner_of(obj: JSON) -> tuple[str, str, str]:
    """Return the object itself as the controller of its pods."""
    return str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""), object_name(obj)


def _template(value: Any, path: Path) -> JSON:
    if not isinstance(value, dict):
        raise WorkloadError(path, "must be a pod template")
    return value


def _limited(count: int, path: Path) -> int:
    if count > MAX_PODS:
        raise WorkloadError(path, f"{count} pods; at most {MAX_PODS} of one object are simulated")
    return count


def _count(holder: Any, place: Path, path: str, default: int) -> int:
    count = value_at(holder, path.split("."))
    if count is None:
        return default
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise WorkloadError((*place, *path.split(".")), "must be a whole number, 0 or more")
    return count


def _row(row: Any, where: str) -> dict[KindKey, Uses]:
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        raise SettingsError(f"{where} must be an object with kind, group and the paths of its pod template")
    known = {"kind", "group", "template", "replicas", "items", "item", "name", "default"}
    if unknown := ", ".join(sorted(map(str, set(row) - known))):
        raise SettingsError(f"{where}: unknown field {unknown}; known are {', '.join(sorted(known))}")
    values = {key: value for key, value in row.items() if key not in {"kind", "group"}}
    replicas = values.get("replicas", ["spec.replicas"])
    values["replicas"] = tuple(replicas) if isinstance(replicas, list) else (replicas,)
    texts = [*(values[key] for key in ("template", "items", "item", "name") if key in values), *values["replicas"]]
    if not all(isinstance(text, str) for text in texts) or type(values.get("default", 1)) is not int:
        raise SettingsError(f"{where}: paths and names must be strings, and default a whole number")
    made = PodTemplateRow(**values)
    try:
        made.name.format(name="", item="", index=0)
    except (KeyError, IndexError, ValueError) as error:
        raise SettingsError(f"{where}: name may use {{name}}, {{item}} and {{index}}, is {made.name!r}") from error
    return {(str(row.get("group") or ""), row["kind"]): made.uses}


# -- kinds of Kubernetes


def _deployment(obj: JSON) -> Iterator[TemplateUse]:
    """Yield the pods of a Deployment's ReplicaSet, whose name ends in a hash of the template."""
    replica_set = generated_name(f"{object_name(obj)}-", "template")
    labels = {"pod-template-hash": replica_set.rpartition("-")[2]}
    paused = value_at(obj, ("spec", "paused")) is True
    for use in PodTemplateRow(name=f"{replica_set}-").uses(obj):
        names = () if paused else use.names
        note = "is paused, so it has no new pods" if paused else ""
        owner = ("apps/v1", "ReplicaSet", replica_set)
        yield replace(use, names=names, owner=owner, note=note, added=[{"labels": labels}] * len(names))


def _stateful_set(obj: JSON) -> Iterator[TemplateUse]:
    """Yield the pods, numbered from `spec.ordinals.start`."""
    start = _count(obj, (), "spec.ordinals.start", 0)
    revision = generated_name(f"{object_name(obj)}-", "template")
    for use in PodTemplateRow().uses(obj):
        numbers = [str(start + index) for index in range(len(use.names))]
        names = [f"{object_name(obj)}-{number}" for number in numbers]
        added = [
            {
                "labels": {
                    "controller-revision-hash": revision,
                    "statefulset.kubernetes.io/pod-name": name,
                    "apps.kubernetes.io/pod-index": number,
                }
            }
            for name, number in zip(names, numbers, strict=True)
        ]
        yield replace(use, names=names, added=added)


def _daemon_set(obj: JSON) -> Iterator[TemplateUse]:
    """No pod yet: `daemon_pods` makes one for each node."""
    path: Path = ("spec", "template")
    if (template := value_at(obj, path)) is not None:
        yield TemplateUse(path, _template(template, path), (), owner_of(obj))


def _job(obj: JSON, place: Path = (), name: str = "", *, indexed: bool = False) -> Iterator[TemplateUse]:
    """Yield the pods of a Job that run at the same time.

    place: the path of an object with the Job's `spec`, if it is not the object itself.
    """
    holder, name = value_at(obj, place), name or object_name(obj)
    path: Path = (*place, "spec", "template")
    template = value_at(holder, ("spec", "template"))
    if template is None:
        return
    parallel = _count(holder, place, "spec.parallelism", 1)
    completions = _count(holder, place, "spec.completions", parallel)
    size, note = _limited(min(parallel, completions), path), ""
    if value_at(holder, ("spec", "suspend")) is True:
        size, note = 0, "is suspended, so it has no pods"
    elif (manager := value_at(holder, ("spec", "managedBy"))) not in {None, _JOB_CONTROLLER}:
        size, note = 0, f"is managed by {manager}, which is not simulated, so it has no pods"
    elif completions > size:
        note = f"runs {size} of its {completions} pods at a time; the others follow when these end"
    indexed = indexed or value_at(holder, ("spec", "completionMode")) == "Indexed"
    names = [f"{name}-{index}-" if indexed else f"{name}-" for index in range(size)]
    added = [_job_metadata(name, index if indexed else None) for index in range(size)]
    yield TemplateUse(path, _template(template, path), names, ("batch/v1", "Job", name), note, added)


def _job_metadata(job: str, index: int | None) -> Mapping[str, Mapping[str, str]]:
    """Return the labels and annotations of a pod of a Job; `index` is None unless it is indexed."""
    uid = generated_uid("Job", ("", job))
    labels = {"job-name": job, f"{_BATCH}/job-name": job, "controller-uid": uid, f"{_BATCH}/controller-uid": uid}
    if index is None:
        return {"labels": labels}
    completion = {f"{_BATCH}/job-completion-index": str(index)}
    return {"labels": labels | completion, "annotations": completion}


def _cron_job(obj: JSON) -> Iterator[TemplateUse]:
    """One run: the pods of one of its Jobs, whose name ends in the minute of the run."""
    name = f"{object_name(obj)}-{28_000_000 + sum(map(ord, object_name(obj)))}"
    for use in _job(obj, ("spec", "jobTemplate"), name):
        yield _suspended(use, obj) or replace(use, note=use.note or "is simulated as one run")


def _suspended(use: TemplateUse, obj: JSON) -> TemplateUse | None:
    """Return the use without pods if the object is suspended."""
    is_suspended = value_at(obj, ("spec", "suspend")) is True
    return replace(use, names=(), note="is suspended, so it has no pods", added=()) if is_suspended else None


# -- other kinds


def _job_set(obj: JSON) -> Iterator[TemplateUse]:
    """Each replicated job is so many Jobs, which are indexed unless they say otherwise."""
    place: Path = ("spec", "replicatedJobs")
    jobs = value_at(obj, place)
    for number, job in enumerate(jobs if isinstance(jobs, list) else ()):
        where: Path = (*place, number)
        label = value_at(job, ("name",)) or number
        mode = value_at(job, ("template", "spec", "completionMode"))
        for index in range(_limited(_count(job, where, "replicas", 1), where)):
            name = f"{object_name(obj)}-{label}-{index}"
            for use in _job(obj, (*where, "template"), name, indexed=mode != "NonIndexed"):
                yield _suspended(use, obj) or use


def _leader_worker_set(obj: JSON) -> Iterator[TemplateUse]:
    """Yield groups of `size` pods: a leader, which may have a template of its own, and workers."""
    name, base = object_name(obj), ("spec", "leaderWorkerTemplate")
    groups = _count(obj, (), "spec.replicas", 1)
    size = _count(obj, (), "spec.leaderWorkerTemplate.size", 1)
    _limited(groups * size, base)
    worker = (*base, "workerTemplate")
    leader = (*base, "leaderTemplate") if value_at(obj, (*base, "leaderTemplate")) is not None else worker
    if size and (template := value_at(obj, leader)) is not None:
        names = [f"{name}-{group}" for group in range(groups)]
        yield TemplateUse(leader, _template(template, leader), names, ("apps/v1", "StatefulSet", name))
    if (template := value_at(obj, worker)) is not None:
        for group in range(groups):
            names = [f"{name}-{group}-{index}" for index in range(1, size)]
            yield TemplateUse(worker, _template(template, worker), names, ("apps/v1", "StatefulSet", f"{name}-{group}"))


def _ray(base: str) -> Uses:
    """Yield a head and groups of workers; `base` is the path of the cluster's spec."""
    head = PodTemplateRow(f"{base}.headGroupSpec.template", (), name="{name}-head-")
    workers = PodTemplateRow(
        "template", ("replicas", "numOfHosts"), f"{base}.workerGroupSpecs", "groupName", "{name}-{item}-worker-"
    )

    def uses(obj: JSON) -> Iterator[TemplateUse]:
        yield from head.uses(obj)
        yield from workers.uses(obj)

    return uses


def _virtual_machine(base: str) -> Uses:
    """Yield the pod virt-launcher that runs a virtual machine; `base` is the path of the machine's spec."""

    def uses(obj: JSON) -> Iterator[TemplateUse]:
        path: Path = tuple(base.split("."))
        spec = value_at(obj, path)
        if spec is None:
            return
        stopped = value_at(obj, ("spec", "running")) is False or value_at(obj, ("spec", "runStrategy")) == "Halted"
        count = 0 if stopped else _count(obj, (), "spec.replicas", 1)
        names = [f"virt-launcher-{object_name(obj)}-"] * _limited(count, path)
        template = {"spec": _launcher(_template(spec, path))}
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


BUILTIN: Final[Mapping[KindKey, Uses]] = {
    ("", "ReplicationController"): PodTemplateRow().uses,
    ("apps", "ReplicaSet"): PodTemplateRow().uses,
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("kubeflow.org", "MPIJob"): _roles("spec.mpiReplicaSpecs"),
    **{("kubeflow.org", kind): _roles(f"spec.{prefix}ReplicaSpecs") for kind, prefix in _TRAINING.items()},
    ("kubeflow.org", "Notebook"): PodTemplateRow(replicas=(), name="{name}-{index}").uses,
    ("ray.io", "RayCluster"): _ray("spec"),
    ("ray.io", "RayJob"): _ray("spec.rayClusterSpec"),
    ("ray.io", "RayService"): _ray("spec.rayClusterConfig"),
    ("batch.volcano.sh", "Job"): _roles("spec.tasks"),
    ("argoproj.io", "Rollout"): PodTemplateRow().uses,
    ("serving.knative.dev", "Service"): PodTemplateRow(replicas=()).uses,
    ("kubevirt.io", "VirtualMachine"): _virtual_machine("spec.template.spec"),
    ("kubevirt.io", "VirtualMachineInstance"): _virtual_machine("spec"),
    ("kubevirt.io", "VirtualMachineInstanceReplicaSet"): _virtual_machine("spec.template.spec"),
}
"""The kinds that are known without a file of the user."""
