"""MPS daemons: real processes of a script in place of the control program."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import pytest
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.prepare.mps import MpsDaemon, claim_id, mps_daemons

from dra_sdk import ConfigError, DraError, PermanentError, RetriableError
from dra_sdk.hardware.node_access import SystemEffects
from dra_sdk.testing import claim, request
from dra_sdk.testing.waiting import wait


@pytest.fixture
def mps(config):
    return lambda **limits: config("GpuConfig", strategy="MPS", mpsConfig=limits)


def commands(harness):
    return [
        line for path in harness.node.path("/s/mps").glob("*/log/commands") for line in path.read_text().splitlines()
    ]


def daemons(harness):
    return mps_daemons(harness.nvidia_node)


def revived(harness):
    return [daemon.id for daemon in daemons(harness).wanted() if daemons(harness).revive(daemon)]


class Recorded(SystemEffects):
    """Programs are recorded, not run; each daemon is this process."""

    def __init__(self):
        self.daemons, self.programs = [], []

    def start(self, command, log):
        self.daemons.append(command)
        return os.getpid()

    def run(self, command):
        self.programs.append(command)
        return ""


def recorded(harness):
    """The commands of a daemon's start: the programs that run before and after it, and its own."""
    effects, daemon = Recorded(), MpsDaemon("claim-uid", ["GPU-1"])
    mps_daemons(replace(harness.nvidia_node, effects=effects)).start(daemon)
    (command,) = effects.daemons
    return daemon, command, effects.programs


@pytest.fixture
def impatient(monkeypatch):
    """For daemons that do not answer at all."""
    monkeypatch.setattr("dra_driver_gpu.prepare.mps.ANSWER_SECONDS", 0.3)


