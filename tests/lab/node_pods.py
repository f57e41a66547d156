"""Pods on the node of the virtual machine, and what their containers got, read from the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dra_sdk.hardware import CpuSet, parse_cpuset
from tests.cluster.manifests import claim, container, pod, request, where
from tests.lab.harness.node import LIMIT, Node

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PROGRAMS = {
    "usr": ("/usr", "/usr"),
    "lib": ("/usr/lib", "/lib"),
    "lib64": ("/usr/lib64", "/lib64"),
    "verbs": ("/etc/libibverbs.d", "/etc/libibverbs.d"),
}
"""Directories of the node with programs for containers, and where the containers have them."""
NUMA_NODE = "resource.kubernetes.io/numaNode"


def cpus(number: int, condition: str = "true") -> JSON:
    """Returns the request `cpus`, for CPUs of one NUMA node; `condition` is a CEL expression for the device."""
    return request("cpus", "dra.cpu", capacity={"requests": {"dra.cpu/cpu": str(number)}}, **where(condition))


def of_numa_node(number: int) -> str:
    """Returns the CEL expression for devices of a NUMA node."""
    return f'device.attributes["resource.kubernetes.io"].numaNode == {number}'


def create_claim(
    node: Node, name: str, *requests: JSON, configs: Sequence[JSON] = (), aligned_by: Sequence[str] = ()
) -> None:
    """Creates a claim; its devices have the same values of the attributes `aligned_by`."""
    made = claim(name, list(requests), list(configs))
    made["spec"]["devices"]["constraints"] = [{"matchAttribute": each} for each in aligned_by]
    node.api.create(CLAIMS, made)


def create(node: Node, name: str, *claims: str, resources: JSON | None = None, programs: bool = False) -> None:
    """Creates a pod with one container, which uses these claims. It runs again after a boot.

    With `programs`, the container has the programs of the node and their libraries too.
    """
    uses = [{"name": each, "resourceClaimName": each} for each in claims]
    main = container("main", *({"name": each} for each in claims))
    main["resources"].update(resources or {})
    made = pod(name, uses, main)
    made["spec"]["restartPolicy"] = "Always"
    made["spec"]["dnsPolicy"] = "Default"
    if programs:
        made["spec"]["volumes"] = [{"name": each, "hostPath": {"path": path}} for each, (path, _) in PROGRAMS.items()]
        main["volumeMounts"] = [{"name": each, "mountPath": at, "readOnly": True} for each, (_, at) in PROGRAMS.items()]
    node.api.create(PODS, made)


def wait(node: Node, *names: str) -> None:
    """Waits until pods run and are ready."""
    for name in names:
        node.wait_pod(name, timeout=LIMIT)


def run(node: Node, name: str, *claims: str, resources: JSON | None = None) -> None:
    """Creates a pod and waits for it: see `create`."""
    create(node, name, *claims, resources=resources)
    wait(node, name)


def delete(node: Node, *names: str) -> None:
    """Deletes pods, and waits until they are gone."""
    for name in names:
        node.api.delete(f"{PODS}/{name}")
    for name in names:
        node.wait_gone("pod", name, timeout=LIMIT)


def delete_claims(node: Node, *names: str) -> None:
    """Deletes claims that no pod uses any more, and waits until they are gone."""
    for name in names:
        node.api.delete(f"{CLAIMS}/{name}")
    for name in names:
        node.wait_gone("resourceclaim", name, timeout=LIMIT)


def devices(node: Node, name: str) -> Mapping[str, str]:
    """Returns the devices that the scheduler has allocated to a claim, by request."""
    results = node.api.get(f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
    return {each["request"]: each["device"] for each in results}


def command(node: Node, name: str, *words: str) -> list[str]:
    """Returns the command line that runs a program in a pod's container: its network, files and control group."""
    enter = ["nsenter", "-t", str(node.container_process(name).pid), "-n", "-m", *words]
    return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(cgroup(node, name)), *enter]


def told_cpus(node: Node, name: str) -> dict[str, str]:
    """Returns the CPUs that a pod's container was told, by the UID of the claim, or UID and request."""
    words = Path(f"/proc/{node.container_process(name).pid}/environ").read_text().split("\0")
    pairs = (word.partition("=") for word in words)
    return {key.removeprefix(prefix): value for key, _, value in pairs if key.startswith(prefix := "DRA_CPUSET_")}


def cgroup(node: Node, name: str) -> Path:
    """Returns the control group of a pod's container; its parent is that of the pod."""
    (line,) = Path(f"/proc/{node.container_process(name).pid}/cgroup").read_text().splitlines()
    return Path("/sys/fs/cgroup", line.removeprefix("0::/"))


def given_cpus(node: Node, name: str) -> CpuSet:
    """Returns the CPUs on which the kernel runs a pod's container."""
    return parse_cpuset((cgroup(node, name) / "cpuset.cpus.effective").read_text().strip())


def given_memory(node: Node, name: str) -> str:
    """Returns the NUMA nodes that a pod's container is limited to; empty if it is not."""
    return (cgroup(node, name) / "cpuset.mems").read_text().strip()
