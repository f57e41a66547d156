"""The allocation of a claim as written to `status.allocation`: devices, configuration and node selector.

Source: resource.k8s.io/v1 AllocationResult, DeviceRequestAllocationResult, DeviceAllocationConfiguration; KEP-4381,
KEP-5007 (binding conditions).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedClaim, ParsedRequest
from dra_sdk.tools.scheduling.allocator.device_choices import DeviceChoice
from dra_sdk.tools.scheduling.allocator.features import ReleaseBehaviour, SchedulerFeatures


def allocation_result(
    parsed: ParsedClaim,
    choices: Sequence[DeviceChoice],
    requests: Sequence[ParsedRequest],
    node: str,
    *,
    features: SchedulerFeatures,
    share_id: Callable[[], str],
) -> JSON:
    """Return the AllocationResult of a claim with these devices on a node.

    `requests` are the requests or chosen alternatives, in the order of the claim. `share_id` makes a new share ID.
    """
    devices: JSON = {"results": [_device_result(choice, features, share_id) for choice in choices]}
    if entries := allocated_config(parsed.claim, requests, features.behaviour):
        devices["config"] = entries
    result: JSON = {"devices": devices}
    if selector := node_selector(parsed, choices, node):
        result["nodeSelector"] = selector
    return result


def _device_result(choice: DeviceChoice, features: SchedulerFeatures, share_id: Callable[[], str]) -> JSON:
    request, device = choice.request, choice.candidate.device
    driver, pool, name = device.id
    result: JSON = {"request": request.reference, "driver": driver, "pool": pool, "device": name}
    if request.admin_access:
        result["adminAccess"] = True
    if request.tolerations:
        result["tolerations"] = deepcopy(list(request.tolerations))
    if features.binding_conditions:
        for field in ("bindingConditions", "bindingFailureConditions"):
            if conditions := device.json.get(field):
                result[field] = list(conditions)
    if device.skipped_operations and features.variant == "experimental":
        result["skipNodeOperations"] = list(device.skipped_operations)
    if choice.shared:
        result["shareID"] = share_id()
    if choice.consumed:
        result["consumedCapacity"] = {consumption.name: consumption.amount.text for consumption in choice.consumed}
    return result


def node_selector(parsed: ParsedClaim, choices: Sequence[DeviceChoice], node: str) -> JSON | None:
    """Return the nodes on which the devices can be used, None for every node.

    That is this node alone if any device is local or binds to the node, else the nodes that all their node selectors
    match. AllocationError for a selector with several terms.
    """
    term: dict[str, list[JSON]] = {}
    for choice in choices:
        device = choice.candidate.device
        if device.node_scope.get("nodeName") or device.json.get("bindsToNode"):
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        terms = (device.node_scope.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
        if len(terms) > 1:
            problem = f"unsupported node selector with {len(terms)} terms of device {device.id}"
            raise AllocationError(f"claim {parsed.label}: {problem}")
        for node_term in terms:
            _merge_requirements(node_term, term)
    return {"nodeSelectorTerms": [term]} if term else None


def _merge_requirements(source: Mapping[str, Any], term: dict[str, list[JSON]]) -> None:
    for field in ("matchFields", "matchExpressions"):
        for requirement in source.get(field) or []:
            known = term.setdefault(field, [])
            if not any(_is_same_requirement(requirement, other) for other in known):
                known.append(deepcopy(requirement))


def _is_same_requirement(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    same_key = one.get("key") == other.get("key") and one.get("operator") == other.get("operator")
    return same_key and set(one.get("values") or ()) == set(other.get("values") or ())


def allocated_config(claim: JSON, requests: Sequence[ParsedRequest], behaviour: ReleaseBehaviour) -> list[JSON]:
    """Return the configuration of an allocation: that of the classes, each once for all its requests; then the claim's.

    `requests` are the requests or chosen alternatives, in the order of the claim. Up to 1.36 an entry of the claim that
    names several requests is repeated for each of them. Since 1.37 it is written once, and an entry for all requests
    names none.
    """
    config = [*_class_config(requests), *_claim_config(claim, requests, once=behaviour.config_once)]
    return [_without_redundant_names(entry, requests) for entry in config] if behaviour.config_once else config


def _class_config(requests: Sequence[ParsedRequest]) -> Iterator[JSON]:
    by_class: dict[str, list[ParsedRequest]] = {}
    for request in requests:
        by_class.setdefault(request.class_name, []).append(request)
    for same in by_class.values():
        references = [request.reference for request in same]
        for entry in (same[0].device_class.get("spec") or {}).get("config") or []:
            yield {"source": "FromClass", "requests": list(references), **deepcopy(entry)}


def _claim_config(claim: JSON, requests: Sequence[ParsedRequest], *, once: bool) -> Iterator[JSON]:
    for entry in (claim["spec"].get("devices") or {}).get("config") or []:
        names = entry.get("requests")
        if not names:
            yield {"source": "FromClaim", **deepcopy(entry)}
            continue
        matching = [request for request in requests if _applies_to(names, request)]
        for _ in matching[:1] if once else matching:
            yield {"source": "FromClaim", **deepcopy(entry)}


def _applies_to(names: Collection[str], request: ParsedRequest) -> bool:
    return request.base_name in names or request.reference in names


def _without_redundant_names(entry: JSON, requests: Sequence[ParsedRequest]) -> JSON:
    """Leave out the names of requests from an entry that is for all of them."""
    names = entry.get("requests") or ()
    if not names or not all(_applies_to(names, request) for request in requests):
        return entry
    return {key: value for key, value in entry.items() if key != "requests"}
