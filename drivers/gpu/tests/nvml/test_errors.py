"""Return codes as exceptions."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml.errors import NvmlError, ReturnCode, error_of

from dra_sdk import DraError


@pytest.mark.parametrize("kind", NvmlError.__subclasses__())
def test_each_class_has_its_own_code(kind):
    error = error_of("nvmlX", int(kind.return_code))
    assert type(error) is kind
    assert (error.call, error.code) == ("nvmlX", kind.return_code)
    assert kind("nvmlX").code == kind.return_code


@pytest.mark.parametrize("code", [code for code in ReturnCode if code not in {ReturnCode.SUCCESS, ReturnCode.UNKNOWN}])
def test_each_listed_code_has_a_text(code):
    assert "unknown error" not in str(error_of("nvmlX", code))


def test_messages_have_call_reason_and_code():
    error = error_of("nvmlGpuInstanceDestroy", 19)
    assert str(error) == "nvmlGpuInstanceDestroy: in use (NVML return code 19)"
    assert isinstance(error, (NvmlError, DraError))


def test_a_code_that_is_not_listed_keeps_its_number():
    error = error_of("nvmlX", 14)
    assert type(error) is NvmlError
    assert error.code == 14
    assert str(error) == "nvmlX: unknown error (NVML return code 14)"


def test_detail_replaces_the_standard_words():
    assert str(error_of("dlopen", 12, "no such file")) == "dlopen: no such file (NVML return code 12)"
