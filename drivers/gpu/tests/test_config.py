"""Opaque configuration: defaults, strict checks, contradictions, and memory limits of MPS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dra_driver_gpu.config import (
    API_VERSION,
    CONFIGS,
    INTERVALS,
    GpuConfig,
    MigDeviceConfig,
    MpsConfig,
    VfioDeviceConfig,
    memory_limits,
)

from dra_sdk import ConfigError
from dra_sdk.cli.main import main
from dra_sdk.testing import assert_rules_agree


def test_without_sharing_nothing_changes():
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


def test_the_schema_accepts_what_the_driver_accepts(capsys):
    assert main(["drivers", "--schema", "gpu"]) == 0
    schema = json.loads(capsys.readouterr().out)
    names = [kind.kind for kind in CONFIGS]
    assert [entry["$ref"] for entry in schema["oneOf"]] == [f"#/$defs/{name}" for name in names]
    assert all(schema["$defs"][name]["properties"]["apiVersion"] == {"const": API_VERSION} for name in names)
    mps = schema["$defs"]["MpsConfig"]["properties"]
    limit = mps["defaultPinnedDeviceMemoryLimit"]["anyOf"]
    assert limit[0]["anyOf"] == [{"type": "string"}, {"type": "integer"}]
    assert limit[1:] == [{"type": "null"}]
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
def test_mistakes_are_refused(kind, parameters, why):
    with pytest.raises(ConfigError, match=why):
        kind.decode(parameters)


@pytest.mark.parametrize("value", [True, False, None])
def test_switches_are_true_false_or_absent(value):
    read = VfioDeviceConfig.decode({"iommu": {"enableAPIDevice": value}})
    assert read.iommu.enable_api_device is bool(value)


def test_fields_of_another_release_are_ignored_in_kept_configuration():
    assert GpuConfig.decode({"sharing": None, "later": 1}, strict=False) == GpuConfig()


@pytest.mark.parametrize("config", CONFIGS)
def test_the_schema_is_complete(config):
    schema = config.model_json_schema(by_alias=True)
    assert schema["additionalProperties"] is False
    assert config.api_version == "resource.nvidia.com/v1beta1"
    assert config.decode({}).encode()["kind"] == config.__name__


DEVICES = {"GPU-b": "big/large", "GPU-a": "small", "GPU-c": "small"}


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
def test_the_more_precise_memory_limit_takes_precedence(per_device, general, wanted):
    assert limits(per_device, general) == wanted


@pytest.mark.parametrize("selector", ["3", "-1", "GPU-x", "large", ""])
def test_a_memory_limit_for_a_device_that_is_not_there(selector):
    with pytest.raises(ConfigError, match="is none of requests big, small, none of indices 0 to 2, and none of UUIDs"):
        limits({selector: "1Gi"})


def test_a_request_may_have_a_number_as_its_name():
    config = MpsConfig.model_validate({"defaultPerDevicePinnedMemoryLimit": {"0": "1Mi"}})
    assert memory_limits(config, {"GPU-a": "1", "GPU-b": "0"}) == {"GPU-b": "1M"}


def test_a_policy_refuses_the_contradictions_that_the_driver_refuses():
    assert assert_rules_agree(*CONFIGS) == []
