"""Limits of MPS clients: by request, by UUID, by index, and their units."""

from __future__ import annotations

import pytest
from dra_driver_gpu.config import MpsConfig
from dra_driver_gpu.prepare.limits import MpsDevice, memory_limits

from dra_sdk import ConfigError

DEVICES = [MpsDevice("GPU-b", "big/large"), MpsDevice("GPU-a", "small"), MpsDevice("GPU-c", "small")]


def limits(per_device=None, general=None):
    config = MpsConfig.model_validate(
        {"defaultPinnedDeviceMemoryLimit": general, "defaultPerDevicePinnedMemoryLimit": per_device or {}}
    )
    return memory_limits(config, DEVICES)


@pytest.mark.parametrize(
    ("per_device", "general", "wanted"),
    [
        ({}, None, {}),
        ({}, "1Gi", {"GPU-a": "1024M", "GPU-b": "1024M", "GPU-c": "1024M"}),
        ({}, "1G", {"GPU-a": "953M", "GPU-b": "953M", "GPU-c": "953M"}),
        ({"1": "10M"}, None, {"GPU-b": "9M"}),
        ({"GPU-a": "2Mi"}, "1Mi", {"GPU-a": "2M", "GPU-b": "1M", "GPU-c": "1M"}),
        ({"small": "4Mi"}, None, {"GPU-a": "4M", "GPU-c": "4M"}),
        ({"big": "4Mi"}, None, {"GPU-b": "4M"}),
        ({"big/large": "4Mi"}, None, {"GPU-b": "4M"}),
        ({"GPU-a": "8Mi", "small": "4Mi"}, "2Mi", {"GPU-a": "8M", "GPU-b": "2M", "GPU-c": "4M"}),
        ({"2": "8Mi", "small": "4Mi"}, None, {"GPU-a": "4M", "GPU-c": "8M"}),
    ],
)
def test_the_more_precise_wins(per_device, general, wanted):
    assert limits(per_device, general) == wanted


@pytest.mark.parametrize("selector", ["3", "-1", "GPU-x", "large", ""])
def test_what_the_daemon_does_not_have(selector):
    with pytest.raises(ConfigError, match="is none of requests big, small, none of indices 0 to 2, and none of UUIDs"):
        limits({selector: "1Gi"})


def test_a_request_may_be_called_like_a_number():
    config = MpsConfig.model_validate({"defaultPerDevicePinnedMemoryLimit": {"0": "1Mi"}})
    assert memory_limits(config, [MpsDevice("GPU-a", "1"), MpsDevice("GPU-b", "0")]) == {"GPU-b": "1M"}
