"""Objects of other projects whose controllers make ResourceClaimTemplates or workloads, and what they make.

Source: the compute domain controller of NVIDIA's DRA driver (resource.nvidia.com/v1beta1), the NIM operator
(apps.nvidia.com/v1alpha1), and Kubeflow Trainer (trainer.kubeflow.org/v1alpha1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.foreign_kinds import nim_template_name
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, generated_uid, object_key, value_at
from dra_sdk.tools.scheduling.cluster.template_uses import (
    KindKey,
    Path,
    WorkloadError,
    count_at,
    kind_key,
    object_at,
    object_name,
    objects_at,
)

Sources = Mapping[tuple[KindKey, ObjectKey], JSON]
"""Objects that others refer to, by their kind, namespace and name."""
RUNTIMES: Final = {("trainer.kubeflow.org", kind) for kind in ("TrainingRuntime", "ClusterTrainingRuntime")}
"""The kinds that are `Sources`."""
_CHANNEL_CLASS: Final = "compute-domain-default-channel.nvidia.com"
_CHANNEL_DRIVER: Final = "compute-domain.nvidia.com"
_GPU: Final = "gpu.nvidia.com"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Final = "trainer"
_COMPARISONS: Final[Mapping[str, str]] = {
    "Equal": "==",
    "NotEqual": "!=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def makes_objects(obj: JSON) -> bool:
    """Return whether the controller of an object makes other objects than pods."""
    return kind_key(obj) in _MAKERS


def made_objects(obj: JSON, sources: Sources) -> Iterator[JSON]:
    """Yield what the controller of an object makes, beside pods; WorkloadError for a field without a use."""
    return _MAKERS[kind_key(obj)](obj, sources)


def _claim_template(obj: JSON, name: str, requests: Sequence[JSON], config: Sequence[JSON] = ()) -> JSON:
    devices = {"requests": list(requests), **({"config": list(config)} if config else {})}
    metadata = {"name": name, "namespace": object_key(obj)[0]}
    spec = {"spec": {"devices": devices}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def _compute_domain(obj: JSON, _sources: Sources) -> Iterator[JSON]:
    """Yield the template of the claims with which pods join the domain."""
    path: Path = ("spec", "channel", "resourceClaimTemplate", "name")
    name = value_at(obj, path)
    if not isinstance(name, str) or not name:
        raise WorkloadError(path, "must be set")
    uid = value_at(obj, ("metadata", "uid")) or generated_uid("ComputeDomain", object_key(obj))
    mode = value_at(obj, ("spec", "channel", "allocationMode")) or "Single"
    kind = {"apiVersion": obj["apiVersion"], "kind": "ComputeDomainChannelConfig"}
    parameters = {**kind, "domainID": uid, "allocationMode": mode}
    config = {"requests": ["channel"], "opaque": {"driver": _CHANNEL_DRIVER, "parameters": parameters}}
    yield _claim_template(obj, name, [{"name": "channel", "exactly": {"deviceClassName": _CHANNEL_CLASS}}], [config])


def _nim_service(obj: JSON, _sources: Sources) -> Iterator[JSON]:
    """Yield a template for each entry of `draResources` that describes its devices itself."""
    for index, resource in enumerate(objects_at(obj, "spec", "draResources")):
        if devices := objects_at(resource, "claimSpec", "devices"):
            yield _claim_template(obj, nim_template_name(obj, index), [_nim_request(device) for device in devices])


def _nim_request(device: JSON) -> JSON:
    driver = str(device.get("driverName") or _GPU)
    attributes, capacities = objects_at(device, "attributeSelectors"), objects_at(device, "capacitySelectors")
    given = device.get("celExpressions")
    expressions = list(given) if isinstance(given, list) else []
    expressions += [_comparison(_place("attributes", some, driver), some, _attribute_value) for some in attributes]
    expressions += [_comparison(_place("capacity", some, driver), some, _quantity_value) for some in capacities]
    exactly: JSON = {"deviceClassName": device.get("deviceClassName") or _GPU, "count": device.get("count") or 1}
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": device.get("name"), "exactly": exactly}


def _place(field: str, selector: JSON, driver: str) -> str:
    """Return the CEL expression of an attribute or a capacity; a name without a domain is of the driver's."""
    domain, _, name = str(selector.get("key")).rpartition("/")
    return f"device.{field}[{json.dumps(domain or driver)}].{name}"


