"""core/v1 Pod, Node and Namespace: the fields that decide where pods run and which devices they get.

Other fields are ignored, except in objects that name claims: there, a misspelt field would silently request nothing.
These fields are validated as by the API server. Source: core/v1 Pod, Node; core validation of PodSpec, NodeSpec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, ValidationError

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.container_resources import pod_claim_problems, resource_problems
from dra_sdk.wire.resource.base import Amount, Object, Timestamp
from dra_sdk.wire.resource.metadata import NodeSelector, TopLevel
from dra_sdk.wire.validation.metadata import new_name, node_selector
from dra_sdk.wire.validation.names import dns_label, dns_subdomain
from dra_sdk.wire.validation.problems import Problem, invalid, not_supported, required

Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
"""The field of an affinity with its required terms."""
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_OPERATORS: Final = ("Equal", "Exists")


class PartialObject(Object):
    """An object of which only some fields are read; all others are ignored."""

    model_config = ConfigDict(extra="ignore")


class PartialTopLevel(TopLevel):
    """The same for an object with metadata of its own."""

    model_config = ConfigDict(extra="ignore")


class NodeAffinity(PartialObject):
    """core/v1 NodeAffinity."""

    required: NodeSelector | None = Field(None, alias=REQUIRED)


class Affinity(PartialObject):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None


class ContainerClaim(Object):
    """core/v1 ResourceClaim: the use of a claim of the pod, or of one of its requests, by a container."""

    name: str = ""
    request: str = ""


class ResourceRequirements(PartialObject):
    """core/v1 ResourceRequirements."""

    requests: dict[str, Amount] = Field(default_factory=dict)
    limits: dict[str, Amount] = Field(default_factory=dict)
    claims: list[ContainerClaim] = Field(default_factory=list)

    @property
    def effective_requests(self) -> dict[str, Amount]:
        """The requests; a limit counts as a request where there is none, as in the API server."""
        return {**self.limits, **self.requests}


class Container(PartialObject):
    """core/v1 Container."""

    name: str = ""
    resources: ResourceRequirements = Field(default_factory=ResourceRequirements)
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether it is an init container that runs as long as the pod."""
        return self.restart_policy == "Always"


class PodResourceClaim(Object):
    """core/v1 PodResourceClaim: a claim by name, or one made for the pod from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSchedulingGroup(PartialObject):
    """core/v1 PodSchedulingGroup."""

    pod_group_name: str = ""


class PodSpec(PartialObject):
    """core/v1 PodSpec."""

    node_name: str = ""
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: Affinity = Field(default_factory=Affinity)
    tolerations: list[dict[str, Any]] = Field(default_factory=list)
    priority: Int32 | None = None
    preemption_policy: str = ""
    scheduling_gates: list[dict[str, Any]] = Field(default_factory=list)
    resource_claims: list[PodResourceClaim] = Field(default_factory=list)
    init_containers: list[Container] = Field(default_factory=list)
    containers: list[Container] = Field(default_factory=list)
    overhead: dict[str, Amount] = Field(default_factory=dict)
    resources: ResourceRequirements = Field(default_factory=ResourceRequirements)
    scheduling_group: PodSchedulingGroup | None = None

    @property
    def group(self) -> str:
        """The name of the pod's PodGroup; empty without one."""
        return "" if self.scheduling_group is None else self.scheduling_group.pod_group_name

    @property
    def required_nodes(self) -> JSON | None:
        """The NodeSelector of the required node affinity, as JSON; None without one."""
        affinity = self.affinity.node_affinity
        return None if affinity is None or affinity.required is None else affinity.required.to_json()

    @property
    def effective_priority(self) -> int:
        """`spec.priority`, which `with_priorities` sets by the pod's PriorityClass; 0 without it."""
        return self.priority or 0


