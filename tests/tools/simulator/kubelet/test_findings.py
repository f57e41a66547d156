from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.simulator.kubelet import PreparedDevice
from dra_sdk.tools.simulator.kubelet.findings import findings

GPU = "gpu.example.com"


def claim(**more: Any) -> dict[str, Any]:
    result = {"request": "r/sub", "driver": GPU, "pool": "node-1", "device": "dev", **more}
    other = {"request": "s", "driver": "nic.example.com", "pool": "node-1", "device": "eth0"}
    allocation = {"devices": {"results": [result, other]}}
    return {"metadata": {"namespace": "default", "name": "one"}, "status": {"allocation": allocation}}


@pytest.mark.parametrize(
    ("device", "rule"),
    [
        (PreparedDevice(GPU, "node-1", "dev", ("r/sub",)), "base-request"),
        (PreparedDevice(GPU, "node-1", "dev", ("s",)), "known-request"),
        (PreparedDevice(GPU, "node-1", "eth0", ("r",)), "allocated-device"),
        (PreparedDevice(GPU, "node-2", "dev", ("r",)), "allocated-device"),
        (PreparedDevice(GPU, "node-1", "dev", ("r",), (), "share-1"), "share-id"),
        (PreparedDevice(GPU, "node-1", "dev", ("r",), ("not-a-cdi-name",)), "cdi-name"),
    ],
)
def test_what_the_kubelet_lets_pass_is_found(device: PreparedDevice, rule: str) -> None:
    (found,) = findings(claim(), [device])
    assert (found.rule, found.driver, found.claim) == (rule, GPU, "default/one")
    assert f"device {device.pool}/{device.device}: " in found.why


def test_a_share_that_is_not_echoed_is_found() -> None:
    (found,) = findings(claim(shareID="share-1"), [PreparedDevice(GPU, "node-1", "dev", ("r",))])
    assert found.rule == "share-id"


@pytest.mark.parametrize(
    "device",
    [
        PreparedDevice(GPU, "node-1", "dev", ("r",), ("vendor.com/class=a", "vendor.com/class=b"), "share-1"),
        PreparedDevice(GPU, "node-1", "dev", (), (), "share-1"),
    ],
)
def test_a_good_answer_has_none(device: PreparedDevice) -> None:
    assert list(findings(claim(shareID="share-1"), [device])) == []
