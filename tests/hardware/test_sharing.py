"""Sharing policies: what is divided, in which steps, and how a policy is written in a setting."""

from __future__ import annotations

import pytest

from dra_sdk import Capacity, Device, DraError, DriverSettings, Quantity, RequestPolicy, SettingsError
from dra_sdk.hardware.sharing import Sharing

LINK = Device("link", capacity={"bandwidth": "10500M", "queues": 8})


def policies(device: Device) -> dict[str, dict[str, str]]:
    """The capacities as they are published: value and policy, without what is not set."""
    shown = {}
    for name, capacity in device.capacity.items():
        assert isinstance(capacity, Capacity)
        assert capacity.policy is not None
        policy = {key: getattr(capacity.policy, key) for key in ("default", "min", "max", "step")}
        amounts = {"value": capacity.value, **{key: value for key, value in policy.items() if value is not None}}
        shown[name] = {key: str(Quantity(value)) for key, value in amounts.items()}
    return shown


def test_a_divided_capacity_is_the_one_that_the_author_names() -> None:
    shared = Sharing("divided", capacity="bandwidth", step="1G").apply(LINK)
    assert shared.allow_multiple_allocations
    assert policies(shared) == {
        "bandwidth": {"value": "10G", "default": "10G", "min": "1G", "step": "1G"},
        "queues": {"value": "8", "default": "0", "min": "0"},
    }
    less = Sharing("divided", capacity="bandwidth", step="1G", default="2G").apply(LINK)
    assert policies(less)["bandwidth"]["default"] == "2G"


def test_memory_is_divided_in_steps_of_a_mebibyte_by_default() -> None:
    shared = Sharing("divided").apply(Device("gpu", capacity={"memory": (80 << 30) + 1}))
    assert policies(shared) == {"memory": {"value": "80Gi", "default": "80Gi", "min": "1Mi", "step": "1Mi"}}


def test_a_capacity_of_one_step_is_taken_whole() -> None:
    one = Sharing("divided", capacity="bandwidth", step="1G").apply(Device("link", capacity={"bandwidth": "1200M"}))
    (capacity,) = one.capacity.values()
    assert isinstance(capacity, Capacity)
    assert capacity.value == Quantity("1G")
    assert capacity.policy == RequestPolicy(default=Quantity("1G"), valid_values=[Quantity("1G")])


def test_shares_by_number_take_nothing_of_the_capacity_by_default() -> None:
    bandwidth = {"value": "10G", "default": "0", "min": "0", "step": "1G"}
    shares = policies(Sharing("shares", 4, "bandwidth", "1G").apply(LINK))
    assert shares["bandwidth"] == bandwidth
    assert shares["shares"] == {"value": "4", "default": "1", "min": "1", "max": "4", "step": "1"}
    unlimited = policies(Sharing("unlimited", capacity="bandwidth", step="1G").apply(LINK))
    assert unlimited == {"bandwidth": bandwidth, "queues": {"value": "8", "default": "0", "min": "0"}}


@pytest.mark.parametrize("sharing", [Sharing(), Sharing("divided", capacity="light")])
def test_a_device_without_sharing_or_capacity_stays_as_it_is(sharing: Sharing) -> None:
    assert sharing.apply(LINK) is LINK


def test_a_policy_is_read_from_a_setting() -> None:
    texts = {"": "disabled", "disabled": "disabled", "bandwidth": "divided", "unlimited": "unlimited", "7": "shares"}
    for text, kind in texts.items():
        read = Sharing.parse(text, "bandwidth", "1G")
        assert (read.kind, read.capacity, read.step, read.number) == (kind, "bandwidth", "1G", 7 if text == "7" else 0)
    assert Sharing.parse("memory").kind == "divided"


@pytest.mark.parametrize("text", ["1", "0", "-2", "memory", "many"])
def test_another_text_is_an_error_that_names_what_can_be_written(text: str) -> None:
    with pytest.raises(DraError, match=f"sharing is '{text}': must be disabled, bandwidth, unlimited or a number"):
        Sharing.parse(text, "bandwidth")


def test_a_step_that_is_not_above_0_is_an_error() -> None:
    with pytest.raises(DraError, match="sharing of capacity memory: step must be greater than 0, is 0"):
        Sharing("divided", step=0)


class LampSettings(DriverSettings, prefix="LAMP_"):
    sharing: Sharing = Sharing()


@pytest.mark.parametrize(
    ("text", "sharing"),
    [
        ("disabled", Sharing()),
        ("memory", Sharing("divided")),
        ("unlimited", Sharing("unlimited")),
        ("4", Sharing("shares", 4)),
    ],
)
def test_a_setting_of_this_type_is_read_from_text_and_written_as_text(text: str, sharing: Sharing) -> None:
    assert LampSettings.read({"LAMP_SHARING": text}).sharing == LampSettings(sharing=sharing).sharing == sharing
    assert str(sharing) == text


def test_an_unknown_policy_is_an_error_with_those_that_exist() -> None:
    with pytest.raises(SettingsError, match=r"LAMP_SHARING='1': .*must be disabled, memory, unlimited or a number of"):
        LampSettings.read({"LAMP_SHARING": "1"})


def test_the_documentation_names_the_policies() -> None:
    (row,) = LampSettings.documentation()
    assert (row.accepts, row.default) == ("disabled, memory, unlimited or a number of claims", "disabled")
