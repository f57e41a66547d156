"""The driver on real GPUs: what it publishes, their health, and a container that computes on the GPU it claims."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from dra_driver_gpu.describe.devices import DRIVER_NAME

from dra_sdk.loader import load_driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.tools.simulator import EmbeddedCluster, RunningPod
from tests.embedded import settings_for
from tests.gpu.conftest import Query
from tests.podman import run_container

ROUNDS = 30
ALL = {"DRA_GPU_DYNAMIC_MIG": "true", "DRA_GPU_PASSTHROUGH": "true"}


@pytest.mark.parametrize("settings", [{}, ALL], ids=["gpus", "all-forms"])
def test_its_slices_name_every_gpu_and_would_be_accepted(
    settings: dict[str, str], smi: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "dra_sdk.cli.main", "discover", "gpu", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stderr)
    assert done.returncode == 0
    devices = [each for item in json.loads(done.stdout)["items"] for each in item["spec"].get("devices", [])]
    kinds = Counter(each["attributes"]["type"]["string"] for each in devices)
    print(kinds)
    found = {each["attributes"]["uuid"]["string"] for each in devices if "uuid" in each["attributes"]}
    assert found == {row["uuid"] for row in smi("uuid")}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started, DriverProcess(load_driver("gpu"), settings_for(started)):
        started.kubelet.wait_for_driver(DRIVER_NAME)
        started.wait_slices(DRIVER_NAME)
        started.create_class("gpu", [f'device.driver == "{DRIVER_NAME}"'])
        yield started


def test_each_gpu_is_reported_healthy(cluster: EmbeddedCluster) -> None:
    (resource_slice,) = cluster.api.list("resourceslices")
    spec = resource_slice["spec"]
    for device in spec["devices"]:
        name = device["name"]
        healthy = cluster.kubelet.wait_for_health(DRIVER_NAME, spec["pool"]["name"], name, "Healthy", timeout=30)
        print(name, cluster.kubelet.health(DRIVER_NAME, spec["pool"]["name"], name))
        assert healthy


def test_a_container_computes_on_the_gpu_that_it_claims(
    cluster: EmbeddedCluster, smi: Query, sum_program: Path, tmp_path: Path
) -> None:
    cluster.create_claim("one", {"gpu": "gpu"})
    pod = cluster.run_pod("adds", ["one"])
    (spec,) = cluster.cdi_dir.glob("*.json")
    print(spec.read_text())
    system = root_file_system(tmp_path / "system", sum_program)

    printed = in_container(cluster, pod, tmp_path, system, "/sum")
    listed = in_container(cluster, pod, tmp_path, system, "nvidia-smi", "-L")

    print(printed, listed)
    (uuid,) = printed.split()
    assert uuid in {row["uuid"] for row in smi("uuid")}
    assert re.findall(r"UUID: (GPU-[^)]+)\)", listed) == [uuid]
    cluster.stop_pod("adds")
    assert not list(cluster.cdi_dir.iterdir())


def test_a_container_without_a_claim_has_no_gpu(cluster: EmbeddedCluster, sum_program: Path, tmp_path: Path) -> None:
    system = root_file_system(tmp_path / "system", sum_program)
    with pytest.raises(AssertionError, match=r"libcuda\.so\.1: cannot open shared object file"):
        run_container(tmp_path / "podman", cluster.cdi_dir, [], system, "/sum")


def test_claims_come_and_go(cluster: EmbeddedCluster) -> None:
    for _ in range(ROUNDS):
        cluster.create_claim("one", {"gpu": "gpu"})
        cluster.run_pod("short", ["one"])
        cluster.stop_pod("short")
        cluster.api.delete("resourceclaims", "one", "default")
    for kind in ("prepare", "unprepare"):
        seconds = [call.seconds for call in cluster.kubelet.records.calls(kind, DRIVER_NAME)]
        assert len(seconds) == ROUNDS
        print(f"{kind}: p50 {1000 * median(seconds):.1f} ms, longest {1000 * max(seconds):.1f} ms")
    assert not list(cluster.cdi_dir.iterdir())


def in_container(cluster: EmbeddedCluster, pod: RunningPod, folder: Path, system: Path, *command: str) -> str:
    names = pod.container_cdi_ids("main")
    return run_container(folder / "podman", cluster.cdi_dir, names, system, *command)


def root_file_system(path: Path, program: Path) -> Path:
    """A directory with the program, and with the libraries of this machine that every container has."""
    path.mkdir()
    shutil.copy(program, path / "sum")
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = [Path(each) for each in re.findall(r"(/\S+)", listed)]
    directory = next(each for each in found if each.name.startswith("libc.so")).parent
    found += [directory / name for name in ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")]
    for library in found:
        target = path / str(library).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    for name in ("dev", "proc", "sys", "tmp", "etc", "run", "usr/bin"):
        (path / name).mkdir(parents=True, exist_ok=True)
    return path
