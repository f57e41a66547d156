"""What is invalid in the resources of containers and in the claims of a pod.

Source: core validation of ResourceRequirements and PodResourceClaim (pkg/apis/core/validation).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.validation.names import dns_label, dns_subdomain, is_label_key
from dra_sdk.wire.validation.problems import Problem, duplicate, forbidden, invalid, not_found, required

if TYPE_CHECKING:
    from dra_sdk.tools.scheduling.cluster.core_v1 import ContainerClaim, PodResourceClaim, ResourceRequirements

_STANDARD: Final = {"cpu", "memory", "ephemeral-storage"}
_HUGE_PAGES: Final = "hugepages-"
_NATIVE: Final = "kubernetes.io/"
_REQUESTS: Final = "requests."


def pod_claim_problems(claims: list[PodResourceClaim]) -> Iterator[Problem]:
    """Yield what is invalid in `spec.resourceClaims` of a pod."""
    seen = set()
    for index, claim in enumerate(claims):
        field = f"spec.resourceClaims[{index}]"
        if not claim.name:
            yield required(f"{field}.name")
        elif claim.name in seen:
            yield duplicate(f"{field}.name", claim.name)
        else:
            yield from dns_label(claim.name, f"{field}.name")
        seen.add(claim.name)
        if bool(claim.resource_claim_name) == bool(claim.resource_claim_template_name):
            yield invalid(field, "must have one of resourceClaimName and resourceClaimTemplateName")
        if claim.resource_claim_name:
            yield from dns_subdomain(claim.resource_claim_name, f"{field}.resourceClaimName")
        if claim.resource_claim_template_name:
            yield from dns_subdomain(claim.resource_claim_template_name, f"{field}.resourceClaimTemplateName")


def resource_problems(resources: ResourceRequirements, field: str, names: set[str]) -> Iterator[Problem]:
    """Yield what is invalid in the resources of a container; `names` are those of the pod's claims."""
    yield from _use_problems(resources.claims, f"{field}.claims", names)
    for kind, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in amounts.items():
            yield from _amount_problems(name, amount, f"{field}.{kind}[{name}]")
    for name, amount in resources.requests.items():
        limit, may_differ = resources.limits.get(name), _may_differ(name)
        if limit is None and not may_differ:
            yield required(f"{field}.limits", f"must have {name}, which is in requests and cannot be overcommitted")
        elif limit is not None and not may_differ and amount != limit:
            yield invalid(f"{field}.requests", f"must be equal to the {name} limit of {limit}, is {amount}")
        elif limit is not None and amount > limit:
            yield invalid(f"{field}.requests", f"must be at most the {name} limit of {limit}, is {amount}")
    used = {*resources.limits, *resources.requests}
    if any(name.startswith(_HUGE_PAGES) for name in used) and not used & {"cpu", "memory"}:
        yield forbidden(field, "huge pages need cpu or memory beside them")


def _use_problems(claims: list[ContainerClaim], field: str, names: set[str]) -> Iterator[Problem]:
    """Yield what is invalid in the claims that a container uses: each at most once, as a whole or by its requests."""
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims):
        where = f"{field}[{index}]"
        if not claim.name:
            yield required(f"{where}.name")
            continue
        if claim.request:
            yield from dns_label(claim.request, f"{where}.request")
        others = {request for name, request in seen if name == claim.name}
        if claim.request in others or "" in others or (others and not claim.request):
            yield duplicate(where, "/".join(filter(None, (claim.name, claim.request))))
        seen.add((claim.name, claim.request))
        if claim.name not in names:
            yield not_found(f"{where}.name", f"the pod has no claim {claim.name!r} in spec.resourceClaims")


def _amount_problems(name: str, amount: Quantity, field: str) -> Iterator[Problem]:
    if "/" not in name:
        if name not in _STANDARD and not name.startswith(_HUGE_PAGES):
            yield invalid(field, "must be cpu, memory, ephemeral-storage, hugepages-… or a name with a domain")
    elif not is_label_key(name) or (_NATIVE not in name and not is_label_key(f"{_REQUESTS}{name}")):
        yield invalid(field, "must be a domain and a name, such as example.com/gpu")
    elif _NATIVE not in name and name.startswith(_REQUESTS):
        yield invalid(field, f"must not begin with {_REQUESTS}")
    if amount.value < 0:
        yield invalid(field, f"must not be negative, is {amount}")
    if amount.value.denominator != 1 and "/" in name and _NATIVE not in name:
        yield invalid(field, f"must be a whole number, is {amount}")


def _may_differ(name: str) -> bool:
    """Return whether the request of a resource may be less than its limit, or have none."""
    return ("/" not in name or _NATIVE in name) and not name.startswith(_HUGE_PAGES)
