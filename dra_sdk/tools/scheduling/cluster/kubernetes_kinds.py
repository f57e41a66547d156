"""The kinds of Kubernetes itself that make pods.

Source: the controllers of apps/v1 and batch/v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import generated_name, generated_uid, value_at
from dra_sdk.tools.scheduling.cluster.template_uses import (
    KindKey,
    Path,
    PodTemplateRow,
    TemplateUse,
    Uses,
    count_at,
    limited,
    object_name,
    owner_of,
    pod_template,
    suspended,
)

_BATCH: Final = "batch.kubernetes.io"
_JOB_CONTROLLER: Final = "kubernetes.io/job-controller"


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
    start = count_at(obj, (), "spec.ordinals.start", 0)
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
        yield TemplateUse(path, pod_template(template, path), (), owner_of(obj))


def job_uses(obj: JSON, place: Path = (), name: str = "", *, indexed: bool = False) -> Iterator[TemplateUse]:
    """Yield the pods of a Job that run at the same time.

    place: the path of an object with the Job's `spec`, if it is not the object itself.
    """
    holder, name = value_at(obj, place), name or object_name(obj)
    path: Path = (*place, "spec", "template")
    template = value_at(holder, ("spec", "template"))
    if template is None:
        return
    parallel = count_at(holder, place, "spec.parallelism", 1)
    completions = count_at(holder, place, "spec.completions", parallel)
    size, note = limited(min(parallel, completions), path), ""
    if value_at(holder, ("spec", "suspend")) is True:
        size, note = 0, "is suspended, so it has no pods"
    elif (manager := value_at(holder, ("spec", "managedBy"))) not in {None, _JOB_CONTROLLER}:
        size, note = 0, f"is managed by {manager}, which is not simulated, so it has no pods"
    elif completions > size:
        note = f"runs {size} of its {completions} pods at a time; the others follow when these end"
    indexed = indexed or value_at(holder, ("spec", "completionMode")) == "Indexed"
    names = [f"{name}-{index}-" if indexed else f"{name}-" for index in range(size)]
    added = [_job_metadata(name, index if indexed else None) for index in range(size)]
    yield TemplateUse(path, pod_template(template, path), names, ("batch/v1", "Job", name), note, added)


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
    for use in job_uses(obj, ("spec", "jobTemplate"), name):
        yield suspended(use, obj) or replace(use, note=use.note or "is simulated as one run")


KUBERNETES: Final[Mapping[KindKey, Uses]] = {
    ("", "ReplicationController"): PodTemplateRow().uses,
    ("apps", "ReplicaSet"): PodTemplateRow().uses,
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): job_uses,
    ("batch", "CronJob"): _cron_job,
}
"""What yields the pod templates of each kind."""
