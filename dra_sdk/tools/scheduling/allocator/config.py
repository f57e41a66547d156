"""Configuration: what an allocation takes over from classes and claim, and what of it applies to a device.

Source: resource.k8s.io/v1 DeviceAllocationConfiguration, DeviceClassConfiguration, DeviceClaimConfiguration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.model.claim import base_request
from dra_sdk.tools.scheduling.allocator.behaviour import UP_TO_1_36, Behaviour
from dra_sdk.tools.scheduling.allocator.requests import Request


def allocated(claim: JSON, requests: Sequence[Request], behaviour: Behaviour = UP_TO_1_36) -> list[JSON]:
    """The configuration of an allocation: that of the classes, each once for all its requests, then the claim's.

    `requests` are those of the claim in order, of alternatives the chosen one. Up to 1.36 an entry of the claim that
    names several requests is there once for each of them. Since 1.37 it is there once, and what is for all requests
    names none.
    """
    found = [*_of_classes(requests), *_of_claim(claim, requests, once=behaviour.config_once)]
    return [_shortened(each, requests) for each in found] if behaviour.config_once else found


def _of_classes(requests: Sequence[Request]) -> Iterator[JSON]:
    by_class: dict[str, list[Request]] = {}
    for request in requests:
        by_class.setdefault(request.class_name, []).append(request)
    for same in by_class.values():
        references = [request.reference for request in same]
        for entry in (same[0].device_class.get("spec") or {}).get("config") or []:
            yield {"source": "FromClass", "requests": list(references), **deepcopy(entry)}


def _of_claim(claim: JSON, requests: Sequence[Request], *, once: bool) -> Iterator[JSON]:
    for entry in (claim["spec"].get("devices") or {}).get("config") or []:
        names = entry.get("requests")
        if not names:
            yield {"source": "FromClaim", **deepcopy(entry)}
            continue
        matching = [each for each in requests if _is_for(names, each)]
        for _ in matching[:1] if once else matching:
            yield {"source": "FromClaim", **deepcopy(entry)}


def _is_for(names: Collection[str], request: Request) -> bool:
    return request.base in names or request.reference in names


def _shortened(entry: JSON, requests: Sequence[Request]) -> JSON:
    """Without the names of requests if it is for all of them."""
    names = entry.get("requests") or ()
    if not names or not all(_is_for(names, each) for each in requests):
        return entry
    return {key: value for key, value in entry.items() if key != "requests"}


def for_result(config: Iterable[Mapping[str, Any]], result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries of `allocation.devices.config` that apply to one of its results, in order.

    Entries that name no request apply to all; those that are not for a driver (no `opaque`) are left out.
    """
    reference = result["request"]
    names = {reference, base_request(reference)}
    return [
        entry
        for entry in config
        if entry.get("opaque") is not None and (not entry.get("requests") or names & set(entry["requests"]))
    ]
