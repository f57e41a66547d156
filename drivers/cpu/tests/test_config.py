"""What a claim may say about its CPUs, and what is remembered of it."""

from __future__ import annotations

import pytest
from dra_driver_cpu import CpuConfig, CpuSettings
from dra_driver_cpu.pick import PACKED, PickPolicy

from dra_sdk import ConfigError
from dra_sdk.testing import assert_rules_agree


def test_without_fields_a_claim_has_the_defaults():
    config = CpuConfig.decode({})
    assert config.policy_of(CpuSettings()) == PACKED
    assert config.data(frozenset({0, 1, 4})) == {"cpus": "0-1,4"}


def test_every_field_reaches_the_policy_or_the_data():
    text = {"l3Cache": "require", "coreType": "p-core", "memoryPolicy": "none", "cfsQuota": "keep", "fullCores": True}
    config = CpuConfig.decode(text)
    assert config.policy_of(CpuSettings()) == PickPolicy(full_cores=True, one_l3=True, core_type="p-core")
    assert config.data(frozenset({0})) == {"cpus": "0", "quota": "keep", "memory": "none"}
    spread = CpuConfig.decode({"placement": "spread", "numa": "distributed"})
    assert spread.policy_of(CpuSettings()) == PickPolicy(spread=True, distribute=True)


def test_the_settings_of_the_node_can_ask_for_whole_cores():
    assert CpuConfig().policy_of(CpuSettings(full_cores=True)).full_cores


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"fullCores": True, "placement": "spread"}, "fullCores takes all threads of each core, placement spread one"),
        ({"l3Cache": "require", "numa": "distributed"}, "l3Cache require puts all CPUs into one NUMA node"),
        ({"coreType": "fast"}, "coreType: must be 'any', 'p-core' or 'e-core'"),
        ({"cores": 2}, "cores: unknown field"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field(fields, reason):
    with pytest.raises(ConfigError, match=reason):
        CpuConfig.decode(fields)


def test_the_schema_has_every_field_with_a_description():
    properties = CpuConfig.model_json_schema()["properties"]
    fields = {"fullCores", "placement", "l3Cache", "numa", "coreType", "memoryPolicy", "cfsQuota"}
    assert set(properties) == fields
    assert all(properties[name]["description"] for name in fields)


def test_an_admission_policy_refuses_all_that_the_driver_refuses():
    assert assert_rules_agree(CpuConfig) == []
