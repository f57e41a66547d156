"""Claims and devices as hooks see them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from dra_sdk import AllocatedDevice, Claim, ContainerEdits, DriverInfo, HeldClaim, Node, OpaqueConfig


class Fan(OpaqueConfig, api_version="lights.example.com/v1"):
    """A configuration with a field."""

    speed: int = 0


class Lamp(OpaqueConfig, api_version="lights.example.com/v1"):
    """A configuration of another kind."""


def test_a_prepared_device_keeps_what_identifies_it() -> None:
    device = AllocatedDevice("gpus/big", "node-a", "gpu-0", None, share_id="s-1")
    prepared = device.prepared(ContainerEdits(env={"X": "1"}), data={"slot": 3}, cdi_name="mine")
    assert (prepared.request, prepared.pool, prepared.name, prepared.share_id) == ("gpus/big", "node-a", "gpu-0", "s-1")
    assert prepared.edits == ContainerEdits(env={"X": "1"})
    assert prepared.data == {"slot": 3}
    assert prepared.cdi_name == "mine"


def test_a_device_needs_no_edits_and_no_data() -> None:
    prepared = AllocatedDevice("gpus", "node-a", "gpu-0", None).prepared()
    assert prepared.edits == ContainerEdits()
    assert prepared.data == {}


def test_of_several_kinds_of_configuration_the_last_of_a_kind_applies() -> None:
    configs = (Fan(speed=1), Fan(speed=2), Lamp())
    both: AllocatedDevice[OpaqueConfig] = AllocatedDevice("fans", "node-a", "fan-0", configs[-1], configs)
    fans: AllocatedDevice[OpaqueConfig] = AllocatedDevice("fans", "node-a", "fan-0", configs[1], configs[:2])
    assert both.config_of(Fan) is fans.config_of(Fan) is configs[1]
    assert fans.config_of(Lamp) is None


@pytest.mark.parametrize(("request_name", "base"), [("gpus", "gpus"), ("gpus/big", "gpus"), ("a/b/c", "a")])
def test_the_base_request_is_what_the_kubelet_knows(request_name: str, base: str) -> None:
    assert AllocatedDevice(request_name, "p", "d", None).base_request == base


def test_the_text_of_a_claim_has_namespace_name_and_uid() -> None:
    claim: Claim[None] = Claim("default", "gpus", "u-1", Node("n"), ())
    assert str(claim) == "claim default/gpus (u-1)"
    assert str(HeldClaim("default", "gpus", "u-1")) == "claim default/gpus (u-1)"


def test_a_claim_made_by_hand_needs_no_journal_and_no_others() -> None:
    claim: Claim[None] = Claim("default", "gpus", "u-1", Node("n"), ())
    assert claim.held() == ()
    claim.journal({"x": 1})


def test_a_test_may_write_the_type_of_the_configuration_out() -> None:
    device = AllocatedDevice[Fan]("fans", "node-a", "fan-0", Fan(speed=1))
    claim = Claim[Fan]("default", "fans", "u-1", Node("n"), (device,))
    assert claim.devices[0].config.speed == 1
    with pytest.raises(FrozenInstanceError):
        claim.name = "other"  # type: ignore[misc]  # what is tested


def test_a_node_has_the_hosts_root() -> None:
    assert Node("n").root == Path("/")


def test_the_cdi_kind_follows_the_name_unless_given() -> None:
    assert DriverInfo("gpu.example.com").cdi_kind == "gpu.example.com/device"
    assert DriverInfo("gpu.example.com", cdi_kind="example.com/gpu").cdi_kind == "example.com/gpu"
