"""What an API server asks of the parts of pods and nodes that count here.

Source: core validation of PodSpec, NodeSpec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dra_sdk.tools.scheduling.cluster.core import Container, Namespace, Node, Pod
from dra_sdk.wire.resource.metadata import TopLevel
from dra_sdk.wire.validation.metadata import node_selector
from dra_sdk.wire.validation.names import dns_label, dns_subdomain
from dra_sdk.wire.validation.problems import Problem, duplicate, invalid, not_found, not_supported, required

_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_OPERATORS: Final = ("Equal", "Exists")


def core_problems(value: TopLevel) -> list[Problem]:
    """What is wrong with a pod, node or namespace: its names, and what follows."""
    name, namespace = value.metadata.name, value.metadata.namespace
    valid = dns_label if isinstance(value, Namespace) else dns_subdomain
    found = list(valid(name, "metadata.name")) if name else [required("metadata.name")]
    if isinstance(value, Pod):
        found += [*(dns_label(namespace, "metadata.namespace") if namespace else ()), *pod_problems(value)]
    return found + list(_taints(value)) if isinstance(value, Node) else found


def pod_problems(pod: Pod) -> list[Problem]:
    """Claims that are ambiguous, given twice or not there, negative requests, unknown operators and effects."""
    return [*_claims(pod), *_containers(pod), *_tolerations(pod), *_affinity(pod)]


def _tolerations(pod: Pod) -> Iterator[Problem]:
    for index, each in enumerate(pod.spec.tolerations):
        field = f"spec.tolerations[{index}]"
        if each.operator and each.operator not in _OPERATORS:
            yield not_supported(f"{field}.operator", each.operator, _OPERATORS)
        if each.effect and each.effect not in _EFFECTS:
            yield not_supported(f"{field}.effect", each.effect, _EFFECTS)
        if not each.key and each.operator != "Exists":
            yield invalid(f"{field}.operator", "must be Exists where no key is given")


def _affinity(pod: Pod) -> Iterator[Problem]:
    affinity = pod.spec.affinity.node_affinity
    if affinity is not None and affinity.required is not None:
        yield from node_selector(
            affinity.required, "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        )


def _taints(node: Node) -> Iterator[Problem]:
    for index, each in enumerate(node.spec.taints):
        if not each.key:
            yield required(f"spec.taints[{index}].key")
        if each.effect not in _EFFECTS:
            yield not_supported(f"spec.taints[{index}].effect", each.effect, _EFFECTS)


def _claims(pod: Pod) -> Iterator[Problem]:
    seen = set()
    for index, claim in enumerate(pod.spec.resource_claims):
        field = f"spec.resourceClaims[{index}]"
        if not claim.name:
            yield required(f"{field}.name")
        if claim.name in seen:
            yield duplicate(f"{field}.name", claim.name)
        seen.add(claim.name)
        if bool(claim.resource_claim_name) == bool(claim.resource_claim_template_name):
            yield invalid(field, "must have one of resourceClaimName and resourceClaimTemplateName")


def _containers(pod: Pod) -> Iterator[Problem]:
    names = {claim.name for claim in pod.spec.resource_claims}
    for kind, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            yield from _container(container, f"spec.{kind}[{index}].resources", names)


def _container(container: Container, field: str, names: set[str]) -> Iterator[Problem]:
    for index, claim in enumerate(container.resources.claims):
        if claim.name not in names:
            where = f"{field}.claims[{index}].name"
            yield not_found(where, f"the pod has no claim {claim.name!r} in spec.resourceClaims")
    for name, amount in container.resources.wanted.items():
        if amount.value < 0:
            yield invalid(f"{field}.requests[{name}]", f"must not be negative, is {amount}")
        if amount.value.denominator != 1 and "/" in name:
            yield invalid(f"{field}.requests[{name}]", f"must be a whole number, is {amount}")
