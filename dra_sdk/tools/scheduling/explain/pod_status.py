"""Why a pod that has a node does not run there, by what its own status and that of its claims say.

The kubelet has the devices prepared before it makes the sandbox of a pod, so the condition PodReadyToStartContainers
tells whether they are. Source: k8s.io/kubernetes, pkg/kubelet, SyncPod (1.34 to 1.37).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import display_name, object_key

_SANDBOX: Final = "PodReadyToStartContainers"


def waiting_reason(pod: JSON, claims: Sequence[JSON]) -> str:
    """Return why a pod on a node does not run, as phrases; empty if it does, or if it has no status."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending":
        return ""
    phrases = [*_waiting_containers(status), _about_devices(status, claims), *_about_claims(claims)]
    return "; ".join(filter(None, phrases))


def _waiting_containers(status: Mapping[str, Any]) -> Iterator[str]:
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting is not None:
            message = f": {waiting['message']}" if waiting.get("message") else ""
            yield f"container {container['name']} waits ({waiting.get('reason') or 'no reason'}{message})"
            return  # the others wait for the same


def _about_devices(status: Mapping[str, Any], claims: Sequence[JSON]) -> str:
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    if not claims:
        return ""
    if conditions.get(_SANDBOX) == "True":
        return "its devices are prepared"
    return "its devices are allocated and not known to be prepared; the events of the pod say what the driver says"


def _about_claims(claims: Sequence[JSON]) -> Iterator[str]:
    """Yield the conditions that drivers gave to devices of the claims and that are not true."""
    for claim in claims:
        for device in (claim.get("status") or {}).get("devices") or ():
            for condition in device.get("conditions") or ():
                if condition.get("status") != "True":
                    name = f"{device['driver']}/{device['pool']}/{device['device']}"
                    said = condition.get("message") or condition.get("reason") or "without a message"
                    yield f"claim {display_name(object_key(claim))}: {name} is not {condition['type']}: {said}"
