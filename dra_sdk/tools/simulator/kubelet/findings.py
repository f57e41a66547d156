"""What is wrong with a driver's answer although the kubelet accepts it: see `records.Finding` for the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.claim import base_request
from dra_sdk.tools.simulator.kubelet.pods import allocation_results
from dra_sdk.tools.simulator.kubelet.records import Finding
from dra_sdk.wire.cdi import parse_qualified_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.kubelet.records import PreparedDevice


def findings(claim: JSON, devices: Iterable[PreparedDevice]) -> Iterator[Finding]:
    """Compares what drivers answered for a claim with its allocation."""
    name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    for device in devices:
        for rule, why in _broken(allocation_results(claim), device):
            yield Finding(rule, device.driver, name, f"device {device.pool}/{device.device}: {why}")


def _broken(results: list[JSON], device: PreparedDevice) -> Iterator[tuple[str, str]]:
    own = [result for result in results if result["driver"] == device.driver]
    requests = {base_request(result["request"]) for result in own}
    for request in device.requests:
        if "/" in request:
            yield "base-request", f"request {request!r} must be given as {base_request(request)!r}"
        elif request not in requests:
            yield "known-request", f"the driver's allocation has no request {request!r}, but {sorted(requests)}"
    same = [result for result in own if (result["pool"], result["device"]) == (device.pool, device.device)]
    if not same:
        yield "allocated-device", "it is not among the claim's allocation results"
    elif device.share_id not in {result.get("shareID") for result in same}:
        shares = sorted(str(result.get("shareID")) for result in same)
        yield "share-id", f"share_id is {device.share_id!r}, the allocation has {', '.join(shares)}"
    for cdi_id in device.cdi_ids:
        try:
            parse_qualified_name(cdi_id)
        except InvalidObjectError as error:
            yield "cdi-name", str(error)
