"""Which configuration applies to which device, and what happens to configuration that applies to none."""

from __future__ import annotations

import pytest

from dra_sdk import ClaimError, ConfigError
from dra_sdk.testing import claim, first_of, request

MIG = request("mig", device_class="mig.nvidia.com")


def test_configuration_for_all_requests_applies_where_its_kind_fits(make_gpus, config):
    harness = make_gpus("H100-80GB", "H100-80GB", dynamic_mig=True)
    slow = config("GpuConfig", strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"})
    asked = claim("gpu", MIG).configured(slow).configured(config("MigDeviceConfig", strategy="TimeSlicing"))
    harness.driver.prepare(asked)
    assert [call[-1] for call in harness.effects.calls] == ["3"]


def test_the_wrong_kind_for_a_named_request_is_an_error(make_gpus, config):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = claim(MIG).configured(config("GpuConfig", strategy="TimeSlicing"), "mig")
    with pytest.raises(
        ConfigError, match=r"GpuConfig cannot apply to device gpu-0-mig-.* which takes a MigDeviceConfig"
    ):
        harness.driver.prepare(asked)
    harness.driver.assert_clean()


def test_the_wrong_kind_for_all_requests_is_logged(make_gpus, config, caplog):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    harness.driver.prepare(claim(MIG, config=config("GpuConfig", strategy="TimeSlicing")))
    assert "config[0] of the claim: GpuConfig applies to none of its devices" in caplog.text


def test_configuration_for_a_request_covers_alternatives_of_its_kind(make_gpus, config):
    harness = make_gpus("L4")
    asked = claim(first_of("any", request("big", device_class="mig.nvidia.com"), request("gpu")))
    slow = config("GpuConfig", strategy="TimeSlicing", timeSlicingConfig={"interval": "Short"})
    both = asked.configured(slow, "any").configured(config("MigDeviceConfig", strategy="TimeSlicing"), "any")
    prepared = harness.driver.prepare(both)
    assert prepared.names == ["gpu-0"]
    assert [call[-1] for call in harness.effects.calls] == ["1"]


def test_the_last_entry_wins_and_the_claims_over_its_classes(make_gpus, config):
    harness = make_gpus("L4")
    entry = {"opaque": {"driver": "gpu.nvidia.com", "parameters": config("GpuConfig", strategy="MPS")}}
    harness.driver.add_class("shared", 'device.attributes["gpu.nvidia.com"].type == "gpu"', config=[entry])
    first, last = (
        config("GpuConfig", strategy="TimeSlicing", timeSlicingConfig={"interval": interval})
        for interval in ("Short", "Long")
    )
    asked = claim(request("gpu", device_class="shared")).configured(first).configured(last, "gpu")
    harness.driver.prepare(asked)
    assert [call[-1] for call in harness.effects.calls] == ["3"]


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "Gpu"}, "does not know apiVersion"),
        ({"apiVersion": "resource.nvidia.com/v1", "kind": "GpuConfig"}, "does not know apiVersion"),
        ({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharin": {}}, "sharin: unknown field"),
    ],
)
def test_unknown_configuration_is_an_error(make_gpus, parameters, why):
    harness = make_gpus("L4")
    with pytest.raises(ConfigError, match=why):
        harness.driver.prepare(claim("gpu", config=parameters))


def test_a_device_of_another_driver_is_an_error(make_gpus):
    harness = make_gpus("L4")
    with pytest.raises(ClaimError, match="device node-1/tpu-0 is not among those that driver"):
        harness.driver.prepare(harness.copy_of(harness.driver.prepare(claim("gpu")), device="tpu-0"))
