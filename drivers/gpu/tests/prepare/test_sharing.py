"""Time slices and compute mode, of one claim and of several."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_gpu.nvml.memory import fake_gpu
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.testing import write_tools

from dra_sdk import DraError, PermanentError, RetriableError
from dra_sdk.testing import claim, request

SHARE = request("gpu", capacity={"memory": "1Gi"})


def mode(rig, index=0):
    return rig.memory.state(rig.memory.gpus[index].uuid).compute_mode


def slices(rig):
    directory = rig.node.path("/run/time-slices")
    return {path.name: path.read_text().strip() for path in directory.glob("*")} if directory.exists() else {}


def sliced(config, interval):
    return config("GpuConfig", strategy="TimeSlicing", timeSlicingConfig={"interval": interval})


@pytest.mark.parametrize(("interval", "number"), [("Short", "1"), ("Medium", "2"), ("Long", "3")])
def test_a_time_slice_is_set_and_reset(make_gpus, config, interval, number):
    rig = make_gpus("H100-80GB")
    uuid = rig.memory.gpus[0].uuid
    prepared = rig.driver.prepare(claim("gpu", config=sliced(config, interval)))
    assert rig.effects.calls == [f"run nvidia-smi compute-policy -i {uuid} --set-timeslice {number}"]
    assert slices(rig) == {uuid: number}
    rig.driver.unprepare(prepared)
    assert rig.effects.calls[1:] == [f"run nvidia-smi compute-policy -i {uuid} --set-timeslice 0"]
    assert slices(rig) == {}


@pytest.mark.parametrize("time_slicing", [{}, {"interval": None}, {"interval": "Default"}, None])
def test_the_default_time_slice_is_not_reset(make_gpus, config, time_slicing):
    rig = make_gpus("H100-80GB")
    chosen = {} if time_slicing is None else {"timeSlicingConfig": time_slicing}
    prepared = rig.driver.prepare(claim("gpu", config=config("GpuConfig", strategy="TimeSlicing", **chosen)))
    assert rig.effects.calls[0].endswith("--set-timeslice 0")
    rig.driver.unprepare(prepared)
    assert len(rig.effects.calls) == 1


def test_without_configuration_nothing_changes(make_gpus):
    rig = make_gpus("H100-80GB")
    rig.memory.state(rig.memory.gpus[0].uuid).compute_mode = ComputeMode.EXCLUSIVE_PROCESS
    rig.driver.unprepare(rig.driver.prepare(claim("gpu")))
    assert rig.effects.calls == []
    assert mode(rig) is ComputeMode.EXCLUSIVE_PROCESS


def test_the_compute_mode_is_restored(make_gpus, config):
    rig = make_gpus("H100-80GB")
    rig.memory.state(rig.memory.gpus[0].uuid).compute_mode = ComputeMode.EXCLUSIVE_PROCESS
    prepared = rig.driver.prepare(claim("gpu", config=sliced(config, "Short")))
    assert mode(rig) is ComputeMode.DEFAULT
    rig.driver.restart()
    rig.driver.unprepare(prepared)
    assert mode(rig) is ComputeMode.EXCLUSIVE_PROCESS


def test_mig_devices_have_no_time_slices(make_gpus, config):
    rig = make_gpus("H100-80GB", dynamic_mig=True)
    asked = claim(
        request("mig", device_class="mig.nvidia.com"), config=config("MigDeviceConfig", strategy="TimeSlicing")
    )
    rig.driver.unprepare(rig.driver.prepare(asked))
    assert rig.effects.calls == []


@pytest.mark.parametrize("interval", ["Default", "Short"])
def test_gpus_before_volta_have_only_the_default_time_slice(make_gpus, config, interval):
    old = fake_gpu("T4")
    rig = make_gpus(replace(old, model=replace(old.model, compute_capability=(6, 1))))
    asked = claim("gpu", config=sliced(config, interval))
    if interval == "Default":
        rig.driver.prepare(asked)
        assert rig.effects.calls == []
    else:
        with pytest.raises(PermanentError, match=r"time slices need compute capability 7.0"):
            rig.driver.prepare(asked)


def test_several_claims_with_the_same_configuration(make_gpus, config):
    rig = make_gpus("H100-80GB", sharing="3")
    first, second = (rig.driver.prepare(claim(SHARE, config=sliced(config, "Long"))) for _ in range(2))
    assert first.names == second.names == ["gpu-0"]
    assert len(rig.effects.calls) == 1
    rig.driver.unprepare(first)
    assert list(slices(rig).values()) == ["3"]
    rig.driver.restart()
    rig.driver.unprepare(second)
    assert slices(rig) == {}
    rig.driver.assert_clean()


@pytest.mark.parametrize("other", [None, "Short"])
def test_several_claims_with_different_configurations(make_gpus, config, other):
    rig = make_gpus("H100-80GB", sharing="3")
    first = rig.driver.prepare(claim(SHARE, config=sliced(config, "Long")))
    asked = claim(SHARE, config=other and sliced(config, other))
    with pytest.raises(
        RetriableError, match=rf"device gpu-0 is shared with claim {first.ref.uid}, whose configuration differs"
    ):
        rig.driver.prepare(asked)
    assert list(slices(rig).values()) == ["3"]
    rig.driver.unprepare(first)
    rig.driver.prepare(asked)


@pytest.mark.parametrize("time_slicing", [{}, {"interval": None}, None])
def test_what_a_configuration_leaves_out_equals_the_default(make_gpus, config, time_slicing):
    rig = make_gpus("H100-80GB", sharing="3")
    rig.driver.prepare(claim(SHARE, config=sliced(config, "Default")))
    chosen = {} if time_slicing is None else {"timeSlicingConfig": time_slicing}
    rig.driver.prepare(claim(SHARE, config=config("GpuConfig", strategy="TimeSlicing", **chosen)))
    assert len(rig.driver.held) == 2


def test_time_slices_of_mig_devices_equal_no_configuration(make_gpus, config):
    """They change nothing, so claims may differ in them."""
    rig = make_gpus("H100-80GB", dynamic_mig=True, sharing="3")
    mig = request("mig", device_class="mig.nvidia.com", capacity={"memory": "1Gi"})
    first = rig.driver.prepare(claim(mig, config=config("MigDeviceConfig", strategy="TimeSlicing")))
    assert rig.driver.prepare(claim(mig)).names == first.names


def test_a_claim_without_configuration_excludes_one_with_it(make_gpus, config):
    rig = make_gpus("H100-80GB", sharing="unlimited")
    rig.driver.prepare(claim(SHARE))
    with pytest.raises(RetriableError, match=r"whose configuration differs: none, not {"):
        rig.driver.prepare(claim(SHARE, config=sliced(config, "Long")))


def test_admin_access_changes_nothing(make_gpus, config):
    rig = make_gpus("H100-80GB")
    looks = claim(request("gpu", admin_access=True), config=sliced(config, "Long"))
    prepared = rig.driver.prepare(looks)
    rig.driver.prepare(claim("gpu", config=sliced(config, "Short")))
    rig.driver.unprepare(prepared)
    assert list(slices(rig).values()) == ["1"]


def test_a_driver_without_nvidia_smi_is_an_error(make_gpus, config):
    rig = make_gpus("H100-80GB")
    rig.node.remove("/usr/bin/nvidia-smi")
    with pytest.raises(DraError, match="nvidia-smi is not under driver root"):
        rig.driver.prepare(claim("gpu", config=sliced(config, "Long")))
    rig.driver.assert_clean()


def test_a_gpu_that_accepts_no_time_slice_does_not_fail_the_unprepare(make_gpus, config):
    rig = make_gpus("H100-80GB")
    rig.node.file("/usr/bin/nvidia-smi", "#!/bin/sh\necho Not Supported\nexit 3\n").chmod(0o755)
    with pytest.raises(DraError, match="--set-timeslice 3: status 3: Not Supported"):
        rig.driver.prepare(claim("gpu", config=sliced(config, "Long")))
    rig.driver.assert_clean()


def test_a_lost_gpu_does_not_fail_the_unprepare(make_gpus, config):
    """And when it is back, its mode from before the loss is not restored."""
    rig = make_gpus("H100-80GB")
    uuid = rig.memory.gpus[0].uuid
    rig.memory.state(uuid).compute_mode = ComputeMode.EXCLUSIVE_PROCESS
    prepared = rig.driver.prepare(claim("gpu", config=sliced(config, "Long")))
    rig.node.file("/usr/bin/nvidia-smi", "#!/bin/sh\necho Unable to determine the device handle >&2\nexit 15\n").chmod(
        0o755
    )
    rig.memory.lose(uuid)
    rig.driver.unprepare(prepared)
    rig.driver.assert_clean()
    rig.memory.reset(uuid)
    rig.memory.state(uuid).compute_mode = ComputeMode.DEFAULT
    write_tools(rig.node.root, rig.node.root)
    rig.driver.unprepare(rig.driver.prepare(claim("gpu", config=sliced(config, "Short"))))
    assert mode(rig) is ComputeMode.DEFAULT


def test_a_program_that_hangs_is_killed(make_gpus, config, monkeypatch):
    rig = make_gpus("H100-80GB")
    rig.node.file("/usr/bin/nvidia-smi", "#!/bin/sh\nsleep 60\n").chmod(0o755)
    monkeypatch.setattr("dra_driver_gpu.driver.CALL_SECONDS", 0.1)
    with pytest.raises(DraError, match="--set-timeslice 3: no answer within 1 s"):
        rig.driver.prepare(claim("gpu", config=sliced(config, "Long")))
