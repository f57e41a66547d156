"""Opaque configuration: defaults, strictness, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest
from dra_driver_gpu.config import API_VERSION, CONFIGS, INTERVALS, GpuConfig, MigDeviceConfig, VfioDeviceConfig

from dra_sdk import ConfigError
from dra_sdk.model.config import json_schema


def test_without_sharing_nothing_is_changed():
    assert GpuConfig.decode({}).sharing is None
    assert GpuConfig.decode({"sharing": None}).sharing is None
    assert MigDeviceConfig.decode({}).sharing is None


@pytest.mark.parametrize(
    ("sharing", "interval"),
    [
        ({"strategy": "TimeSlicing"}, "Default"),
        ({"strategy": "TimeSlicing", "timeSlicingConfig": {}}, "Default"),
        ({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": None}}, "Default"),
        ({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}, "Long"),
        ({"strategy": "MPS"}, None),
    ],
)
def test_time_slices(sharing, interval):
    read = GpuConfig.decode({"sharing": sharing}).sharing
    assert read is not None
    assert read.interval == interval
    assert (read.mps is None) == (interval is not None)


def test_limits_of_mps():
    mps = {"defaultActiveThreadPercentage": 30, "defaultPinnedDeviceMemoryLimit": "1G", "multiUser": True}
    limits = {"0": "2Gi", "gpu": 10485760}
    config = {"strategy": "MPS", "mpsConfig": {**mps, "defaultPerDevicePinnedMemoryLimit": limits}}
    read = GpuConfig.decode({"sharing": config})
    assert read.sharing is not None
    assert read.sharing.mps is not None
    assert read.sharing.mps.default_per_device_pinned_memory_limit == {"0": "2Gi", "gpu": "10485760"}
    assert GpuConfig.decode(read.encode()) == read


@pytest.mark.parametrize("limit", ["1Mi", "1Pi", 1 << 50])
def test_the_smallest_and_the_largest_memory_limit(limit):
    read = GpuConfig.decode(sharing(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": limit}))
    assert read.sharing is not None
    assert read.sharing.mps_config is not None
    assert read.sharing.mps_config.default_pinned_device_memory_limit == str(limit)


def test_vfio():
    assert VfioDeviceConfig.decode({}).encode()["iommu"] == {"backendPolicy": "LegacyOnly", "enableAPIDevice": False}
    read = VfioDeviceConfig.decode({"iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}})
    assert (read.iommu.backend_policy, read.iommu.enable_api_device) == ("PreferIommuFD", True)
    assert VfioDeviceConfig.decode({"iommu": None}) == VfioDeviceConfig()


def test_the_schema_takes_what_the_driver_takes():
    schema = json_schema(CONFIGS, "GPUs")
    names = [each.kind for each in CONFIGS]
    assert [each["$ref"] for each in schema["oneOf"]] == [f"#/$defs/{name}" for name in names]
    assert all(schema["$defs"][name]["properties"]["apiVersion"] == {"const": API_VERSION} for name in names)
    mps = schema["$defs"]["MpsConfig"]["properties"]
    limit = mps["defaultPinnedDeviceMemoryLimit"]["anyOf"]
    assert limit == [{"type": "string"}, {"type": "integer"}, {"type": "null"}]
    interval = schema["$defs"]["TimeSlicingConfig"]["properties"]["interval"]
    assert interval["default"] == "Default"
    assert interval["anyOf"] == [{"type": "string", "enum": list(INTERVALS)}, {"type": "null"}]


def sharing(**fields: Any) -> dict[str, Any]:
    return {"sharing": fields}


@pytest.mark.parametrize(
    ("kind", "parameters", "why"),
    [
        (GpuConfig, {"sharingg": {}}, "sharingg: unknown field"),
        (GpuConfig, sharing(), "sharing.strategy: is required"),
        (GpuConfig, sharing(strategy="Magic"), "sharing.strategy: must be 'TimeSlicing' or 'MPS'"),
        (GpuConfig, sharing(strategy="TimeSlicing", mpsConfig={}), "mpsConfig does not go with strategy TimeSlicing"),
        (GpuConfig, sharing(strategy="MPS", timeSlicingConfig={}), "timeSlicingConfig does not go with strategy MPS"),
        (GpuConfig, sharing(strategy="MPS", timeSlicingConfig={}, mpsConfig={}), "timeSlicingConfig does not go"),
        (
            GpuConfig,
            sharing(strategy="TimeSlicing", timeSlicingConfig={"interval": "Brief"}),
            "must be 'Default', 'Short'",
        ),
        (GpuConfig, sharing(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 101}), "less than or equal"),
        (GpuConfig, sharing(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "1"}), "at least 1Mi"),
        (GpuConfig, sharing(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "x"}), "not a quantity"),
        (
            GpuConfig,
            sharing(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "1e99"}),
            "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: .*must be at most 1Pi",
        ),
        (
            MigDeviceConfig,
            sharing(strategy="MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"gpu": (1 << 50) + 1}}),
            "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.gpu: .*must be at most 1Pi",
        ),
        (MigDeviceConfig, sharing(strategy="TimeSlicing", timeSlicingConfig={}), "unknown field"),
        (VfioDeviceConfig, {"iommu": {"backendPolicy": "Other"}}, "must be 'LegacyOnly' or 'PreferIommuFD'"),
        (VfioDeviceConfig, {"iommu": {"enableApiDevice": True}}, "unknown field"),
        (VfioDeviceConfig, {"iommu": {"enableAPIDevice": "true"}}, "iommu.enableAPIDevice: .*boolean .*got 'true'"),
        (GpuConfig, sharing(strategy="MPS", mpsConfig={"multiUser": 1}), "sharing.mpsConfig.multiUser: .*boolean"),
    ],
)
def test_what_is_refused(kind, parameters, why):
    with pytest.raises(ConfigError, match=why):
        kind.decode(parameters)


@pytest.mark.parametrize("value", [True, False, None])
def test_switches_are_true_false_or_absent(value):
    read = VfioDeviceConfig.decode({"iommu": {"enableAPIDevice": value}})
    assert read.iommu.enable_api_device is bool(value)


def test_what_an_older_release_wrote_is_read():
    assert GpuConfig.decode({"sharing": None, "later": 1}, strict=False) == GpuConfig()


@pytest.mark.parametrize("config", CONFIGS)
def test_the_schema_is_complete(config):
    schema = config.model_json_schema(by_alias=True)
    assert schema["additionalProperties"] is False
    assert config.api_version == "resource.nvidia.com/v1beta1"
    assert config.decode({}).encode()["kind"] == config.__name__
