"""Failures that a test asks for."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml import queries
from dra_driver_gpu.nvml.errors import InUseError, NvmlError, ReturnCode
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu


@pytest.fixture
def nvml():
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    nvml.init()
    nvml.faults.clear()
    return nvml


def test_every_call_is_recorded_by_its_nvml_name(nvml):
    gpu = nvml.device_by_index(0)
    gpu.create_gpu_instance(19).destroy()
    assert gpu.processes() == []
    assert nvml.faults.calls == [
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceCreateGpuInstance",
        "nvmlGpuInstanceDestroy",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    ]
    nvml.faults.clear()
    assert nvml.faults.calls == []


def test_the_nth_call_of_any_function_fails(nvml):
    gpu = nvml.device_by_index(0)
    nvml.faults.fail_call(2, ReturnCode.IN_USE)
    gpu.uuid()
    with pytest.raises(InUseError) as raised:
        gpu.name()
    assert raised.value.call == "nvmlDeviceGetName"
    assert gpu.name() == "NVIDIA A100-SXM4-40GB"


def test_a_given_exception_is_raised_as_it_is(nvml):
    class KilledHereError(BaseException):
        pass

    gpu = nvml.device_by_index(0)
    nvml.fail("nvmlDeviceCreateGpuInstance", KilledHereError(), after=True)
    with pytest.raises(KilledHereError):
        gpu.create_gpu_instance(19)
    assert len(queries.gpu_instances(gpu)) == 1


def test_faults_of_one_function_do_not_affect_others(nvml):
    gpu = nvml.device_by_index(0)
    nvml.faults.fail("nvmlDeviceGetName")
    assert gpu.minor_number() == 0
    with pytest.raises(NvmlError, match=r"nvmlDeviceGetName: .*return code 999"):
        gpu.name()


def test_two_faults_of_one_call_are_both_used_up(nvml):
    gpu = nvml.device_by_index(0)
    nvml.faults.fail("nvmlDeviceGetName", ReturnCode.IN_USE)
    nvml.faults.fail("nvmlDeviceGetName", ReturnCode.TIMEOUT)
    with pytest.raises(InUseError):
        gpu.name()
    assert gpu.name() == "NVIDIA A100-SXM4-40GB"


def test_cleared_faults_do_not_happen(nvml):
    nvml.faults.fail_call(1)
    nvml.faults.clear()
    assert nvml.device_count() == 1