def test_a_daemon_with_limits(make_node, mps):
    harness = make_node("H100-80GB")
    asked = claim("gpu", config=mps(defaultActiveThreadPercentage=50, defaultPinnedDeviceMemoryLimit="10Gi"))
    prepared = harness.driver.prepare(asked)
    uuid = harness.memory.gpus[0].uuid
    assert len(harness.effects.running_daemons()) >= 1
    assert commands(harness)[-2:] == [
        "set_default_active_thread_percentage 50",
        "set_default_device_pinned_mem_limit 0 10240M",
    ]
    assert harness.memory.state(uuid).compute_mode is ComputeMode.EXCLUSIVE_PROCESS
    container = prepared.container()
    assert container.env["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert container.mounts["/tmp/nvidia-mps"]["source"].startswith(f"/s/mps/{claim_id(prepared.ref.uid)}-")
    assert container.mounts["/tmp/nvidia-mps"]["options"][0] == "rw"
    assert "/dev/shm" in container.mounts
    harness.driver.unprepare(prepared)
    assert harness.effects.running_daemons() == []
    assert list(harness.node.path("/s/mps").iterdir()) == []
    assert harness.memory.state(uuid).compute_mode is ComputeMode.DEFAULT


def test_limits_of_several_gpus_are_by_their_index_in_the_daemon(make_node, mps):
    harness = make_node("L4", "L4")
    first, second = sorted(gpu.uuid for gpu in harness.memory.gpus)
    limits = {"defaultPinnedDeviceMemoryLimit": "2Gi", "defaultPerDevicePinnedMemoryLimit": {second: "1Gi"}}
    harness.driver.prepare(claim(request("g", count=2), config=mps(**limits)))
    assert commands(harness)[-2:] == [
        "set_default_device_pinned_mem_limit 0 2048M",
        "set_default_device_pinned_mem_limit 1 1024M",
    ]
    (log,) = harness.node.path("/s/mps").glob("*/log/output.log")
    assert f"started for {first},{second} " in log.read_text()


@pytest.mark.parametrize(
    "limits",
    [{"defaultPinnedDeviceMemoryLimit": "900Gi"}, {"defaultPerDevicePinnedMemoryLimit": {"0": "25Gi"}}],
)
def test_a_limit_above_the_memory_of_the_gpu_is_refused(make_node, mps, limits):
    harness = make_node("L4")
    asked = claim("gpu", config=mps(**limits))
    with pytest.raises(PermanentError, match=r"device gpu-0: the limit of \d+Mi in .* exceeds its memory, \d"):
        harness.driver.prepare(asked)
    assert harness.effects.running_daemons() == []
    assert harness.memory.state(harness.memory.gpus[0].uuid).compute_mode is ComputeMode.DEFAULT


def test_devices_that_share_a_configuration_share_a_daemon(make_node, mps):
    harness = make_node("L4", "L4", "L4")
    asked = claim(request("two", count=2), "one").configured(mps(), "two").configured(mps(multiUser=True), "one")
    prepared = harness.driver.prepare(asked, containers={"both": ["two"], "single": ["one"]})
    both, single = (prepared.container(name).mounts["/tmp/nvidia-mps"]["source"] for name in ("both", "single"))
    assert both != single
    started = sorted(path.read_text() for path in harness.node.path("/s/mps").glob("*/log/output.log"))
    uuids = [gpu.uuid for gpu in harness.memory.gpus]
    assert (
        sorted([f"started for {uuids[2]} with -f -M\n", f"started for {','.join(sorted(uuids[:2]))} with -f\n"])
        == started
    )
    harness.driver.unprepare(prepared)


def test_mig_devices_are_removed_after_their_daemon(make_node, config):
    harness = make_node("H100-80GB", dynamic_mig=True)
    asked = claim(request("mig", device_class="mig.nvidia.com"), config=config("MigDeviceConfig", strategy="MPS"))
    prepared = harness.driver.prepare(asked)
    (log,) = harness.node.path("/s/mps").glob("*/log/output.log")
    assert "started for MIG-" in log.read_text()
    harness.driver.unprepare(prepared)
    assert not harness.memory.state(harness.memory.gpus[0].uuid).mig.current


def test_a_daemon_outlives_the_driver_and_is_found_again(make_node, mps):
    harness = make_node("L4")
    prepared = harness.driver.prepare(claim("gpu", config=mps()))
    (daemon_id,) = daemons(harness).ids()
    before = daemons(harness).processes(daemon_id)
    harness.driver.restart()
    assert revived(harness) == []
    assert daemons(harness).processes(daemon_id)[0] == before[0]
    harness.driver.unprepare(prepared)
    assert harness.effects.running_daemons() == []


def test_a_daemon_that_died_is_started_again_with_its_limits(make_node, mps, caplog):
    harness = make_node("L4")
    prepared = harness.driver.prepare(claim("gpu", config=mps(defaultActiveThreadPercentage=10)))
    (log,) = harness.node.path("/s/mps").glob("*/log/commands")
    harness.effects.kill(harness.effects.running_daemons(), force=True)
    wait(lambda: not harness.effects.running_daemons())
    log.unlink()
    stop, plugin = threading.Event(), harness.driver.plugin
    watcher = threading.Thread(target=plugin.dra_watch, args=(harness.node.node, lambda: None, stop))
    watcher.start()
    try:
        wait(lambda: "was started again" in caplog.text)
    finally:
        stop.set()
        watcher.join()
    assert "set_default_active_thread_percentage 10" in commands(harness)
    harness.driver.unprepare(prepared)


def test_a_daemon_that_does_not_start(make_node, mps):
    harness = make_node("L4")
    harness.node.file("/usr/bin/nvidia-cuda-mps-control", "#!/bin/sh\necho no device of mine >&2\nexit 3\n").chmod(
        0o755
    )
    with pytest.raises(RetriableError, match="the MPS daemon ended at once: no device of mine"):
        harness.driver.prepare(claim("gpu", config=mps()))
    assert harness.memory.state(harness.memory.gpus[0].uuid).compute_mode is ComputeMode.DEFAULT
    harness.driver.assert_clean()


def test_a_daemon_that_does_not_answer(make_node, mps):
    harness = make_node("L4", mps_seconds=0.2)
    harness.node.file("/usr/bin/nvidia-cuda-mps-control", '#!/bin/sh\n[ "$1" = -f ] || exit 1\nexec sleep 60\n').chmod(
        0o755
    )
    with pytest.raises(RetriableError, match="the MPS daemon does not answer: its log is empty"):
        harness.driver.prepare(claim("gpu", config=mps()))
    assert harness.effects.running_daemons() == []


def test_a_daemon_that_does_not_answer_is_killed(make_node, mps, impatient):
    harness = make_node("L4")
    prepared = harness.driver.prepare(claim("gpu", config=mps()))
    (pid, *_) = harness.effects.running_daemons()
    os.kill(pid, signal.SIGSTOP)
    harness.driver.unprepare(prepared)
    assert harness.effects.running_daemons() == []


def test_private_shared_memory_is_mounted_for_daemon_and_clients(make_node):
    harness = make_node("L4", mps_shm="private")
    daemon, command, programs = recorded(harness)
    shm = f"{harness.node.root}/s/mps/{daemon.id}/shm"
    assert command.argv[:4] == ["unshare", "--mount", "--propagation", "private"]
    assert command.argv[7:11] == ["sh", shm, "/dev/shm", "--"]
    assert str(programs[0]).startswith("mount -t tmpfs -o rw,nosuid,nodev,noexec,relatime,size=")
    assert programs[0].argv[-1] == shm


@pytest.mark.parametrize(
    ("limits", "why"),
    [({"defaultPerDevicePinnedMemoryLimit": {"7": "1Gi"}}, "'7' is none of requests gpu")],
)
def test_a_limit_for_an_unknown_device_is_an_error(make_node, mps, limits, why):
    harness = make_node("L4")
    with pytest.raises(ConfigError, match=why):
        harness.driver.prepare(claim("gpu", config=mps(**limits)))
    harness.driver.assert_clean()


def test_a_shared_device_cannot_have_a_daemon(make_node, mps):
    harness = make_node("L4", sharing="2")
    with pytest.raises(PermanentError, match="device gpu-0 is shared by claims"):
        harness.driver.prepare(claim("gpu", config=mps()))


def test_mps_can_be_disabled(make_node, mps):
    harness = make_node("L4", mps=False)
    with pytest.raises(PermanentError, match=r"MPS is disabled on this node \(DRA_GPU_MPS\)"):
        harness.driver.prepare(claim("gpu", config=mps()))


def test_the_daemon_of_a_claim_without_state_is_ended(make_node, mps):
    harness = make_node("L4", "L4")
    lost = harness.driver.prepare(claim("gpu", config=mps()))
    next(harness.driver.data.glob("claims/*.json")).unlink()
    harness.driver.restart()
    harness.driver.cluster.claims.pop(lost.ref.uid)
    harness.driver.prepare(claim("gpu"))
    assert harness.effects.running_daemons() == []
    assert harness.memory.state(harness.memory.gpus[0].uuid).compute_mode is ComputeMode.DEFAULT


def test_a_failed_start_can_be_tried_again(make_node, mps):
    harness = make_node("L4")
    asked = harness.driver.allocate(claim("gpu", config=mps()))
    harness.effects.fail_call(1)
    with pytest.raises(DraError, match="injected"):
        harness.driver.prepare(asked)
    harness.driver.unprepare(harness.driver.prepare(asked))


def test_after_a_reboot_a_daemon_is_started_only_when_its_claim_is_prepared(make_node, mps):
    harness = make_node("L4")
    prepared = harness.driver.prepare(claim("gpu", config=mps()))
    harness.effects.kill(harness.effects.running_daemons(), force=True)
    wait(lambda: not harness.effects.running_daemons())
    harness.driver.reboot()
    assert daemons(harness).wanted() == []
    harness.driver.prepare(prepared)
    assert harness.effects.running_daemons()
    harness.driver.unprepare(prepared)


@pytest.mark.parametrize("content", ["", "{}", '{"boot": "x", "what": 1}', '{"boot": "BOOT", "what": 1}'])
def test_a_malformed_file_is_left_out_and_removed(make_node, mps, content):
    harness = make_node("L4")
    harness.node.file("/s/mps/claim-00000/daemon.json", content.replace("BOOT", harness.nvidia_node.boot_id))
    assert daemons(harness).wanted() == []
    harness.driver.prepare(claim("gpu"))
    assert not harness.node.path("/s/mps/claim-00000").exists()


def test_each_mig_device_has_its_own_daemon(make_node, config):
    """CUDA, and so a daemon, uses only the first of several MIG devices."""
    harness = make_node("H100-80GB", dynamic_mig=True)
    limits = {"defaultPerDevicePinnedMemoryLimit": {"b": "2Gi"}}
    asked = claim(*(request(name, device_class="mig.nvidia.com") for name in "ab"))
    shared = config("MigDeviceConfig", strategy="MPS", mpsConfig=limits)
    prepared = harness.driver.prepare(asked.configured(shared), containers={"a": ["a"], "b": ["b"]})
    a, b = (prepared.container(name).mounts["/tmp/nvidia-mps"]["source"] for name in "ab")
    assert a != b
    started = [path.read_text() for path in harness.node.path("/s/mps").glob("*/log/output.log")]
    assert len({text.split()[2] for text in started}) == 2
    assert all("," not in text for text in started)
    (limited,) = [line for line in commands(harness) if "pinned" in line]
    assert limited.endswith(" 2048M")
    harness.driver.unprepare(prepared)
    assert harness.effects.running_daemons() == []


def test_several_mig_devices_of_one_request_cannot_have_mps(make_node, config):
    """A container would be the client of the last device's daemon, and compute on the first device."""
    harness = make_node("H100-80GB", dynamic_mig=True)
    asked = claim(
        request("mig", device_class="mig.nvidia.com", count=2), config=config("MigDeviceConfig", strategy="MPS")
    )
    with pytest.raises(
        PermanentError, match=r"request mig has 2 MIG devices with MPS.*ask for them by several requests"
    ):
        harness.driver.prepare(asked)
    harness.driver.assert_clean()


def test_the_path_of_a_daemons_socket_is_short_enough():
    daemon = MpsDaemon("0b4e7ee2-7a31-4b5c-8d2f-3f1f6a3f7d10", ["GPU-2fa81118-0000-0000-0000-000000000000"])
    path = f"/host/var/lib/kubelet/plugins/gpu.nvidia.com/mps/{daemon.id}/pipe/control_privileged"
    assert len(path) <= 107


def test_programs_of_a_driver_container_run_in_its_root(make_node):
    harness = make_node("L4", driver_root="/run/nvidia/driver", mps_shm="private")
    harness.node.file("/run/nvidia/driver/bin/sh")
    daemon, start, (*_, order) = recorded(harness)
    root, own = f"{harness.node.root}/run/nvidia/driver", f"{harness.node.root}/s/mps/{daemon.id}"
    control = ["chroot", root, "/usr/bin/nvidia-cuda-mps-control"]
    assert start.argv[8:] == [own, f"{root}/mnt", f"{own}/shm", f"{root}/dev/shm", "--", *control, "-f"]
    assert order.argv[8:] == [own, f"{root}/mnt", "--", *control]
    assert {start.env["CUDA_MPS_PIPE_DIRECTORY"], order.env["CUDA_MPS_PIPE_DIRECTORY"]} == {"/mnt/pipe"}
    assert not {"LD_PRELOAD", "LD_LIBRARY_PATH"} & set(start.env)


def test_programs_of_a_mounted_host_run_in_its_root(make_node):
    harness = make_node("L4", mps_shm="private")
    harness.node.file("/bin/sh")
    daemon, command, _ = recorded(harness)
    root = str(harness.node.root)
    assert command.argv[8:11] == [f"{root}/s/mps/{daemon.id}/shm", f"{root}/dev/shm", "--"]
    assert command.env["CUDA_MPS_PIPE_DIRECTORY"] == f"/s/mps/{daemon.id}/pipe"


def test_from_a_bare_directory_a_daemon_finds_its_server_and_libraries(make_node):
    harness = make_node("L4", driver_root="/home/kubernetes/bin/nvidia")
    harness.node.file("/home/kubernetes/bin/nvidia/usr/lib/libc.so.6")
    env = recorded(harness)[1].env
    root = f"{harness.node.root}/home/kubernetes/bin/nvidia"
    assert env["LD_LIBRARY_PATH"] == f"{root}/usr/lib/x86_64-linux-gnu"
    assert env["PATH"].startswith(f"{root}/usr/bin:")


def test_a_command_to_a_daemon_has_five_seconds(make_node):
    _, _, (order,) = recorded(make_node("L4"))
    assert (order.stdin, order.timeout) == ("get_server_list\n", 5.0)


def test_private_shared_memory_from_start_to_end(make_node, mps):
    harness = make_node("L4", mps_shm="private")
    prepared = harness.driver.prepare(claim("gpu", config=mps(defaultActiveThreadPercentage=50)))
    assert prepared.container().mounts["/dev/shm"]["source"].startswith("/s/mps/")
    assert [call for call in harness.effects.calls if call.startswith("run mount")]
    assert commands(harness)[-1] == "set_default_active_thread_percentage 50"
    harness.driver.unprepare(prepared)
    assert harness.effects.running_daemons() == []