class PodResourceClaimStatus(PartialObject):
    """core/v1 PodResourceClaimStatus: the claim made for an entry; None if no claim was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedResourceClaimStatus(PartialObject):
    """core/v1 PodExtendedResourceClaimStatus."""

    resource_claim_name: str = ""


class PodStatus(PartialObject):
    """core/v1 PodStatus."""

    phase: str = ""
    start_time: Timestamp | None = None
    nominated_node_name: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] = Field(default_factory=list)
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(PartialTopLevel):
    """core/v1 Pod."""

    spec: PodSpec = Field(default_factory=PodSpec)
    status: PodStatus = Field(default_factory=PodStatus)


_MAX_SPECS: Final = 1024
_known_specs: dict[str, PodSpec] = {}


def pod_of(obj: JSON) -> Pod:
    """Return a pod of the API as its model.

    Pods whose specs are equal share the models in them, which must therefore not be changed.
    """
    spec = obj.get("spec")
    try:
        return Pod.model_validate({**obj, "spec": _spec_of(spec)} if isinstance(spec, dict) else obj)
    except ValidationError:
        return Pod.model_validate(obj)  # the error with the paths in the whole pod


def _spec_of(spec: JSON) -> PodSpec:
    """Return the model of a spec. Only the node and the affinity often differ between pods of a workload."""
    common = {name: value for name, value in spec.items() if name not in {"nodeName", "affinity"}}
    text = repr(common)
    known = _known_specs.get(text)
    if known is None:
        if len(_known_specs) >= _MAX_SPECS:
            _known_specs.clear()
        known = _known_specs[text] = PodSpec.model_validate(common)
    own = {name: value for name, value in spec.items() if value is not None and name not in common}
    if not own:
        return known
    apart = PodSpec.model_validate(own)
    return known.model_copy(update={name: getattr(apart, name) for name in apart.model_fields_set})


class NodeSpec(PartialObject):
    """core/v1 NodeSpec."""

    taints: list[dict[str, Any]] = Field(default_factory=list)


class NodeStatus(PartialObject):
    """core/v1 NodeStatus; without `allocatable` every pod fits on the node."""

    allocatable: dict[str, Amount] | None = None


class Node(PartialTopLevel):
    """core/v1 Node."""

    spec: NodeSpec = Field(default_factory=NodeSpec)
    status: NodeStatus = Field(default_factory=NodeStatus)


class Namespace(PartialTopLevel):
    """core/v1 Namespace."""


def validate_core_object(value: TopLevel) -> list[Problem]:
    """Return what is invalid in a pod, node or namespace: its names, and the fields that are read here."""
    metadata, namespace = value.metadata, value.metadata.namespace
    valid = dns_label if isinstance(value, Namespace) else dns_subdomain
    problems = list(new_name(metadata.name, metadata.generate_name, valid))
    if isinstance(value, Pod):
        problems += [*(dns_label(namespace, "metadata.namespace") if namespace else ()), *validate_pod(value)]
    return problems + list(_taint_problems(value)) if isinstance(value, Node) else problems


def validate_pod(pod: Pod) -> list[Problem]:
    """Return what is invalid in the claims, resource requests, tolerations and node affinity of a pod."""
    claims = pod_claim_problems(pod.spec.resource_claims)
    return [*claims, *_containers_problems(pod), *_toleration_problems(pod), *_affinity_problems(pod)]


def _toleration_problems(pod: Pod) -> Iterator[Problem]:
    for index, toleration in enumerate(pod.spec.tolerations):
        field, operator, effect = f"spec.tolerations[{index}]", toleration.get("operator"), toleration.get("effect")
        if operator and operator not in _OPERATORS:
            yield not_supported(f"{field}.operator", operator, _OPERATORS)
        if effect and effect not in _EFFECTS:
            yield not_supported(f"{field}.effect", effect, _EFFECTS)
        if not toleration.get("key") and operator != "Exists":
            yield invalid(f"{field}.operator", "must be Exists if there is no key")


def _affinity_problems(pod: Pod) -> Iterator[Problem]:
    affinity = pod.spec.affinity.node_affinity
    if affinity is not None and affinity.required is not None:
        yield from node_selector(affinity.required, f"spec.affinity.nodeAffinity.{REQUIRED}")


def _taint_problems(node: Node) -> Iterator[Problem]:
    for index, taint in enumerate(node.spec.taints):
        if not taint.get("key"):
            yield required(f"spec.taints[{index}].key")
        if (effect := taint.get("effect") or "") not in _EFFECTS:
            yield not_supported(f"spec.taints[{index}].effect", effect, _EFFECTS)


def _containers_problems(pod: Pod) -> Iterator[Problem]:
    names = {claim.name for claim in pod.spec.resource_claims}
    for kind, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            yield from resource_problems(container.resources, f"spec.{kind}[{index}].resources", names)
