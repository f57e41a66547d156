"""What the tests put on the cluster, and what they find on the node and in the API server."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.layout import OWN_CDI_DIRS
from tests.cluster.manifests import JSON, pod_with, request, template
from tests.cluster.pods import logs
from tests.cluster.test_image.release import CLASSES, cdi_dir


def both() -> JSON:
    """Returns the template of claims for one CPU and some memory."""
    cpu = request("cpu", CLASSES["cpu"], capacity={"requests": {"dra.cpu/cpu": "1"}})
    return template("both", [cpu, request("memory", CLASSES["memory"], capacity={"requests": {"size": "64Mi"}})])


def user(name: str = "user", policy: str = "Never") -> JSON:
    found = pod_with(name, both())
    found["spec"]["restartPolicy"] = policy
    return found


def specs(cluster: Cluster) -> list[Path]:
    """Returns the CDI specs of both drivers."""
    return sorted(path for key in OWN_CDI_DIRS for path in cdi_dir(cluster, key).glob("*.json"))


def states(cluster: Cluster) -> dict[str, bytes]:
    """Returns the state files of claims that the drivers hold, by path."""
    found = (cluster.kubelet_dir / "plugins").glob("dra.*/claims*/*.json")
    return {str(path): path.read_bytes() for path in sorted(found)}


def slices(cluster: Cluster, *drivers: str) -> list[JSON]:
    found = cluster.api.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
    return [each for each in found if each["spec"]["driver"] in drivers]


def variables(cluster: Cluster, name: str) -> dict[str, str]:
    words = logs(cluster, name).partition("\n")[0].split("\0")
    return dict(each.split("=", 1) for each in words if "=" in each)


def busy() -> float:
    """Returns how much more this machine has to do than CPUs, at least 1."""
    return max(1.0, max(os.getloadavg()[:2]) / (os.cpu_count() or 1))
