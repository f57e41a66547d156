"""Return codes as exceptions."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml import errors
from dra_driver_gpu.nvml.errors import NvmlError, ReturnCode, error_of

from dra_sdk.errors import DraError


@pytest.mark.parametrize("code", [one for one in ReturnCode if one not in {ReturnCode.SUCCESS, ReturnCode.UNKNOWN}])
def test_each_code_has_a_class_of_its_own(code):
    error = error_of("nvmlX", code)
    assert type(error) is not errors.UnknownNvmlError
    assert (error.call, error.code, error.return_code) == ("nvmlX", code, code)
    assert type(error_of("nvmlY", int(code))) is type(error)


def test_messages_name_call_reason_and_code():
    error = error_of("nvmlGpuInstanceDestroy", 19)
    assert str(error) == "nvmlGpuInstanceDestroy: in use (NVML return code 19)"
    assert isinstance(error, (NvmlError, DraError))


def test_a_code_without_class_keeps_its_number():
    error = error_of("nvmlX", 14)
    assert type(error) is errors.UnknownNvmlError
    assert error.code == 14
    assert str(error) == "nvmlX: unknown error (NVML return code 14)"


def test_detail_replaces_the_standard_words():
    assert str(error_of("dlopen", 12, "no such file")) == "dlopen: no such file (NVML return code 12)"
