"""Pods with devices: starting them, waiting for them, and reading what became of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dra_sdk.hardware import CpuSet, parse_cpuset
from dra_sdk.tools.simulator.kubelet.claims import load
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.features import HEALTH_IS_REPORTED_OF, KUBELET_KNOWS_SHARES, VERSION
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import SHOW, claim, container, pod, pod_with, request, template

JSON = dict[str, Any]


def start_pod(cluster: Cluster, name: str, device_class: str = "lamp", *, command: str = SHOW, grace: int = 1) -> None:
    """Creates a pod with a claim of its own for one device of the class."""
    one = template(f"one-{device_class}", [request("desk", device_class)])
    cluster.apply(one, pod_with(name, one, command=command, grace=grace))


def run_pod(cluster: Cluster, name: str, device_class: str = "lamp", *, command: str = SHOW, grace: int = 1) -> None:
    """Creates the pod of `start_pod`, and waits until it runs."""
    start_pod(cluster, name, device_class, command=command, grace=grace)
    cluster.wait_pod(name)


def start_pod_with_health(cluster: Cluster, name: str, device_class: str = "lamp") -> None:
    """Creates a pod like `start_pod`, with a claim of a kind whose health the kubelet of this release reports."""
    if "template" in HEALTH_IS_REPORTED_OF:
        start_pod(cluster, name, device_class)
    else:
        apply_named(cluster, name, device_class)


def run_pod_with_health(cluster: Cluster, name: str, device_class: str = "lamp") -> None:
    start_pod_with_health(cluster, name, device_class)
    cluster.wait_pod(name)


def apply_named(cluster: Cluster, name: str, device_class: str, use: str = "") -> None:
    """Creates a pod and a claim of the same name, which the pod calls `use`, by default also by that name."""
    use = use or name
    uses = [{"name": use, "resourceClaimName": name}]
    cluster.apply(claim(name, [request("desk", device_class)]), pod(name, uses, container("main", {"name": use})))


def apply_taint_rule(cluster: Cluster, name: str, driver: str, device: str, taint: JSON) -> None:
    """Taints a device with a DeviceTaintRule, in the newest API version that the release serves."""
    spec = {"deviceSelector": {"driver": driver, "device": device}, "taint": taint}
    api = f"resource.k8s.io/{ServerProfile.of(VERSION).taint_rule_versions()[0]}"
    cluster.apply({"apiVersion": api, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec})


def read_pod(cluster: Cluster, name: str) -> JSON:
    return dict(cluster.api.get(f"/api/v1/namespaces/default/pods/{name}"))


def started_at(cluster: Cluster, name: str) -> str:
    """Returns when its only container started; AssertionError if it was restarted."""
    state = read_pod(cluster, name)["status"]["containerStatuses"][0]
    assert state["restartCount"] == 0
    return str(state["state"]["running"]["startedAt"])


def logs(cluster: Cluster, pod_name: str, container: str = "main", namespace: str = "default") -> str:
    """Returns the output of a container, once it ends with `done`."""

    def read() -> str | None:
        text = cluster.kubectl("logs", pod_name, "-c", container, f"--namespace={namespace}", check=False)
        return text if text.endswith("done\n") else None

    return cluster.wait_until(read, f"output of {pod_name}/{container}")


def wait_printed(cluster: Cluster, pod_name: str, line: str) -> None:
    """Waits until its only container has printed this line."""
    cluster.wait_until(
        lambda: line in cluster.kubectl("logs", pod_name, check=False).splitlines(), f"{line!r} of {pod_name}"
    )


def printed(cluster: Cluster, pod_name: str, container: str = "main") -> dict[str, str]:
    """Returns the variables of devices that a container printed."""
    environment = logs(cluster, pod_name, container).partition("\n")[0].split("\0")
    return dict(each.split("=", 1) for each in environment if each.startswith(("LAMP", "BRIGHTNESS", "DRA_")))


def end_container(cluster: Cluster, pod_name: str) -> None:
    """Ends a pod's only container, which runs SHOW, without the kubelet; waits until it has ended."""
    process = cluster.container_process(pod_name)

    def ended() -> bool:
        process.send(signal.SIGTERM)  # the first process of a container ignores signals until it has set its trap
        return not process.alive()

    cluster.wait_until(ended, f"the container of {pod_name} has ended")


