"""What is said of a pod that has a node and does not run there."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.explain.pod_status import waiting_reason
from tests.tools.scheduling.clusters import GPU, claim, exactly

JSON = dict[str, Any]
ALLOCATED = "its devices are allocated and not known to be prepared; the events of the pod say what the driver says"


def waiting(*conditions: tuple[str, str], **containers: JSON) -> JSON:
    """A pod with a node, with these conditions and containers that wait."""
    statuses = [{"name": name, "state": {"waiting": state}} for name, state in containers.items()]
    status = {
        "phase": "Pending",
        "conditions": [{"type": name, "status": value} for name, value in conditions],
        "containerStatuses": statuses,
    }
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "n1"}, "status": status}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({}, ""),
        ({"status": {"phase": "Running"}}, ""),
        ({"status": {"phase": "Pending"}}, ALLOCATED),
        (
            waiting(("PodReadyToStartContainers", "False"), main={"reason": "ContainerCreating"}),
            f"container main waits (ContainerCreating); {ALLOCATED}",
        ),
        (
            waiting(
                ("PodReadyToStartContainers", "True"), main={"reason": "ErrImagePull", "message": "not found"}, b={}
            ),
            "container main waits (ErrImagePull: not found); its devices are prepared",
        ),
    ],
)
def test_the_status_of_the_pod_says_how_far_it_is(pod: JSON, reason: str) -> None:
    assert waiting_reason(pod, [claim("c", exactly("gpu", GPU))]) == reason


def test_without_claims_nothing_is_said_of_devices() -> None:
    assert waiting_reason(waiting(main={}), []) == "container main waits (no reason)"


def test_what_a_driver_says_of_a_device_is_told() -> None:
    device = {"driver": "dra.net", "pool": "n1", "device": "eth1"}
    conditions = [{"type": "Ready", "status": "False", "message": "no carrier"}, {"type": "Attached", "status": "True"}]
    held = {**claim("c", exactly("nic", "nic")), "status": {"devices": [{**device, "conditions": conditions}]}}
    reason = waiting_reason(waiting(), [held])
    assert reason == f"{ALLOCATED}; claim c: dra.net/n1/eth1 is not Ready: no carrier"
