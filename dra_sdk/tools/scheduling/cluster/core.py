"""The parts of core/v1 Pod and Node that decide where a pod goes and which devices it gets.

Everything else in these objects is passed over, except where claims are named: a misspelt field there would quietly
ask for nothing. Source: core/v1 Pod, Node.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from dra_sdk.wire.resource.base import Amount, Int64, Object
from dra_sdk.wire.resource.metadata import NodeSelector, TopLevel

Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class Partly(Object):
    """An object of which only some fields matter here."""

    model_config = ConfigDict(extra="ignore")


class Toleration(Object):
    """core/v1 Toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(Partly):
    """core/v1 NodeAffinity: what must hold; of preferences it only counts that there are any."""

    required: NodeSelector | None = Field(None, alias=_REQUIRED)
    preferred: list[dict[str, Any]] = Field(default_factory=list, alias=_PREFERRED)


class PodAffinity(Partly):
    """core/v1 PodAffinity, PodAntiAffinity; it only counts that there is any."""

    required: list[dict[str, Any]] = Field(default_factory=list, alias=_REQUIRED)
    preferred: list[dict[str, Any]] = Field(default_factory=list, alias=_PREFERRED)


class Affinity(Partly):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Partly):
    """core/v1 TopologySpreadConstraint; it only counts that there is any."""

    when_unsatisfiable: str = ""


class Volume(Partly):
    """core/v1 Volume; it only counts whether it may be at home on some nodes only."""

    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class ContainerPort(Partly):
    """core/v1 ContainerPort."""

    container_port: int = 0
    host_port: int = 0


class ContainerClaim(Object):
    """core/v1 ResourceClaim: a container's use of a claim of its pod, or of one request of it."""

    name: str = ""
    request: str = ""


class Requirements(Partly):
    """core/v1 ResourceRequirements."""

    requests: dict[str, Amount] = Field(default_factory=dict)
    limits: dict[str, Amount] = Field(default_factory=dict)
    claims: list[ContainerClaim] = Field(default_factory=list)

    @property
    def wanted(self) -> dict[str, Amount]:
        """What is requested; a limit counts as a request where there is none, as the API server fills in."""
        return {**self.limits, **self.requests}


class Container(Partly):
    """core/v1 Container."""

    name: str = ""
    resources: Requirements = Field(default_factory=Requirements)
    restart_policy: str = ""
    ports: list[ContainerPort] = Field(default_factory=list)


class PodResourceClaim(Object):
    """core/v1 PodResourceClaim: a claim by name, or made for the pod from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class SchedulingGate(Partly):
    """core/v1 PodSchedulingGate."""

    name: str = ""


class PodSpec(Partly):
    """core/v1 PodSpec."""

    node_name: str = ""
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: Affinity = Field(default_factory=Affinity)
    tolerations: list[Toleration] = Field(default_factory=list)
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = ""
    scheduling_group: dict[str, Any] | None = None
    host_network: bool = False
    scheduling_gates: list[SchedulingGate] = Field(default_factory=list)
    resource_claims: list[PodResourceClaim] = Field(default_factory=list)
    init_containers: list[Container] = Field(default_factory=list)
    containers: list[Container] = Field(default_factory=list)
    overhead: dict[str, Amount] = Field(default_factory=dict)
    resources: Requirements = Field(default_factory=Requirements)
    topology_spread_constraints: list[TopologySpreadConstraint] = Field(default_factory=list)
    volumes: list[Volume] = Field(default_factory=list)


class PodResourceClaimStatus(Partly):
    """core/v1 PodResourceClaimStatus: the claim made for an entry; none where it was not needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedResourceClaimStatus(Partly):
    """core/v1 PodExtendedResourceClaimStatus."""

    resource_claim_name: str = ""


class PodStatus(Partly):
    """core/v1 PodStatus."""

    phase: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] = Field(default_factory=list)
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(TopLevel):
    """core/v1 Pod."""

    model_config = ConfigDict(extra="ignore")

    spec: PodSpec = Field(default_factory=PodSpec)
    status: PodStatus = Field(default_factory=PodStatus)


class Taint(Partly):
    """core/v1 Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeSpec(Partly):
    """core/v1 NodeSpec."""

    unschedulable: bool = False
    taints: list[Taint] = Field(default_factory=list)


class NodeStatus(Partly):
    """core/v1 NodeStatus; without `allocatable` nothing is known of its size, and all pods fit."""

    allocatable: dict[str, Amount] | None = None


class Node(TopLevel):
    """core/v1 Node."""

    model_config = ConfigDict(extra="ignore")

    spec: NodeSpec = Field(default_factory=NodeSpec)
    status: NodeStatus = Field(default_factory=NodeStatus)


class Namespace(TopLevel):
    """core/v1 Namespace."""

    model_config = ConfigDict(extra="ignore")
