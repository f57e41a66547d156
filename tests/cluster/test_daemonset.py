"""The DaemonSets of the chart on a real cluster: what a driver in a pod may do, and what it may not.

No image can be pulled here, so the image is busybox with this machine's Python and this repository mounted into it.
The directories of the kubelet and the runtime are those of the cluster. Everything else is as the chart has it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from dra_sdk.cli.main import main
from dra_sdk.tools.manifests import Chart
from tests.cluster.deployed import NAMESPACE, release, runnable
from tests.cluster.driver_process import ROOT
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.image import BUSYBOX
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.pods import allocated, claim_of, cpus_of, wait_failure
from tests.cluster.test_cpu_pinning import ALL, delete, run_claiming, run_unclaimed, wait_cpus
from tests.cluster.test_device_plugin import Plugin
from tests.template.virtual_environment import pip

JSON = dict[str, Any]


def driver_objects(key: str, cluster: Cluster, **fields: Any) -> list[JSON]:
    """Returns the objects of one of the chart's drivers as this cluster can run it; `fields` change its entry."""
    return release(runnable(cluster, key, **fields))


def daemonset(objects: list[JSON]) -> JSON:
    (found,) = (each for each in objects if each["kind"] == "DaemonSet")
    return found


def host_volume(objects: list[JSON]) -> tuple[JSON, JSON]:
    """Returns the volume of the host's root, and the container. No file system of this machine need be shared."""
    spec = daemonset(objects)["spec"]["template"]["spec"]
    (host,) = (each for each in spec["volumes"] if each["name"] == "host")
    (container,) = spec["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "host")
    mount["mountPropagation"] = "None"
    return host, container


@pytest.fixture
def apply(cluster: Cluster) -> Iterator[Any]:
    """Applies the objects of drivers and waits until their pods are ready; removes them after the test."""
    made: dict[tuple[str, str], JSON] = {}

    def put(objects: list[JSON]) -> None:
        made.update({(each["kind"], each["metadata"]["name"]): each for each in objects})
        name = daemonset(objects)["metadata"]["name"]
        cluster.apply(*objects)
        selected = (f"--namespace={NAMESPACE}", f"--selector=app.kubernetes.io/name={name}")
        status = ("rollout", "status", f"daemonset/{name}", f"--namespace={NAMESPACE}", f"--timeout={TIMEOUT:.0f}s")
        try:
            cluster.kubectl(*status)
        except Exception as error:
            said = [
                cluster.kubectl(verb, *more, *selected, check=False) for verb, *more in (["logs"], ["describe", "pod"])
            ]
            raise AssertionError("\n".join(said)) from error

    yield put
    cluster.kubectl("delete", "pods,resourceclaims", "--all", "--wait=true")
    for (kind, name), found in made.items():
        if kind not in {"Namespace", "DeviceClass"}:  # other tests use them
            where = [f"--namespace={NAMESPACE}"] if "namespace" in found["metadata"] else []
            cluster.kubectl("delete", kind, name, *where, "--wait=true")
    cluster.kubectl("delete", "pods", "--all", f"--namespace={NAMESPACE}", "--wait=true")
    cluster.kubectl("delete", "resourceslices", "--all")  # the kubelet would take 30 s, and the next test may not wait
    for directory in (cluster.kubelet_dir / "plugins_registry").iterdir():  # as who removes a driver for good
        shutil.rmtree(directory)


def driver_pods(cluster: Cluster) -> list[str]:
    names = "jsonpath={.items[*].metadata.name}"
    return cluster.kubectl("get", "pods", "--namespace=dra-sdk", "-o", names).split()


def test_the_cpu_driver_serves_pods_and_is_replaced_without_a_gap(cluster: Cluster, apply: Any) -> None:
    found = driver_objects("cpu", cluster)
    apply(found)
    (first,) = driver_pods(cluster)
    one = claim("cpus", [request("cpu", "dra.cpu", capacity={"requests": {"dra.cpu/cpu": "1"}})])
    cluster.apply(one, pod_with("user", one, command="tr '\\0' '\\n' < /proc/1/environ; sleep 1000 & wait"))
    cluster.wait_pod("user")
    assert "DRA_CPUSET_" in cluster.kubectl("logs", "user")
    assert len(cpus_of(cluster, "user")) == 1  # pinned by NRI
    apply(driver_objects("cpu", cluster, podAnnotations={"changed": "yes"}))
    cluster.kubectl("wait", "--for=delete", f"pod/{first}", "--namespace=dra-sdk", f"--timeout={TIMEOUT:.0f}s")
    (second,) = driver_pods(cluster)
    assert second != first
    cluster.kubectl("delete", "pod", "user", "--wait=true")
    assert not list(cluster.cdi_dir.glob("*.json"))
    assert "Traceback" not in cluster.kubectl("logs", "--namespace=dra-sdk", second)


CGROUPS: JSON = {"path": "/sys/fs/cgroup", "access": "ReadWrite"}


@pytest.mark.parametrize("mounts", [[CGROUPS], []], ids=["mounted", "not-mounted"])
def test_running_containers_get_a_cpu_back_by_the_hosts_cgroups_and_without_its_processes(
    cluster: Cluster, apply: Any, mounts: list[JSON]
) -> None:
    found = driver_objects("cpu", cluster, hostPaths=mounts, env={"DRA_CPU_SHARED_POOL": "optional"})
    assert "hostPID" not in daemonset(found)["spec"]["template"]["spec"]
    apply(found)
    run_unclaimed(cluster, "before")
    mine = run_claiming(cluster, "mine")
    wait_cpus(cluster, "before", ALL - mine)  # by what containerd is told while it creates the other container
    delete(cluster, "mine")
    cluster.wait_until(lambda: not list(cluster.cdi_dir.glob("*.json")), "the claim is unprepared")
    if mounts:
        wait_cpus(cluster, "before", ALL)
    else:
        said = "mount the host's /sys/fs/cgroup into the driver"
        selected = ("logs", f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/name=dra-cpu", "--tail=-1")
        cluster.wait_until(lambda: said in cluster.kubectl(*selected), "the driver says what it lacks")
        assert cpus_of(cluster, "before") == ALL - mine


def bridge_objects(cluster: Cluster, directory: str, *left_out: str) -> list[JSON]:
    """Returns the objects of the bridge as the chart has them, with another directory, and without some mounts."""
    mounts = [
        mount for mount in Chart().defaults["drivers"]["device-plugin"]["hostPaths"] if mount["path"] not in left_out
    ]
    mounts[-1] = {**mounts[-1], "path": directory}
    env = {"DRA_PLUGIN_DIRECTORY": directory}
    return driver_objects("device-plugin", cluster, hostPaths=mounts, env=env)


@pytest.mark.parametrize("left_out", [[], ["/dev"]], ids=["mounted", "not-mounted"])
def test_the_bridge_gives_device_nodes_without_the_hosts_root(
    cluster: Cluster, apply: Any, tmp_path: Path, left_out: list[str]
) -> None:
    with TemporaryDirectory(prefix="dra-") as directory:
        found = bridge_objects(cluster, directory, *left_out)
        spec = daemonset(found)["spec"]["template"]["spec"]
        assert "/" not in {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
        apply(found)
        plugin = Plugin(cluster, Path(directory), tmp_path)
        try:
            one = claim("thing", [request("thing", "plugin.dra.dev")])
            cluster.apply(one, pod_with("user", one, command="ls /dev; sleep 1000 & wait"))
            if left_out:
                wait_failure(cluster, "user", "is not there, or the bridge's pod does not have it below /host")
            else:
                cluster.wait_pod("user")
                assert "thing" in cluster.kubectl("logs", "user")
            cluster.kubectl("delete", "pods,resourceclaims", "--all", "--wait=true")
        finally:
            plugin.end()


@pytest.mark.parametrize(
    ("privileged", "fields"),
    [(True, {}), (False, {"env": {"DRA_GPU_MPS": "false"}, "runtimeClassName": ""})],
    ids=["privileged", "unprivileged"],
)
def test_the_gpu_driver_finds_the_gpus_of_the_hosts_root(
    cluster: Cluster, apply: Any, tmp_path: Path, privileged: bool, fields: JSON
) -> None:
    """A fixture stands for the host's root."""
    (tmp_path / "nvml.yaml").write_bytes((ROOT / "drivers/gpu/dra_driver_gpu/fixtures/l4x4/nvml.yaml").read_bytes())
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("of-this-test\n")
    found = driver_objects("gpu", cluster, nodeSelector=None, run="dra_driver_gpu.fixtures:FixtureDriver", **fields)
    host, container = host_volume(found)
    host["hostPath"]["path"] = str(tmp_path)
    assert container["securityContext"].get("privileged", False) is privileged
    (tmp_path / str(cluster.kubelet_dir).lstrip("/") / "plugins/gpu.nvidia.com").mkdir(parents=True)
    apply(found)
    published = cluster.api.get("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3Dgpu.nvidia.com")
    names = [device["name"] for each in published["items"] for device in each["spec"].get("devices", [])]
    assert names == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


def test_a_new_driver_of_the_template_serves_its_sample_pod(
    cluster: Cluster, apply: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author has put in a subsystem that this machine has. The claim is for /dev/kmsg, as no container has it."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my-driver", "--kind", "file"]) == 0
    source, site = tmp_path / "my-driver/my_driver/driver.py", tmp_path / "site"
    source.write_text(re.sub("^SUBSYSTEM = .*$", 'SUBSYSTEM = "mem"', source.read_text(), flags=re.MULTILINE))
    pip("install", "--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--target", site, source.parents[1])
    deploy = tmp_path / "my-driver/deploy"
    entry = yaml.safe_load((deploy / "values.yaml").read_text())["drivers"]["my-driver"]
    del entry["image"]
    fields = {**entry, "hostPaths": [{"path": str(site)}], "env": {"PYTHONPATH": f"{ROOT}:{site}"}}
    found = driver_objects("my-driver", cluster, **fields)
    host_volume(found)
    apply(found)
    device_class = yaml.safe_load((deploy / "class.yaml").read_text())
    kmsg = f'device.attributes["{entry["driverName"]}"].kernelName == "kmsg"'
    device_class["spec"]["selectors"].append({"cel": {"expression": kmsg}})
    template, pod, _ = yaml.safe_load_all((deploy / "claims.yaml").read_text())
    pod["spec"]["containers"][0]["image"] = BUSYBOX
    power = Path("/sys/class/mem/kmsg/power/control")
    before = power.read_text()
    cluster.apply(device_class, template, pod)
    cluster.wait_pod("user")
    assert [each["device"] for each in allocated(cluster, claim_of(cluster, "user"))] == ["kmsg"]
    cluster.wait_until(lambda: " kmsg\n" in cluster.kubectl("logs", "user", check=False), "/dev/kmsg in the container")
    assert power.read_text() == "on\n"
    cluster.kubectl("delete", "pod", "user", "--wait=true", "--grace-period=1")
    cluster.kubectl("delete", "resourceclaimtemplate", "one")
    assert (power.read_text(), list(cluster.cdi_dir.glob("*.json"))) == (before, [])
