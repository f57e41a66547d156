"""PodGroups of scheduling.k8s.io: pods that are scheduled together, and the claims that they share.

Source: KEP-4671 (gangs), KEP-5729 (claims); scheduling.k8s.io v1alpha2, v1alpha3 and v1beta1; scheduler plugin
GangScheduling and pod group cycle; k8s.io/dynamic-resource-allocation, resourceclaim.BindTo (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.core_v1 import PartialObject, PartialTopLevel, Pod, PodResourceClaim
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation.names import dns_label
from dra_sdk.wire.validation.problems import Problem, duplicate, invalid, required, too_many

GROUP: Final = "scheduling.k8s.io"
KINDS: Final = {"PodGroup", "Workload"}
GROUPS_GATE: Final = "GenericWorkload"
CLAIMS_GATE: Final = "DRAWorkloadResourceClaims"
_MAX_CLAIMS: Final = 4


class GangPolicy(PartialObject):
    """GangSchedulingPolicy: how many pods must fit."""

    min_count: Annotated[int, Field(le=2**31 - 1)] = 0


class SchedulingPolicy(PartialObject):
    """PodGroupSchedulingPolicy: one of two."""

    basic: PartialObject | None = None
    gang: GangPolicy | None = None


class PodGroupClaimStatus(PartialObject):
    """PodGroupResourceClaimStatus: the claim made for an entry; None if no claim was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodGroupSpec(PartialObject):
    """PodGroupSpec."""

    scheduling_policy: SchedulingPolicy = Field(default_factory=SchedulingPolicy)
    resource_claims: list[PodResourceClaim] = Field(default_factory=list)


class PodGroupStatus(PartialObject):
    """PodGroupStatus."""

    resource_claim_statuses: list[PodGroupClaimStatus] = Field(default_factory=list)


class PodGroup(PartialTopLevel):
    """scheduling.k8s.io PodGroup, in any of its versions."""

    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)

    @property
    def min_count(self) -> int:
        """How many of its pods must fit so that any is placed; 0 if that is not asked for."""
        gang = self.spec.scheduling_policy.gang
        return 0 if gang is None else gang.min_count


class Workload(PartialTopLevel):
    """scheduling.k8s.io Workload: templates of PodGroups, which its controller makes itself."""


def is_group_kind(obj: JSON) -> bool:
    """Return whether an object is a PodGroup or a Workload of Kubernetes."""
    return str(obj.get("kind")) in KINDS and str(obj.get("apiVersion") or "").startswith(f"{GROUP}/")


def not_served(obj: JSON, profile: ServerProfile) -> str:
    """Return why the server has no such PodGroup or Workload, as a sentence; empty if it has it."""
    versions = [f"{GROUP}/{version}" for version in profile.pod_group_versions()]
    if obj["apiVersion"] in versions:
        return ""
    where = f"Kubernetes {profile.version}"
    if versions:
        return f"{where} has {' and '.join(versions)}, not {obj['apiVersion']}"
    return f"{where} has no such kind without the feature gate GenericWorkload"


def pod_group_problems(group: PodGroup) -> Iterator[Problem]:
    """Yield what is invalid in a PodGroup."""
    policy = group.spec.scheduling_policy
    if (policy.basic is None) == (policy.gang is None):
        yield invalid("spec.schedulingPolicy", "must have one of basic and gang")
    if policy.gang is not None and policy.gang.min_count < 1:
        yield invalid("spec.schedulingPolicy.gang.minCount", f"must be at least 1, is {policy.gang.min_count}")
    claims = group.spec.resource_claims
    if len(claims) > _MAX_CLAIMS:
        yield too_many("spec.resourceClaims", len(claims), _MAX_CLAIMS)
    for index, claim in enumerate(claims):
        field = f"spec.resourceClaims[{index}]"
        if not claim.name:
            yield required(f"{field}.name")
        else:
            yield from dns_label(claim.name, f"{field}.name")
        if claim.name in {other.name for other in claims[:index]}:
            yield duplicate(f"{field}.name", claim.name)
        if bool(claim.resource_claim_name) == bool(claim.resource_claim_template_name):
            yield invalid(field, "must have one of resourceClaimName and resourceClaimTemplateName")


def group_key(pod: Pod) -> ObjectKey:
    """Return namespace and name of a pod's group; an empty name without one."""
    return pod.metadata.namespace, pod.spec.group


def is_shared(entry: PodResourceClaim, group: PodGroup | None) -> bool:
    """Return whether a claim of a pod is that of its group: the group has an equal entry."""
    return group is not None and entry in group.spec.resource_claims


def group_consumer(group: PodGroup) -> JSON:
    """Return a PodGroup as an entry of `status.reservedFor`."""
    return {"apiGroup": GROUP, "resource": "podgroups", "name": group.metadata.name, "uid": group.metadata.uid}


def is_group_of(consumer: JSON, pod: Pod) -> bool:
    """Return whether an entry of `status.reservedFor` is the group of a pod, which knows it by name alone."""
    named = consumer.get("resource") == "podgroups" and consumer.get("apiGroup") == GROUP
    return bool(pod.spec.group) and named and consumer.get("name") == pod.spec.group


def is_owner(owner: JSON, pod: Pod) -> bool:
    """Return whether the controller of a claim is the group of a pod."""
    of_group = owner.get("kind") == "PodGroup" and str(owner.get("apiVersion") or "").startswith(f"{GROUP}/")
    return bool(pod.spec.group) and of_group and owner.get("name") == pod.spec.group