def _comparison(place: str, selector: JSON, value_of: Callable[[Any], tuple[str, bool]]) -> str:
    operator = _COMPARISONS.get(str(selector.get("op") or "Equal"), "==")
    value, is_compared = value_of(selector.get("value"))
    return f"{place}.compareTo({value}) {operator} 0" if is_compared else f"{place} {operator} {value}"


def _attribute_value(value: Any) -> tuple[str, bool]:
    """Return a value as CEL, and whether it is compared by `compareTo`."""
    if (version := value_at(value, ("versionValue",))) is not None:
        return f"semver({json.dumps(str(version))})", True
    if (text := value_at(value, ("stringValue",))) is not None:
        return json.dumps(str(text)), False
    if (number := value_at(value, ("intValue",))) is not None:
        return str(number), False
    return ("true" if value_at(value, ("boolValue",)) else "false"), False


def _quantity_value(value: Any) -> tuple[str, bool]:
    return f"quantity({json.dumps(str(value))})", True


def _train_job(obj: JSON, sources: Sources) -> Iterator[JSON]:
    """Yield the JobSet of a TrainJob, made from the runtime that it names."""
    path: Path = ("spec", "runtimeRef", "name")
    kind = str(value_at(obj, ("spec", "runtimeRef", "kind")) or "ClusterTrainingRuntime")
    name, namespace = str(value_at(obj, path) or ""), object_key(obj)[0]
    where = (namespace if kind == "TrainingRuntime" else "", name)
    runtime = sources.get((("trainer.kubeflow.org", kind), where))
    if runtime is None:
        detail = f"there is no {kind} {name}, which has the pod templates: add its manifest"
        raise WorkloadError(path, detail)
    nodes = count_at(obj, (), "spec.trainer.numNodes", count_at(runtime, (), "spec.mlPolicy.numNodes", 1))
    steps = objects_at(runtime, "spec", "template", "spec", "replicatedJobs")
    jobs = [_train_step(step, obj, nodes) for step in steps]
    spec = {"replicatedJobs": jobs, "suspend": value_at(obj, ("spec", "suspend")) is True}
    metadata = {"name": object_name(obj), "namespace": namespace}
    yield {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _train_step(job: JSON, obj: JSON, nodes: int) -> JSON:
    """Return a replicated job of the runtime with what the TrainJob says of it."""
    template = object_at(job, "template")
    spec = dict(object_at(template, "spec"))
    pod = object_at(spec, "template")
    pod_spec = dict(object_at(pod, "spec"))
    if value_at(template, ("metadata", "labels", _STEP)) == _TRAINER:
        spec |= {"parallelism": nodes, "completions": nodes}
        if resources := object_at(obj, "spec", "trainer", "resourcesPerNode"):
            containers = [dict(container) for container in objects_at(pod_spec, "containers")]
            for container in containers[:1]:
                container["resources"] = object_at(container, "resources") | resources
            pod_spec["containers"] = containers
    for override in objects_at(obj, "spec", "podTemplateOverrides"):
        if job.get("name") in [target.get("name") for target in objects_at(override, "targetJobs")]:
            changed = object_at(override, "spec")
            pod_spec |= {key: value for key, value in changed.items() if key in _OVERRIDDEN}
    return job | {"template": template | {"spec": spec | {"template": pod | {"spec": pod_spec}}}}


_OVERRIDDEN: Final = {"nodeSelector", "affinity", "tolerations", "schedulingGates", "resourceClaims"}
_MAKERS: Final[Mapping[KindKey, Callable[[JSON, Sources], Iterator[JSON]]]] = {
    ("resource.nvidia.com", "ComputeDomain"): _compute_domain,
    ("apps.nvidia.com", "NIMService"): _nim_service,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
}
