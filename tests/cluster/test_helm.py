"""The chart on a real cluster by Helm itself: install, upgrade, rollback, uninstall."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk.tools.manifests import Chart
from tests.cluster.deployed import runnable
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.helm import ensure_helm
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import claim, pod_with, request
from tests.tools.manifests.switches import SWITCHES

CHART = Path(__file__).parents[2] / "deploy/chart"
RELEASE = NAMESPACE = "by-helm"
CLASS = {"name": "helm-cpus", "expression": 'device.driver == "dra.cpu"'}
KINDS = (
    "daemonsets,serviceaccounts,clusterroles,clusterrolebindings,deviceclasses,networkpolicies,configmaps,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings,priorityclasses"
)
OWN = f"--selector=app.kubernetes.io/instance={RELEASE}"
Helm = Callable[..., str]


@pytest.fixture
def helm(cluster: Cluster, tmp_path: Path) -> Iterator[Helm]:
    """Runs Helm on the cluster; removes the release after the test."""
    program = ensure_helm(Cache.from_env(), Progress())
    places = {"HOME": str(tmp_path)}

    def run(*words: str, check: bool = True) -> str:
        flags = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE]
        done = subprocess.run([program, *words, *flags], capture_output=True, text=True, check=False, env=places)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout

    yield run
    cluster.kubectl("delete", "pods,resourceclaims", "--all", "--wait=true")
    run("uninstall", RELEASE, "--ignore-not-found", "--wait")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true")
    for directory in (cluster.kubelet_dir / "plugins_registry").iterdir():
        shutil.rmtree(directory)


def values(cluster: Cluster, folder: Path, **fields: Any) -> str:
    """Returns a file of values with every object but those of the Prometheus operator, which has no CRDs here."""
    found = runnable(cluster, "cpu", deviceClasses=[CLASS], **fields) | {
        "uninstallGuard": {"create": False},  # its pod has no mounts, so it needs an image with the driver: test_image
        "namespace": {"create": False},  # Helm keeps its own records there before it makes any object
        "monitoring": {"dashboard": True},
        "networkPolicy": {"create": True},
        "priorityClass": {"create": True, "name": "dra-drivers"},
    }
    file = folder / "values.json"
    file.write_text(json.dumps(found))
    return str(file)


def left(cluster: Cluster) -> list[str]:
    """Returns the objects of the release that the API server has."""
    return cluster.kubectl("get", KINDS, "--all-namespaces", OWN, "-o", "name").split()


def test_a_release_is_installed_upgraded_rolled_back_and_removed(cluster: Cluster, helm: Helm, tmp_path: Path) -> None:
    wait = ("--wait", f"--timeout={TIMEOUT:.0f}s")
    helm("install", RELEASE, str(CHART), "--create-namespace", "--values", values(cluster, tmp_path), *wait)
    assert len({each.partition("/")[0] for each in left(cluster)}) == len(KINDS.split(","))
    one = claim("cpus", [request("cpu", "helm-cpus", capacity={"requests": {"dra.cpu/cpu": "1"}})])
    cluster.apply(one, pod_with("user", one))
    cluster.wait_pod("user")

    changed = values(cluster, tmp_path, podAnnotations={"example.com/changed": "yes"}, deviceStatus=True)
    helm("upgrade", RELEASE, str(CHART), "--values", changed, *wait)
    assert annotations(cluster) == {"example.com/changed": "yes"}
    assert "associated-node:patch" in cluster.kubectl("get", "clusterrole", "dra-cpu", "-o", "yaml")
    helm("rollback", RELEASE, "1", *wait)
    assert annotations(cluster) == {}
    assert "associated-node:patch" not in cluster.kubectl("get", "clusterrole", "dra-cpu", "-o", "yaml")

    cluster.kubectl("delete", "pod", "user", "--wait=true")
    cluster.kubectl("delete", "resourceclaim", "--all", "--wait=true")
    assert not list(cluster.cdi_dir.glob("*.json"))
    helm("uninstall", RELEASE, *wait)
    assert left(cluster) == []
    slices = "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3Ddra.cpu"
    cluster.wait_until(lambda: not cluster.api.get(slices)["items"], "no slices of dra.cpu")
    assert [each.name for each in (cluster.kubelet_dir / "plugins_registry").iterdir()] == ["dra.cpu"]
    assert not list((cluster.kubelet_dir / "plugins_registry/dra.cpu").iterdir())


def annotations(cluster: Cluster) -> dict[str, str]:
    """Returns the annotations of the driver's pods by hand, without those that others add."""
    found = json.loads(cluster.kubectl("get", "daemonset", "dra-cpu", f"--namespace={NAMESPACE}", "-o", "json"))
    return dict(found["spec"]["template"]["metadata"].get("annotations", {}))


def test_values_that_the_chart_does_not_take_are_refused(cluster: Cluster, helm: Helm, tmp_path: Path) -> None:
    wrong = values(cluster, tmp_path, hostRoot="all")
    helm("install", RELEASE, str(CHART), "--create-namespace", "--values", wrong, check=False)
    assert left(cluster) == []


@pytest.mark.parametrize("name", SWITCHES)
def test_the_api_server_takes_every_object_of_every_switch(cluster: Cluster, name: str) -> None:
    """Without those of the Prometheus operator, cert-manager and OpenShift, which have no CRDs here."""
    unknown = {"PodMonitor", "PrometheusRule", "Certificate", "SecurityContextConstraints"}
    found = [each.text for each in Chart().render(SWITCHES[name], namespace="default")]
    objects = [each for each in found if yaml.safe_load(each)["kind"] not in {*unknown, "Namespace"}]
    said = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input="\n---\n".join(objects))
    assert len(said.splitlines()) == len(objects)
