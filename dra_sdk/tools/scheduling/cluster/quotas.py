"""ResourceQuotas: which new pods, claims and templates the API server refuses.

Source: admission plugin ResourceQuota; quota evaluators of pods and resource claims (pkg/quota/v1/evaluator/core).
Objects that exist, also those of the scheduler's own, are counted and never refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from pydantic import Field

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator import SchedulerFeatures
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    EXTENDED_CLAIM_ANNOTATION,
    claim_allocation,
    is_finished,
)
from dra_sdk.tools.scheduling.cluster.core_v1 import Container, PartialObject, PartialTopLevel, Pod, pod_of
from dra_sdk.tools.scheduling.cluster.extended_resources import classes_by_resource
from dra_sdk.tools.scheduling.cluster.pod_requirements import ResourceAmounts, pod_limits, pod_requests
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.wire.resource.base import Amount

_OF_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_REQUESTS: Final = "requests."
_MOST_DEVICES: Final = 32
"""What `allocationMode: All` counts as. Source: resource/v1, AllocationResultsMaxSize."""
_COUNTED: Final[Mapping[str, str]] = {
    "Pod": "count/pods",
    "ResourceClaim": "count/resourceclaims.resource.k8s.io",
    "ResourceClaimTemplate": "count/resourceclaimtemplates.resource.k8s.io",
}
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_MUST_BE_SET: Final = {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
"""A pod must say these for each container if a quota has them."""
_HUGE_PAGES: Final = ("hugepages-", "requests.hugepages-")
_FIRST_WITH_EXTENDED: Final = 35


class ScopeRequirement(PartialObject):
    """core/v1 ScopedResourceSelectorRequirement."""

    scope_name: str = ""
    operator: str = "Exists"
    values: list[str] = Field(default_factory=list)


class ScopeSelector(PartialObject):
    """core/v1 ScopeSelector."""

    match_expressions: list[ScopeRequirement] = Field(default_factory=list)


class ResourceQuotaSpec(PartialObject):
    """core/v1 ResourceQuotaSpec."""

    hard: dict[str, Amount] = Field(default_factory=dict)
    scopes: list[str] = Field(default_factory=list)
    scope_selector: ScopeSelector = Field(default_factory=ScopeSelector)


class ResourceQuotaStatus(PartialObject):
    """core/v1 ResourceQuotaStatus."""

    used: dict[str, Amount] = Field(default_factory=dict)


class ResourceQuota(PartialTopLevel):
    """core/v1 ResourceQuota."""

    spec: ResourceQuotaSpec = Field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = Field(default_factory=ResourceQuotaStatus)

    @property
    def scopes(self) -> Iterator[ScopeRequirement]:
        """Yield its scopes, those of `scopes` as requirements, too."""
        yield from (ScopeRequirement.model_validate({"scopeName": name}) for name in self.spec.scopes)
        yield from self.spec.scope_selector.match_expressions


class QuotaAdmission:
    """What the quotas of a cluster allow. It starts with the objects of a snapshot, the existing ones first.

    refusals: why objects are refused, by their UID; of claims that cannot be made for a pod, by `refusal_key`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.refusals: dict[str, str] = {}
        self._quotas: dict[str, list[ResourceQuota]] = defaultdict(list)
        if not snapshot.quotas:
            return
        self._extended = snapshot.profile.minor >= _FIRST_WITH_EXTENDED and snapshot.profile.enabled(
            "DRAExtendedResource"
        )
        behaviour = SchedulerFeatures.of(snapshot.profile).behaviour
        self._classes = classes_by_resource(snapshot.classes, behaviour) if self._extended else {}
        self._pods = {pod["metadata"]["uid"]: pod for pod in snapshot.pods}
        self._used: dict[str, ResourceAmounts] = {}
        for obj in snapshot.quotas:
            quota = ResourceQuota.model_validate(obj)
            self._quotas[quota.metadata.namespace].append(quota)
            self._used[quota.metadata.uid] = defaultdict(Fraction)
        objects = [*snapshot.templates, *snapshot.claims, *snapshot.pods]
        for obj in objects:
            if _exists(obj):
                self._count(obj)
        for quotas in self._quotas.values():
            for quota in quotas:
                used = self._used[quota.metadata.uid]
                for name, amount in quota.status.used.items():
                    used[name] = max(used[name], amount.value)
        for obj in objects:
            if not _exists(obj) and (reason := self.admit(obj)):
                self.refusals[obj["metadata"]["uid"]] = reason

    def admit(self, obj: JSON) -> str:
        """Count a new object, or return why the API server refuses it."""
        for quota in self._quotas.get(obj["metadata"].get("namespace", ""), ()):
            if reason := self._refusal(quota, obj):
                metadata = obj["metadata"]
                return f"the API server refuses {obj['kind']} {metadata['name']} (403): {reason}"
        self._count(obj)
        return ""

    def release(self, obj: JSON) -> None:
        """Give back what an object used that does not exist after all."""
        self._count(obj, -1)

    def _count(self, obj: JSON, times: int = 1) -> None:
        for quota in self._quotas.get(obj["metadata"].get("namespace", ""), ()):
            if self._matches(quota, obj):
                used = self._used[quota.metadata.uid]
                for name, amount in self._usage(obj).items():
                    used[name] += times * amount

    def _refusal(self, quota: ResourceQuota, obj: JSON) -> str:
        if not self._matches(quota, obj):
            return ""
        name, hard = quota.metadata.name, quota.spec.hard
        if obj["kind"] == "Pod" and (missing := _missing_amounts(pod_of(obj), quota)):
            return f"failed quota: {name}: must specify {missing}"
        used = self._used[quota.metadata.uid]
        requested = {key: amount for key, amount in self._usage(obj).items() if key in hard and amount}
        exceeded = sorted(key for key, amount in requested.items() if used[key] + amount > hard[key].value)
        if not exceeded:
            return ""
        amounts = {"requested": requested, "used": used, "limited": {key: hard[key].value for key in exceeded}}
        return f"exceeded quota: {name}, " + ", ".join(
            f"{what}: {','.join(f'{key}={_text(some[key], hard[key])}' for key in exceeded)}"
            for what, some in amounts.items()
        )

    def _matches(self, quota: ResourceQuota, obj: JSON) -> bool:
        """Return whether a quota is for an object: it has one of its resources, and its scopes are for it."""
        counted = _COUNTED.get(obj["kind"], "")
        if obj["kind"] == "Pod":
            pod = pod_of(obj)
            return any(map(_is_of_pods, quota.spec.hard)) and all(_in_scope(pod, obj, scope) for scope in quota.scopes)
        if any(quota.scopes):
            return False
        of_claims = self._is_of_claims if obj["kind"] == "ResourceClaim" else lambda _name: False
        return any(name == counted or of_claims(name) for name in quota.spec.hard)

    def _is_of_claims(self, name: str) -> bool:
        return name.endswith(_OF_CLASS) or (
            name.startswith(_REQUESTS) and name.removeprefix(_REQUESTS) in self._classes
        )

    def _usage(self, obj: JSON) -> ResourceAmounts:
        usage: ResourceAmounts = defaultdict(Fraction)
        usage[_COUNTED[obj["kind"]]] += 1
        if obj["kind"] == "Pod":
            usage |= _pod_usage(pod_of(obj))
        elif obj["kind"] == "ResourceClaim":
            usage |= self._claim_usage(obj)
        return usage

    def _claim_usage(self, claim: JSON) -> ResourceAmounts:
        usage: ResourceAmounts = defaultdict(Fraction)
        for request in claim["spec"].get("devices", {}).get("requests") or ():
            most: dict[str, int] = {}
            for wanted in request.get("firstAvailable") or [request.get("exactly") or {}]:
                name = wanted.get("deviceClassName", "")
                most[name] = max(most.get(name, 0), _devices(wanted))
            for name, count in most.items():
                usage[f"{name}{_OF_CLASS}"] += count
        already = self._usage_of_owner(claim)
        for resource, class_name in self._classes.items():
            if amount := max(
                Fraction(0), usage.get(f"{class_name}{_OF_CLASS}", 0) - already.get(resource, Fraction(0))
            ):
                usage[f"{_REQUESTS}{resource}"] = amount
        return usage

    def _usage_of_owner(self, claim: JSON) -> ResourceAmounts:
        """Return what the pod of a claim for extended resources requests: it counts already."""
        if (claim["metadata"].get("annotations") or {}).get(EXTENDED_CLAIM_ANNOTATION) != "true":
            return {}
        owners = [owner for owner in claim["metadata"].get("ownerReferences") or () if owner.get("controller")]
        return next(
            (pod_requests(pod_of(self._pods[owner["uid"]])) for owner in owners if owner["uid"] in self._pods), {}
        )


