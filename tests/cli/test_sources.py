"""`--from-cluster`, with the embedded API server."""

from __future__ import annotations

import pytest

from dra_sdk.tools.simulator import EmbeddedCluster
from tests.cli.commands import runner
from tests.tools.scheduling.cluster.objects import claim, device_class, gpus, pod


@pytest.fixture
def cluster(socket_dir):
    with EmbeddedCluster("node-a", directory=socket_dir) as found:
        yield found


def create(cluster, plural, obj):
    metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
    cluster.api.create(plural, obj | {"metadata": metadata})


def test_the_objects_of_a_running_cluster_are_read(cluster, capsys):
    create(cluster, "deviceclasses", device_class())
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    create(cluster, "resourceclaims", claim("c"))
    user = pod("p", claims=["c"])
    user["spec"]["containers"] = [{"name": "main", "image": "x"}]
    create(cluster, "pods", user)
    result = runner(capsys)("simulate", "--from-cluster", "--kubeconfig", cluster.kubeconfig)
    assert result.status == 0, result.err
    assert result.cells == [["p", "node-a", "c", "gpu", "gpu.example.com/node-a/gpu-0"]]
    stored = cluster.api.get("resourceclaims", "c", "default")
    assert "allocation" not in stored.get("status", {})


def test_files_are_added_to_the_running_cluster(cluster, capsys, tmp_path):
    create(cluster, "deviceclasses", device_class())
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    (tmp_path / "new.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: new}\n"
        "spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]}}\n"
    )
    flags = ("--from-cluster", "--kubeconfig", cluster.kubeconfig, "--server-version", "1.36")
    result = runner(capsys)("simulate", tmp_path / "new.yaml", *flags)
    assert result.status == 1
    assert "Would a new node help? No" in result.out


def test_a_cluster_that_does_not_answer_is_an_error(cluster, capsys):
    cluster.server.stop()
    result = runner(capsys)("simulate", "--from-cluster", "--kubeconfig", cluster.kubeconfig)
    assert result.status == 2
    assert result.err.startswith("dra-sdk: ")
    assert "Traceback" not in result.err
