"""Pods on the node of the virtual machine, and what their containers got, read from the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.manifests import claim, container, pod, request
from tests.lab.harness.node import LIMIT, Node

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def create_claim(node: Node, name: str, cpus: int, where: str = "true") -> None:
    """Creates a claim of CPUs of one NUMA node; `where` is a CEL expression that the device must fulfil."""
    wanted: JSON = {"capacity": {"requests": {"dra.cpu/cpu": str(cpus)}}, "selectors": [{"cel": {"expression": where}}]}
    node.api.create(CLAIMS, claim(name, [request("cpu", "dra.cpu", **wanted)]))


def create(node: Node, name: str, *claims: str, resources: JSON | None = None) -> None:
    """Creates a pod with one container, which uses these claims. It runs again after a boot."""
    uses = [{"name": each, "resourceClaimName": each} for each in claims]
    main = container("main", *({"name": each} for each in claims))
    main["resources"].update(resources or {})
    made = pod(name, uses, main)
    made["spec"]["restartPolicy"] = "Always"
    made["spec"]["dnsPolicy"] = "Default"
    node.api.create(PODS, made)


def wait(node: Node, name: str) -> None:
    """Waits until a pod runs and is ready."""
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


def given_cpus(node: Node, name: str) -> dict[str, str]:
    """Returns the CPUs that a pod's container was told, by the UID of the claim."""
    words = Path(f"/proc/{node.container_process(name).pid}/environ").read_text().split("\0")
    pairs = (word.partition("=") for word in words)
    return {key.removeprefix(prefix): value for key, _, value in pairs if key.startswith(prefix := "DRA_CPUSET_")}


def cgroup(node: Node, name: str) -> Path:
    """Returns the control group of a pod's container; its parent is that of the pod."""
    (line,) = Path(f"/proc/{node.container_process(name).pid}/cgroup").read_text().splitlines()
    return Path("/sys/fs/cgroup", line.removeprefix("0::/"))
