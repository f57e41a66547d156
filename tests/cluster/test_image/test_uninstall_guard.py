"""Uninstalling, or an upgrade that drops a driver, while a pod has its devices, by Helm, with the drivers' image."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.helm import ensure_helm
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.pods import JSON
from tests.cluster.test_image.release import CLASSES, NAME, NAMESPACE, Release, values

CHART = Path(__file__).parents[3] / "deploy/chart"
GUARD = f"{NAME}-claims-held"
GUARD_OF_UPGRADES = f"{NAME}-dropped-claims-held"
KINDS = "jobs,pods,serviceaccounts,clusterroles,clusterrolebindings,daemonsets"
OWN = f"--selector=app.kubernetes.io/instance={NAME}"
WAIT = ("--wait", f"--timeout={TIMEOUT:.0f}s")
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def helm(cluster: Cluster, installed: Release, users: None, tmp_path: Path) -> Iterator[Helm]:
    """Runs Helm, on a cluster on which these drivers are not installed; no release of it stays."""
    installed.remove()
    program = ensure_helm(Cache.from_env(), Progress())

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        flags = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE]
        home = {"HOME": str(tmp_path)}
        return subprocess.run([program, *words, *flags], capture_output=True, text=True, check=False, env=home)

    yield run
    cluster.kubectl("delete", "pods,resourceclaims", "--all", "--wait=true")
    run("uninstall", NAME, "--ignore-not-found", *WAIT)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true")


def write(file: Path, values: JSON) -> str:
    """Writes a file of values; returns its path."""
    file.write_text(json.dumps(values))
    return str(file)


def test_helm_removes_no_driver_whose_devices_claims_have(cluster: Cluster, helm: Helm, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values(cluster, "one") | {"namespace": {"create": False}}))
    installed = helm("install", NAME, str(CHART), "--create-namespace", "--values", str(file), *WAIT)
    assert installed.returncode == 0, installed.stderr
    assert "dra-sdk claims dra.cpu dra.memory" in installed.stdout
    assert GUARD not in cluster.kubectl("get", KINDS, "--all-namespaces", OWN, "-o", "name")
    one = claim("cpus", [request("cpu", CLASSES["cpu"], capacity={"requests": {"dra.cpu/cpu": "1"}})])
    cluster.apply(one, pod_with("user", one))
    cluster.wait_pod("user")

    for kept, dropped in (("cpu", "memory"), ("memory", "cpu")):
        given = json.loads(file.read_text())
        given["drivers"].pop(dropped)
        upgraded = helm("upgrade", NAME, str(CHART), "--values", write(tmp_path / f"{kept}.json", given), *WAIT)
        left = cluster.kubectl("get", "daemonsets", f"--namespace={NAMESPACE}", "-o", "name").split()
        assert left == ["daemonset.apps/dra-cpu"]
        if dropped == "memory":
            assert upgraded.returncode == 0, upgraded.stderr
            assert GUARD_OF_UPGRADES not in cluster.kubectl("get", KINDS, "--all-namespaces", OWN, "-o", "name")
    assert upgraded.returncode != 0
    assert GUARD_OF_UPGRADES in upgraded.stderr
    assert "default/cpus for user: dra.cpu/" in upgraded.stdout + upgraded.stderr

    cluster.kubectl("delete", "job", GUARD_OF_UPGRADES, f"--namespace={NAMESPACE}")  # it stays for an hour
    helm("upgrade", NAME, str(CHART), "--values", str(file), *WAIT)
    refused = helm("uninstall", NAME, *WAIT)
    assert refused.returncode != 0
    assert GUARD in refused.stderr
    assert "default/cpus for user: dra.cpu/" in refused.stdout + refused.stderr
    assert "no claim has devices of dra.memory" in refused.stdout + refused.stderr
    assert "daemonset.apps/dra-cpu" in cluster.kubectl("get", "daemonsets", f"--namespace={NAMESPACE}", "-o", "name")
    assert "clusterrole" not in cluster.kubectl(
        "get", "clusterroles", "-o", "name", f"--field-selector=metadata.name={GUARD}"
    )

    cluster.kubectl("delete", "pod", "user", "--wait=true")
    cluster.kubectl("delete", "resourceclaim", "cpus", "--wait=true")
    removed = helm("uninstall", NAME, *WAIT)
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert cluster.kubectl("get", KINDS, "--all-namespaces", OWN, "-o", "name") == ""
