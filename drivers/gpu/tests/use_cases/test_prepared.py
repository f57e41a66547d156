"""What the containers of each use case get. The fixture checks that the node is afterwards as it was before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.testing.node import mig_minor

Play = Callable[[str], Any]


def slices_set(played: Any) -> list[str]:
    """The time slices that were set, in order."""
    return [call.rpartition(" ")[2] for call in played.harness.effects.calls if "--set-timeslice" in call]


def capability(gpu: int, instance: int, compute: int | None = None) -> str:
    return f"/dev/nvidia-caps/nvidia-cap{mig_minor(gpu, instance, compute)}"


def capabilities(container: Any) -> set[str]:
    return {path for path in container.devices if path.startswith("/dev/nvidia-caps/")}


def test_01_claims_share_a_gpu(play: Play) -> None:
    played = play("01-controlled-sharing")
    held = [device for claim in played.harness.driver.held for device in claim.devices]
    devices = sorted(device.name for device in held)  # pods of both teams have the same names, so claims are counted
    assert devices == ["gpu-0", "gpu-0", "gpu-0", "gpu-1"]
    assert len({device.share_id for device in held}) == 4


def test_02_a_gpu_and_a_vf_below_one_pcie_root(play: Play) -> None:
    assert play("02-complex-constraints").gpus("train/train") == {"/dev/nvidia3"}


def test_03_each_pod_has_its_model_of_gpu(play: Play) -> None:
    played = play("03-several-gpu-types")
    gpus = {name: played.gpus(name) for name in ("train/train", "infer/infer", "anything/demo")}
    assert gpus == {
        "train/train": {"/dev/nvidia2"},
        "infer/infer": {"/dev/nvidia0"},
        "anything/demo": {"/dev/nvidia1"},
    }


def test_04_two_pods_share_a_gpu_in_time_slices(play: Play) -> None:
    played = play("04-time-slicing")
    assert played.gpus("simulation-1/run") == played.gpus("simulation-2/run") == {"/dev/nvidia0"}
    assert slices_set(played) == ["3"]
    played.end()
    assert slices_set(played) == ["3", "0"]


def test_05_two_containers_are_clients_of_one_daemon(play: Play) -> None:
    played = play("05-mps")
    pipes = {played.container(f"chat/{name}").env["CUDA_MPS_PIPE_DIRECTORY"] for name in ("model", "embedding")}
    assert len(pipes) == 1
    assert len(played.harness.effects.running_daemons()) >= 1
    gpu = played.memory.gpus[0].uuid
    assert played.memory.state(gpu).compute_mode is ComputeMode.EXCLUSIVE_PROCESS


def test_06_a_gpu_is_for_a_virtual_machine_or_for_containers(play: Play) -> None:
    played = play("06-vfio")
    assert played.gpus("container/cuda") == {"/dev/nvidia0"}
    machine = played.container("machine-1/virt-launcher").devices
    assert any(path.startswith("/dev/vfio/") for path in machine)
    assert not any(path.startswith("/dev/nvidia") for path in machine)
    assert "machine-2" not in played.prepared
    assert list(played.state()[1].values()) == ["nvidia", "vfio-pci"]


def test_07_monitoring_sees_all_and_holds_none(play: Play) -> None:
    played = play("07-management")
    assert played.gpus("monitor/dcgm-exporter") == {f"/dev/nvidia{minor}" for minor in range(4)}
    assert played.gpus("train/train") == {"/dev/nvidia0"}
    assert played.gpus("batch/batch") == {"/dev/nvidia1"}


def test_08_two_gpus_each_with_its_nic(play: Play) -> None:
    played = play("08-gpu-nic-alignment")
    assert played.gpus("worker-0/train") == {"/dev/nvidia0", "/dev/nvidia1"}
    assert played.gpus("worker-1/train") == {"/dev/nvidia2", "/dev/nvidia3"}


def test_09_two_mig_devices_of_one_gpu(play: Play) -> None:
    played = play("09-mig-alignment")
    state = played.memory.state(played.memory.gpus[1].uuid)
    instances = {instance.row.name: instance.id for instance in state.instances.values()}
    for name, profile in (("model", "3g.20gb"), ("decoder", "1g.5gb")):
        mine = instances[profile]
        assert capabilities(played.container(f"stream/{name}")) == {capability(1, mine), capability(1, mine, 0)}


def test_10_mig_devices_are_created_on_demand(play: Play) -> None:
    played = play("10-dynamic-mig")
    first, second = (played.memory.state(gpu.uuid) for gpu in played.memory.gpus)
    assert sorted((instance.row.name, instance.placement.start) for instance in first.instances.values()) == [
        ("3g.40gb", 0),
        ("3g.40gb", 4),
    ]
    assert (first.mig.current, second.mig.current) == (True, False)
    assert capabilities(played.container("half-1/infer")) != capabilities(played.container("half-2/infer"))
    assert played.gpus("whole/train") == {"/dev/nvidia1"}
    assert "small" not in played.prepared


def test_11_compute_instances_share_memory(play: Play) -> None:
    played = play("11-mig-shared-memory")
    state = played.memory.state(played.memory.gpus[0].uuid)
    left, right = sorted(state.instances.values(), key=lambda instance: instance.placement.start)
    by_container = {
        name: capabilities(played.container(name))
        for name in ("agent/plan", "agent/tools", "worker-1/work", "worker-2/work")
    }
    assert by_container == {
        "agent/plan": {capability(0, left.id), capability(0, left.id, 0)},
        "agent/tools": {capability(0, left.id), capability(0, left.id, 1)},
        "worker-1/work": {capability(0, right.id), capability(0, right.id, 0)},
        "worker-2/work": {capability(0, right.id), capability(0, right.id, 1)},
    }


def test_12_each_container_has_its_own_policy(play: Play) -> None:
    played = play("12-application-policies")
    for replica in ("replica-1", "replica-2"):
        prefill, decode = (played.container(f"{replica}/{name}") for name in ("prefill", "decode"))
        assert "CUDA_MPS_PIPE_DIRECTORY" not in prefill.env
        assert "CUDA_MPS_PIPE_DIRECTORY" in decode.env
        assert played.gpus(f"{replica}/prefill") == {"/dev/nvidia2"}
        assert played.gpus(f"{replica}/decode") == {"/dev/nvidia0"}
    assert slices_set(played) == ["1"]
