"""`kubectl dra` on a real API server, with an account that may only look: that of the viewer's role of the chart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.manifests import Chart
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import claim, container, device_class, pod, request

DRIVER = "view.example.com"
NAMESPACE = "default"
VIEWER = "viewer"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def viewer(cluster: Cluster) -> Iterator[Path]:
    """A kubeconfig of an account that has the viewer's role and nothing else."""
    rendered = Chart().render({"drivers": {"view": {"driverName": DRIVER}}})
    (role,) = (each.object for each in rendered if each.object["metadata"]["name"] == "dra-sdk-viewer")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": VIEWER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dra-sdk-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": VIEWER, "namespace": NAMESPACE}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": VIEWER, "namespace": NAMESPACE}}
    made = [role, account, binding, device_class("view", DRIVER)]
    cluster.apply(*made)
    try:
        kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, VIEWER)
        # The API server learns of a binding a moment after it is stored.
        cluster.wait_until(lambda: may(cluster, kubeconfig, "watch", "pods"), "the viewer's role to count")
        yield kubeconfig
    finally:
        for each in [*reversed(made), slices(cluster)]:
            cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=json.dumps(each))


@pytest.fixture
def start(cluster: Cluster, viewer: Path) -> Iterator[Start]:
    """Starts `kubectl dra` with the viewer's account, as kubectl finds it on PATH."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(viewer)}
        command = [str(cluster.kubectl_program), "dra", *arguments]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment))
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.communicate()


def may(cluster: Cluster, kubeconfig: Path, verb: str, resource: str) -> bool:
    """Returns whether an account may do this, as the API server says."""
    said = cluster.kubectl(f"--kubeconfig={kubeconfig}", "auth", "can-i", verb, resource, check=False)
    answer = said.split()[-1]
    assert answer in {"yes", "no"}, said
    return answer == "yes"


def slices(cluster: Cluster) -> dict[str, Any]:
    spec = {
        "driver": DRIVER,
        "nodeName": cluster.node_name,
        "pool": {"name": cluster.node_name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "one"}],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "view"}, "spec": spec}


def test_a_viewer_plans_watches_and_changes_nothing(cluster: Cluster, viewer: Path, start: Start) -> None:
    cluster.apply(claim("wanted", [request("thing", "view")]))
    use = {"name": "thing", "resourceClaimName": "wanted"}
    cluster.apply(pod("waits", [use], container("main", {"name": "thing"})))
    try:
        watching = start("explain", "--pod", "waits", "--watch", "--timeout", str(TIMEOUT), "-o", "json")
        assert watching.stdout is not None
        first = watching.stdout.readline() + watching.stdout.readline()
        assert first.strip().startswith("["), watching.communicate(timeout=TIMEOUT)
        assert watching.poll() is None, "the pod has no device yet"
        cluster.apply(slices(cluster))
        rest, said = watching.communicate(timeout=TIMEOUT)
        assert watching.returncode == 0, said
        assert '"satisfiable": true' in rest
        simulated, said = start("simulate", "-l", "nothing!=here", "-n", NAMESPACE).communicate(timeout=TIMEOUT)
        assert f"{DRIVER}/{cluster.node_name}/one" in simulated, said
        shown = start("top", "--driver", DRIVER, "-o", "json")
        found = json.loads(shown.communicate(timeout=TIMEOUT)[0])
        assert [each["device"] for each in found] == ["one"]
        for verb, resource in (("create", "pods"), ("delete", "resourceclaims"), ("get", "secrets")):
            assert not may(cluster, viewer, verb, resource), (verb, resource)
    finally:
        cluster.kubectl("delete", "pod", "waits", "--grace-period=0", "--force", check=False)
        cluster.kubectl("delete", "resourceclaim", "wanted", "--wait=false", check=False)


def test_what_an_account_may_not_read_is_told_in_one_sentence(cluster: Cluster, start: Start) -> None:
    cluster.kubectl("delete", "clusterrolebinding", VIEWER)

    def refused() -> str | None:
        done = start("top")
        said = done.communicate(timeout=TIMEOUT)[1]
        return said if done.returncode == 2 else None

    said = cluster.wait_until(refused, "the API server to refuse the account")
    assert re.fullmatch(r"dra-sdk: (list|get) \w+: the API server answered 403 Forbidden: [^\n]+\n", said), said
