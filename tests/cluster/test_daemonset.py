"""The DaemonSets of `deploy/` on a real cluster: what a driver in a pod may do, and what it may not.

No image can be pulled here, so the image is busybox with this machine's Python and this repository mounted into it.
The directories of the kubelet and the runtime are those of the cluster. Everything else is as in the files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.driver_process import ROOT
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.image import BUSYBOX
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import claim, pod_with, request

JSON = dict[str, Any]
DEPLOY = ROOT / "deploy"
PYTHON = {Path("/usr"), Path("/lib"), Path("/lib64"), Path("/etc"), Path(sys.base_prefix), Path(sys.prefix), ROOT}
SETTINGS = {"PYTHONPATH": f"{ROOT}:{ROOT}/drivers/cpu:{ROOT}/drivers/gpu", "PYTHONDONTWRITEBYTECODE": "1"}


def daemonset(file: str, cluster: Cluster, **environment: str) -> JSON:
    """Returns the DaemonSet of a file as this cluster can run it."""
    places = {
        "/var/lib/kubelet": str(cluster.kubelet_dir),
        "/var/run/cdi": str(cluster.cdi_dir),
    }
    text = (DEPLOY / file).read_text()
    for usual, here in places.items():
        text = text.replace(usual, here)
    found: JSON = yaml.safe_load(text)
    spec = found["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container["image"], container["command"] = BUSYBOX, [sys.executable, "-m", "dra_sdk.cli.main"]
    container["imagePullPolicy"] = "Never"
    flags = {"DRA_SDK_KUBELET_DIR": places["/var/lib/kubelet"], "DRA_SDK_CDI_DIR": places["/var/run/cdi"]}
    given = {**SETTINGS, **flags, **environment}
    container["env"] = [each for each in container["env"] if each["name"] not in given]
    container["env"] += [{"name": name, "value": value} for name, value in given.items()]
    for number, path in enumerate(sorted(each for each in PYTHON if each.exists())):
        container["volumeMounts"].append({"name": f"python-{number}", "mountPath": str(path), "readOnly": True})
        spec["volumes"].append({"name": f"python-{number}", "hostPath": {"path": str(path)}})
    spec.pop("nodeSelector", None)
    return found


@pytest.fixture
def apply(cluster: Cluster) -> Iterator[Any]:
    """Applies DaemonSets and waits until their pods are ready; removes them after the test."""
    made: set[str] = set()

    def put(found: JSON) -> None:
        name = found["metadata"]["name"]
        made.add(name)
        cluster.apply(found)
        try:
            cluster.kubectl(
                "rollout", "status", f"daemonset/{name}", "--namespace=dra-sdk", f"--timeout={TIMEOUT:.0f}s"
            )
        except Exception as error:
            selected = ("--namespace=dra-sdk", f"--selector=app.kubernetes.io/name={name}")
            said = [
                cluster.kubectl(verb, *more, *selected, check=False) for verb, *more in (["logs"], ["describe", "pod"])
            ]
            raise AssertionError("\n".join(said)) from error

    yield put
    cluster.kubectl("delete", "pods,resourceclaims", "--all", "--wait=true")
    for name in made:
        cluster.kubectl("delete", "daemonset", name, "--namespace=dra-sdk", "--wait=true")
    cluster.kubectl("delete", "pods", "--all", "--namespace=dra-sdk", "--wait=true")


def driver_pods(cluster: Cluster) -> list[str]:
    names = "jsonpath={.items[*].metadata.name}"
    return cluster.kubectl("get", "pods", "--namespace=dra-sdk", "-o", names).split()


def test_the_cpu_driver_serves_pods_and_is_replaced_without_a_gap(cluster: Cluster, apply: Any) -> None:
    found = daemonset("cpu/daemonset.yaml", cluster)
    cluster.kubectl("apply", "-f", str(DEPLOY / "cpu/class.yaml"))
    apply(found)
    (first,) = driver_pods(cluster)
    one = claim("cpus", [request("cpu", "dra.cpu", capacity={"requests": {"dra.cpu/cpu": "1"}})])
    cluster.apply(one, pod_with("user", one, command="tr '\\0' '\\n' < /proc/1/environ; sleep 1000 & wait"))
    cluster.wait_pod("user")
    assert "DRA_CPUSET_" in cluster.kubectl("logs", "user")
    found["spec"]["template"]["metadata"]["annotations"] = {"changed": "yes"}
    apply(found)
    cluster.kubectl("wait", "--for=delete", f"pod/{first}", "--namespace=dra-sdk", f"--timeout={TIMEOUT:.0f}s")
    (second,) = driver_pods(cluster)
    assert second != first
    cluster.kubectl("delete", "pod", "user", "--wait=true")
    assert not list(cluster.cdi_dir.glob("*.json"))
    assert "Traceback" not in cluster.kubectl("logs", "--namespace=dra-sdk", second)


def test_the_gpu_driver_finds_the_gpus_of_the_hosts_root(cluster: Cluster, apply: Any, tmp_path: Path) -> None:
    """A tree with `nvml.yaml` stands for the host's root."""
    (tmp_path / "nvml.yaml").write_bytes((ROOT / "drivers/gpu/dra_driver_gpu/fixtures/l4x4/nvml.yaml").read_bytes())
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("of-this-test\n")
    found = daemonset("gpu/nvidia-daemonset.yaml", cluster)
    (host,) = (each for each in found["spec"]["template"]["spec"]["volumes"] if each["name"] == "host")
    host["hostPath"]["path"] = str(tmp_path)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "host")
    mount["mountPropagation"] = "None"  # the file system of the tree is not shared
    apply(found)
    published = cluster.api.get("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3Dgpu.nvidia.com")
    names = [device["name"] for each in published["items"] for device in each["spec"].get("devices", [])]
    assert names == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
