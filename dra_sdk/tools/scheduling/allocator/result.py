"""The allocation of a claim as it goes into `status.allocation`.

Source: resource.k8s.io/v1 AllocationResult, DeviceRequestAllocationResult; KEP-4381, KEP-5007 (binding conditions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import config
from dra_sdk.tools.scheduling.allocator.choices import Choice
from dra_sdk.tools.scheduling.allocator.errors import AllocationError
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.requests import ClaimPlan, Request


def allocation(
    plan: ClaimPlan,
    choices: Sequence[Choice],
    requests: Sequence[Request],
    node: str,
    *,
    features: Features,
    share_id: Callable[[], str],
) -> JSON:
    """The AllocationResult of a claim that got these devices on a node; `requests` are those chosen, in order."""
    devices: JSON = {"results": [_result(choice, features, share_id) for choice in choices]}
    if entries := config.allocated(plan.claim, requests, features.behaviour):
        devices["config"] = entries
    made: JSON = {"devices": devices}
    if selector := node_selector(plan, choices, node):
        made["nodeSelector"] = selector
    return made


def _result(choice: Choice, features: Features, share_id: Callable[[], str]) -> JSON:
    request, device = choice.request, choice.candidate.device
    driver, pool, name = device.id
    made: JSON = {"request": request.reference, "driver": driver, "pool": pool, "device": name}
    if request.admin:
        made["adminAccess"] = True
    if request.tolerations:
        made["tolerations"] = deepcopy(list(request.tolerations))
    if features.binding_conditions:
        for field in ("bindingConditions", "bindingFailureConditions"):
            if conditions := device.json.get(field):
                made[field] = list(conditions)
    if device.skips_operations and features.variant == "experimental":
        made["skipNodeOperations"] = list(device.skips_operations)
    if choice.shared:
        made["shareID"] = share_id()
    if choice.consumed:
        made["consumedCapacity"] = {each.name: each.amount.text for each in choice.consumed}
    return made


def node_selector(plan: ClaimPlan, choices: Sequence[Choice], node: str) -> JSON | None:
    """Where the devices can be used: on this node alone as soon as one of them is local to it or binds to it.

    Else where all their node selectors hold, or None for everywhere.
    """
    term: dict[str, list[JSON]] = {}
    for choice in choices:
        device = choice.candidate.device
        if device.place.get("nodeName") or device.json.get("bindsToNode"):
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        terms = (device.place.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
        if len(terms) > 1:
            problem = f"unsupported node selector with {len(terms)} terms of device {device.id}"
            raise AllocationError(f"claim {plan.label}: {problem}")
        for each in terms:
            _merge(each, term)
    return {"nodeSelectorTerms": [term]} if term else None


def _merge(source: Mapping[str, Any], term: dict[str, list[JSON]]) -> None:
    for field in ("matchFields", "matchExpressions"):
        for requirement in source.get(field) or []:
            known = term.setdefault(field, [])
            if not any(_same(requirement, each) for each in known):
                known.append(deepcopy(requirement))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    alike = one.get("key") == other.get("key") and one.get("operator") == other.get("operator")
    return alike and set(one.get("values") or ()) == set(other.get("values") or ())