def cpus_of(cluster: Cluster, pod_name: str) -> CpuSet:
    """Returns the CPUs on which the first process of a pod's only container may run, as the kernel has them."""
    status = Path(f"/proc/{cluster.container_process(pod_name).pid}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("Cpus_allowed_list:")]
    return parse_cpuset(line.partition(":")[2].strip())


def claim_of(cluster: Cluster, pod_name: str) -> str:
    """Returns the name of a pod's first claim, also if it was made from a template."""

    def name() -> str | None:
        statuses = read_pod(cluster, pod_name)["status"].get("resourceClaimStatuses", [])
        return statuses[0]["resourceClaimName"] if statuses else None

    return read_pod(cluster, pod_name)["spec"]["resourceClaims"][0].get("resourceClaimName") or cluster.wait_until(
        name, f"the claim of {pod_name}"
    )


def allocated(cluster: Cluster, claim: str, namespace: str = "default") -> list[JSON]:
    """Waits until the scheduler has allocated a claim; returns its devices."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{claim}"

    def found() -> Any:
        status = (cluster.api.get(path) or {}).get("status", {})
        return status.get("allocation", {}).get("devices", {}).get("results")

    return list(cluster.wait_until(found, f"allocation of {claim}"))


def wait_unschedulable(cluster: Cluster, name: str) -> None:
    """Waits until the scheduler has found no devices for a pod."""

    def refused() -> bool:
        conditions = read_pod(cluster, name)["status"].get("conditions", [])
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    cluster.wait_until(refused, f"{name} is unschedulable")


def shares(cluster: Cluster, claim: str) -> list[tuple[str, str]]:
    """Returns request and share of each device, as the kubelet keeps them from the driver's answer."""
    (found,) = [info for info in load(cluster.kubelet_dir / "dra_manager_state") if info.ref.name == claim]
    return sorted((*device.requests, str(device.share_id)) for device in found.devices)


def given_shares(cluster: Cluster, claim: str) -> list[tuple[str, str]]:
    """Returns request and share of each device, as the scheduler allocated them."""
    return sorted((each["request"], each["shareID"]) for each in allocated(cluster, claim))


def known_shares(cluster: Cluster, claim: str) -> list[tuple[str, str]]:
    """Returns what `shares` should be: the scheduler's, without the shares if the kubelet knows none (1.34)."""
    given = given_shares(cluster, claim)
    return given if KUBELET_KNOWS_SHARES else [(request, "None") for request, _ in given]


def device_health(cluster: Cluster, pod_name: str) -> list[tuple[str, str]]:
    """Returns health and message of each device of the first container, as the kubelet reports them."""
    status = read_pod(cluster, pod_name)["status"]["containerStatuses"][0]
    resources = [each for entry in status.get("allocatedResourcesStatus", []) for each in entry["resources"]]
    return [(each["health"], each.get("message", "")) for each in resources]


def failures(cluster: Cluster, names: Iterable[str]) -> list[str]:
    """Returns the messages of the kubelet's events about failed prepares of these pods."""
    found = []
    for name in names:
        uid = read_pod(cluster, name)["metadata"]["uid"]
        selector = quote(f"involvedObject.uid={uid},reason=FailedPrepareDynamicResources")
        found += cluster.api.get(f"/api/v1/namespaces/default/events?fieldSelector={selector}")["items"]
    return [each["message"] for each in found]


def wait_failure(cluster: Cluster, name: str, words: str = "") -> None:
    """Waits until an event says that a prepare for a pod failed, with these words in it."""
    cluster.wait_until(
        lambda: any(words in each for each in failures(cluster, [name])), f"a failed prepare of {name}: {words}"
    )


def nudge(cluster: Cluster, *names: str) -> None:
    """Makes the kubelet look at pods now: after a failure it would wait for 90 seconds, unless the pod changes."""
    cluster.kubectl("annotate", "pod", *names, f"nudged={time.monotonic()}", "--overwrite")


def insist(cluster: Cluster, name: str) -> None:
    """Makes the kubelet look at a pod every second until it runs: prepares fail while it reconnects to a driver."""

    def runs() -> bool:
        nudge(cluster, name)
        time.sleep(1)
        return read_pod(cluster, name)["status"]["phase"] == "Running"

    cluster.wait_until(runs, f"pod {name} running")