def _exists(obj: JSON) -> bool:
    """Return whether an API server has an object already: it has a time of creation, a node or an allocation."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    stored = metadata.get("creationTimestamp") or metadata.get("resourceVersion")
    used = obj["kind"] == "Pod" and (spec.get("nodeName") or is_finished(pod_of(obj)))
    return bool(stored or used or (obj["kind"] == "ResourceClaim" and claim_allocation(obj)))


def _devices(request: JSON) -> int:
    return _MOST_DEVICES if request.get("allocationMode") == "All" else int(request.get("count") or 1)


def _is_of_pods(name: str) -> bool:
    compute = {*_COMPUTE, *(f"{kind}{resource}" for kind in (_REQUESTS, "limits.") for resource in _COMPUTE)}
    is_extended = name.startswith(_REQUESTS) and "/" in name
    return name in {"pods", "count/pods", *compute} or name.startswith(_HUGE_PAGES) or is_extended


def _pod_usage(pod: Pod) -> ResourceAmounts:
    """Return what a pod uses of quotas beside its number."""
    if is_finished(pod):
        return {}
    usage: ResourceAmounts = {"pods": Fraction(1)}
    for name, amount in pod_requests(pod).items():
        if name in _COMPUTE or name.startswith(_HUGE_PAGES):
            usage[name] = amount
        if name in _COMPUTE or name.startswith(_HUGE_PAGES) or "/" in name:
            usage[f"{_REQUESTS}{name}"] = amount
    return usage | {f"limits.{name}": amount for name, amount in pod_limits(pod).items() if name in _COMPUTE}


def _missing_amounts(pod: Pod, quota: ResourceQuota) -> str:
    """Return which amounts of CPU and memory that a quota has are missing in which containers."""
    if pod.spec.resources.requests or pod.spec.resources.limits:
        return ""
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    missing = {
        name: sorted(container.name for container in containers if not _says(container, name))
        for name in sorted(_MUST_BE_SET & quota.spec.hard.keys())
    }
    return "; ".join(f"{name} for: {','.join(names)}" for name, names in missing.items() if names)


def _says(container: Container, name: str) -> bool:
    resources = container.resources
    amounts = resources.limits if name.startswith("limits.") else resources.effective_requests
    return name.rpartition(".")[2] in amounts


def _in_scope(pod: Pod, obj: JSON, scope: ScopeRequirement) -> bool:
    spec = obj.get("spec") or {}
    priority = str(spec.get("priorityClassName") or "")
    chosen: Mapping[str, Callable[[], bool]] = {
        "Terminating": lambda: spec.get("activeDeadlineSeconds") is not None,
        "NotTerminating": lambda: spec.get("activeDeadlineSeconds") is None,
        "BestEffort": lambda: _is_best_effort(pod),
        "NotBestEffort": lambda: not _is_best_effort(pod),
        "PriorityClass": lambda: _selects(scope, priority),
        "CrossNamespacePodAffinity": lambda: _crosses_namespaces(spec),
    }
    return chosen[scope.scope_name]() if scope.scope_name in chosen else False


def _selects(scope: ScopeRequirement, value: str) -> bool:
    if scope.operator == "DoesNotExist":
        return not value
    if scope.operator == "NotIn":
        return value not in scope.values
    return bool(value) and (scope.operator != "In" or value in scope.values)


def _is_best_effort(pod: Pod) -> bool:
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    resources = [pod.spec.resources, *(container.resources for container in containers)]
    return not any(name in _COMPUTE[:2] for some in resources for name in (*some.requests, *some.limits))


def _crosses_namespaces(spec: JSON) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = ((spec.get("affinity") or {}).get(kind)) or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *((some.get("podAffinityTerm") or {}) for some in preferred)):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


def _text(amount: Fraction, like: Quantity) -> str:
    return str(Quantity.of(amount, binary=like.binary))
