"""Events of the driver, written with its own account: on pods whose device fails, and on the node."""

from __future__ import annotations

from urllib.parse import quote

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.pods import allocated, claim_of, read_pod, run_pod

KNOBS = "knobs.example.com"
WORDS = "the bulb is broken"


def told(cluster: Cluster, uid: str) -> list[tuple[str, str, str]]:
    """Returns type, reason and message of the events that the driver has written on an object, the oldest first."""
    selector = quote(f"involvedObject.uid={uid}")
    found = cluster.api.get(f"/api/v1/namespaces/default/events?fieldSelector={selector}")["items"]
    ours = [each for each in found if each["reportingComponent"] == KNOBS]
    return [
        (each["type"], each["reason"], each["message"]) for each in sorted(ours, key=lambda each: each["eventTime"])
    ]


def test_a_pod_is_told_that_its_device_fails_and_that_it_is_well_again(
    cluster: Cluster, knobs: DriverUnderTest
) -> None:
    for name in ("first", "second"):
        run_pod(cluster, name, "knobs")
    uid, other = (read_pod(cluster, name)["metadata"]["uid"] for name in ("first", "second"))
    (device,) = allocated(cluster, claim_of(cluster, "first"))
    what = f"device {device['pool']}/{device['device']} of driver {KNOBS} is"
    knobs.knobs.set(unhealthy={device["device"]: WORDS})
    expected = [("Warning", "DeviceUnhealthy", f"{what} unhealthy: {WORDS}")]
    cluster.wait_until(lambda: told(cluster, uid) == expected, "an event on the pod")
    assert WORDS in cluster.kubectl("describe", "pod", "first")
    knobs.knobs.reset()
    expected.append(("Normal", "DeviceHealthChanged", f"{what} healthy"))
    cluster.wait_until(lambda: told(cluster, uid) == expected, "a second event on the pod")
    assert told(cluster, other) == []


def test_the_node_is_told_why_its_devices_are_not_discovered(cluster: Cluster, knobs: DriverUnderTest) -> None:
    node = cluster.node_name  # the UID of a node in its events, as in those of the kubelet
    before = len(told(cluster, node))
    knobs.knobs.set(fail=["discover"], devices="partitions")
    cluster.wait_until(lambda: told(cluster, node)[before:], "an event on the node")
    kind, reason, message = told(cluster, node)[before]
    assert (kind, reason) == ("Warning", "DevicesNotDiscovered")
    assert f"driver {KNOBS}:" in message
    assert "the knob for discover is set to fail" in message
    assert reason in cluster.kubectl("describe", "node", node)
