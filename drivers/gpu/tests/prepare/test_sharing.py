"""Time slices and compute mode, of one claim and of several."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.testing.node import write_tools
from dra_driver_gpu.testing.nvml import fake_gpu

from dra_sdk import DraError, PermanentError, RetriableError
from dra_sdk.testing import claim, request

SHARE = request("gpu", capacity={"memory": "1Gi"})


def mode(harness, index=0):
    return harness.memory.state(harness.memory.gpus[index].uuid).compute_mode


def slices(harness):
    directory = harness.node.path("/run/time-slices")
    return {path.name: path.read_text().strip() for path in directory.glob("*")} if directory.exists() else {}


def sliced(config, interval):
    return config("GpuConfig", strategy="TimeSlicing", timeSlicingConfig={"interval": interval})


@pytest.mark.parametrize(("interval", "number"), [("Short", "1"), ("Medium", "2"), ("Long", "3")])
def test_a_time_slice_is_set_and_reset(make_gpus, config, interval, number):
    harness = make_gpus("H100-80GB")
    uuid = harness.memory.gpus[0].uuid
    prepared = harness.driver.prepare(claim("gpu", config=sliced(config, interval)))
    assert harness.effects.calls == [f"run nvidia-smi compute-policy -i {uuid} --set-timeslice {number}"]
    assert slices(harness) == {uuid: number}
    harness.driver.unprepare(prepared)
    assert harness.effects.calls[1:] == [f"run nvidia-smi compute-policy -i {uuid} --set-timeslice 0"]
    assert slices(harness) == {}


@pytest.mark.parametrize("time_slicing", [{}, {"interval": None}, {"interval": "Default"}, None])
def test_the_default_time_slice_is_not_reset(make_gpus, config, time_slicing):
    harness = make_gpus("H100-80GB")
    chosen = {} if time_slicing is None else {"timeSlicingConfig": time_slicing}
    prepared = harness.driver.prepare(claim("gpu", config=config("GpuConfig", strategy="TimeSlicing", **chosen)))
    assert harness.effects.calls[0].endswith("--set-timeslice 0")
    harness.driver.unprepare(prepared)
    assert len(harness.effects.calls) == 1


def test_without_configuration_nothing_changes(make_gpus):
    harness = make_gpus("H100-80GB")
    harness.memory.state(harness.memory.gpus[0].uuid).compute_mode = ComputeMode.EXCLUSIVE_PROCESS
    harness.driver.unprepare(harness.driver.prepare(claim("gpu")))
    assert harness.effects.calls == []
    assert mode(harness) is ComputeMode.EXCLUSIVE_PROCESS


def test_the_compute_mode_is_restored(make_gpus, config):
    harness = make_gpus("H100-80GB")
    harness.memory.state(harness.memory.gpus[0].uuid).compute_mode = ComputeMode.EXCLUSIVE_PROCESS
    prepared = harness.driver.prepare(claim("gpu", config=sliced(config, "Short")))
    assert mode(harness) is ComputeMode.DEFAULT
    harness.driver.restart()
    harness.driver.unprepare(prepared)
    assert mode(harness) is ComputeMode.EXCLUSIVE_PROCESS


def test_mig_devices_have_no_time_slices(make_gpus, config):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = claim(
        request("mig", device_class="mig.nvidia.com"), config=config("MigDeviceConfig", strategy="TimeSlicing")
    )
    harness.driver.unprepare(harness.driver.prepare(asked))
    assert harness.effects.calls == []


@pytest.mark.parametrize("interval", ["Default", "Short"])
def test_gpus_before_volta_have_only_the_default_time_slice(make_gpus, config, interval):
    old = fake_gpu("T4")
    harness = make_gpus(replace(old, model=replace(old.model, compute_capability=(6, 1))))
    asked = claim("gpu", config=sliced(config, interval))
    if interval == "Default":
        harness.driver.prepare(asked)
        assert harness.effects.calls == []
    else:
        with pytest.raises(PermanentError, match=r"time slices need compute capability 7.0"):
            harness.driver.prepare(asked)


def test_several_claims_with_the_same_configuration(make_gpus, config):
    harness = make_gpus("H100-80GB", sharing="3")
    first, second = (harness.driver.prepare(claim(SHARE, config=sliced(config, "Long"))) for _ in range(2))
    assert first.names == second.names == ["gpu-0"]
    assert len(harness.effects.calls) == 1
    harness.driver.unprepare(first)
    assert list(slices(harness).values()) == ["3"]
    harness.driver.restart()
    harness.driver.unprepare(second)
    assert slices(harness) == {}
    harness.driver.assert_clean()


@pytest.mark.parametrize("other", [None, "Short"])
def test_several_claims_with_different_configurations(make_gpus, config, other):
    harness = make_gpus("H100-80GB", sharing="3")
    first = harness.driver.prepare(claim(SHARE, config=sliced(config, "Long")))
    asked = claim(SHARE, config=other and sliced(config, other))
    with pytest.raises(
        RetriableError, match=rf"device gpu-0 is shared with claim {first.ref.uid}, whose configuration differs"
    ):
        harness.driver.prepare(asked)
    assert list(slices(harness).values()) == ["3"]
    harness.driver.unprepare(first)
    harness.driver.prepare(asked)


@pytest.mark.parametrize("time_slicing", [{}, {"interval": None}, None])
def test_what_a_configuration_leaves_out_equals_the_default(make_gpus, config, time_slicing):
    harness = make_gpus("H100-80GB", sharing="3")
    harness.driver.prepare(claim(SHARE, config=sliced(config, "Default")))
    chosen = {} if time_slicing is None else {"timeSlicingConfig": time_slicing}
    harness.driver.prepare(claim(SHARE, config=config("GpuConfig", strategy="TimeSlicing", **chosen)))
    assert len(harness.driver.held) == 2


def test_time_slices_of_mig_devices_equal_no_configuration(make_gpus, config):
    """They change nothing, so claims may differ in them."""
    harness = make_gpus("H100-80GB", dynamic_mig=True, sharing="3")
    mig = request("mig", device_class="mig.nvidia.com", capacity={"memory": "1Gi"})
    first = harness.driver.prepare(claim(mig, config=config("MigDeviceConfig", strategy="TimeSlicing")))
    assert harness.driver.prepare(claim(mig)).names == first.names


def test_a_claim_without_configuration_excludes_one_with_it(make_gpus, config):
    harness = make_gpus("H100-80GB", sharing="unlimited")
    harness.driver.prepare(claim(SHARE))
    with pytest.raises(RetriableError, match=r"whose configuration differs: none, not {"):
        harness.driver.prepare(claim(SHARE, config=sliced(config, "Long")))


def test_admin_access_changes_nothing(make_gpus, config):
    harness = make_gpus("H100-80GB")
    looks = claim(request("gpu", admin_access=True), config=sliced(config, "Long"))
    prepared = harness.driver.prepare(looks)
    harness.driver.prepare(claim("gpu", config=sliced(config, "Short")))
    harness.driver.unprepare(prepared)
    assert list(slices(harness).values()) == ["1"]


def test_a_driver_without_nvidia_smi_is_an_error(make_gpus, config):
    harness = make_gpus("H100-80GB")
    harness.node.remove("/usr/bin/nvidia-smi")
    with pytest.raises(DraError, match="nvidia-smi is not under driver root"):
        harness.driver.prepare(claim("gpu", config=sliced(config, "Long")))
    harness.driver.assert_clean()


def test_a_gpu_that_accepts_no_time_slice_does_not_fail_the_unprepare(make_gpus, config):
    harness = make_gpus("H100-80GB")
    harness.node.file("/usr/bin/nvidia-smi", "#!/bin/sh\necho Not Supported\nexit 3\n").chmod(0o755)
    with pytest.raises(DraError, match="--set-timeslice 3: status 3: Not Supported"):
        harness.driver.prepare(claim("gpu", config=sliced(config, "Long")))
    harness.driver.assert_clean()


def test_a_lost_gpu_does_not_fail_the_unprepare(make_gpus, config):
    """And when it is back, its mode from before the loss is not restored."""
    harness = make_gpus("H100-80GB")
    uuid = harness.memory.gpus[0].uuid
    harness.memory.state(uuid).compute_mode = ComputeMode.EXCLUSIVE_PROCESS
    prepared = harness.driver.prepare(claim("gpu", config=sliced(config, "Long")))
    harness.node.file(
        "/usr/bin/nvidia-smi", "#!/bin/sh\necho Unable to determine the device handle >&2\nexit 15\n"
    ).chmod(0o755)
    harness.memory.lose(uuid)
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    harness.memory.reset(uuid)
    harness.memory.state(uuid).compute_mode = ComputeMode.DEFAULT
    write_tools(harness.node.root, harness.node.root)
    harness.driver.unprepare(harness.driver.prepare(claim("gpu", config=sliced(config, "Short"))))
    assert mode(harness) is ComputeMode.DEFAULT


def test_a_program_that_hangs_is_killed(make_gpus, config, monkeypatch):
    harness = make_gpus("H100-80GB")
    harness.node.file("/usr/bin/nvidia-smi", "#!/bin/sh\nsleep 60\n").chmod(0o755)
    monkeypatch.setattr("dra_driver_gpu.driver.CALL_SECONDS", 0.1)
    with pytest.raises(DraError, match="--set-timeslice 3: no answer within 1 s"):
        harness.driver.prepare(claim("gpu", config=sliced(config, "Long")))
