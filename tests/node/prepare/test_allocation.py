"""From a claim to this driver's devices."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from dra_sdk import AllocatedDevice, ClaimConfig, Device, DriverInfo, HeldClaim, HeldDevice, OpaqueConfig, Quantity
from dra_sdk.errors import ClaimError, ConfigError, DeviceHeldError, HookError, RetriableError, StateError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.prepare.allocation import (
    claim_configs,
    default_config,
    read_status,
    refuse_held,
    refuse_unreadable,
    resolve_configs,
)
from dra_sdk.node.prepare.allocation import read as read_claim
from dra_sdk.node.prepare.checkpoint import Checkpoint, refuse_taken_names
from dra_sdk.node.prepare.state_files import Unreadable
from dra_sdk.wire.resource.claims import (
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
)
from tests.lamps import NAME, LampConfig

INFO = DriverInfo(NAME, configs=[LampConfig])
REF = ClaimRef("default", "lamps", "u-1")


def published(pool: str, name: str) -> Device | None:
    return Device(name, attributes={"pool": pool}) if name != "gone" else None


def raw(*results: dict[str, Any], config: Any = (), uid: str = "u-1") -> dict[str, Any]:
    full = [{"driver": NAME, "pool": "p", "device": "d", "request": "r", **each} for each in results]
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": full, "config": list(config)}}}}


def brightness(value: Any, *requests: str, source: str = "FromClaim", driver: str = NAME) -> dict[str, Any]:
    parameters = {"apiVersion": f"{NAME}/v1", "kind": "LampConfig", "brightness": value}
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def devices(claim: dict[str, Any], info: DriverInfo = INFO) -> list[Any]:
    return list(read_claim(info, "node-a", REF, claim, read_status(claim, REF), find_device=published).devices)


def test_a_device_carries_all_that_was_allocated() -> None:
    (device,) = devices(
        raw(
            {
                "request": "r/big",
                "shareID": "s-1",
                "adminAccess": True,
                "consumedCapacity": {"memory": "2Gi", "a.example.com/x": "1500m"},
            }
        )
    )
    assert (device.request, device.base_request, device.pool, device.name) == ("r/big", "r", "p", "d")
    assert (device.share_id, device.admin_access) == ("s-1", True)
    assert device.consumed_capacity == {"memory": Quantity("2Gi"), "a.example.com/x": Quantity("1.5")}
    assert device.device == Device("d", attributes={"pool": "p"})
    assert device.config == LampConfig()
    assert device.configs == (LampConfig(),)


def test_order_is_that_of_the_allocation_and_other_drivers_are_left_out() -> None:
    found = devices(raw({"device": "z"}, {"driver": "other.example.com", "device": "y"}, {"device": "a"}))
    assert [device.name for device in found] == ["z", "a"]


def test_a_device_that_is_not_published_is_refused() -> None:
    with pytest.raises(ClaimError, match=f"device p/gone is not among those that driver {NAME} publishes"):
        devices(raw({"device": "gone"}))


def test_the_last_configuration_applies_and_all_are_there() -> None:
    config = [brightness(9), brightness(5, source="FromClass"), brightness(7, "b")]
    first, second = devices(raw({"request": "a"}, {"request": "b"}, config=config))
    assert [each.brightness for each in first.configs] == [5, 9]
    assert first.config.brightness == 9
    assert [each.brightness for each in second.configs] == [5, 9, 7]
    assert second.config.brightness == 7


def test_a_driver_without_configuration_gets_none() -> None:
    (device,) = devices(raw({}), DriverInfo(NAME))
    assert device.config is None
    assert device.configs == (None,)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (raw({}, uid="u-2"), "the claim was replaced: it has UID u-2 now"),
        ({"metadata": {"uid": "u-1"}}, "the claim is not allocated"),
        ({"metadata": {"uid": "u-1"}, "status": {"allocation": None}}, "the claim is not allocated"),
        (raw(), f"the claim's allocation holds no device of driver {NAME}"),
        (raw({"driver": "other.example.com"}), f"holds no device of driver {NAME}"),
        (
            raw({"consumedCapacity": {"memory": "much"}}),
            "results.0.consumedCapacity.memory: Value error, must be a quantity",
        ),
    ],
)
def test_a_claim_that_cannot_be_prepared_says_why(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(ClaimError) as caught:
        devices(claim)
    assert message in str(caught.value)


def test_a_wrong_configuration_is_the_claims_error() -> None:
    with pytest.raises(ConfigError, match=r"config\[1\] of the claim: LampConfig: brightness: "):
        devices(raw({}, config=[brightness(1), brightness(101)]))


def test_an_entry_without_a_device_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        devices(raw({}, config=[brightness(1, "elsewhere")]))
    assert "claim default/lamps (u-1): config[0] of the claim for requests elsewhere applies to none" in caplog.text


def test_a_discovery_that_has_not_ended_is_passed_on() -> None:
    def waiting(pool: str, name: str) -> Device | None:
        raise RetriableError("not discovered yet")

    with pytest.raises(RetriableError):
        read_claim(INFO, "node-a", REF, {}, read_status(raw({}), REF), find_device=waiting)


V1 = "lamp.example.com/v1"


class Lamp(OpaqueConfig, api_version=V1):
    watts: int = Field(default=5, ge=1)


class Lens(OpaqueConfig, api_version=V1):
    focus: int = 0


class Needed(OpaqueConfig, api_version=V1):
    name: str


LAMPS = DriverInfo("lamp.example.com", configs=[Lamp, Lens])


def read(raw: dict[str, Any]) -> DeviceAllocationConfiguration:
    return DeviceAllocationConfiguration.model_validate(raw, extra="ignore")


def entry(
    source: str, watts: int, *requests: str, driver: str = LAMPS.name, kind: str = "Lamp", **more: Any
) -> DeviceAllocationConfiguration:
    parameters = {"apiVersion": V1, "kind": kind, **({"watts": watts} if kind == "Lamp" else {}), **more}
    return read({"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}})


def result(request: str) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        request=request, driver=LAMPS.name, pool="p", device=f"d-{request.replace('/', '-')}"
    )


def watts(entries: list[DeviceAllocationConfiguration], *requests: str) -> list[list[int]]:
    resolved = resolve_configs(LAMPS, REF, [result(each) for each in requests], entries)
    return [[config.watts for config in chain if isinstance(config, Lamp)] for chain in resolved]


def test_the_claims_entries_come_after_the_classes() -> None:
    entries = [entry("FromClaim", 1), entry("FromClass", 2), entry("FromClaim", 3), entry("FromClass", 4)]
    assert watts(entries, "r") == [[2, 4, 1, 3]]


def test_no_requests_means_all_of_them() -> None:
    assert watts([entry("FromClass", 1)], "a", "b/c") == [[1], [1]]


def test_an_entry_reaches_the_requests_it_names() -> None:
    entries = [entry("FromClaim", 1, "a"), entry("FromClaim", 2, "b", "c")]
    assert watts(entries, "a", "b", "c", "d") == [[1], [2], [2], []]


def test_an_entry_for_a_request_covers_its_alternatives() -> None:
    entries = [entry("FromClaim", 1, "a"), entry("FromClaim", 2, "a/big"), entry("FromClaim", 3, "big")]
    assert watts(entries, "a/big", "a/small", "big", "a") == [[1, 2], [1], [3], [1]]


def test_a_name_that_only_begins_alike_does_not_match() -> None:
    assert watts([entry("FromClaim", 1, "a")], "ab", "a-b", "aa/a") == [[], [], []]


def test_entries_of_other_drivers_and_without_parameters_are_not_ours(caplog: pytest.LogCaptureFixture) -> None:
    entries = [
        entry("FromClaim", 0, driver="other.example.com"),  # would be invalid, were it ours
        read({"source": "FromClaim"}),
    ]
    assert resolve_configs(LAMPS, REF, [result("r")], entries) == [[]]
    assert caplog.text == ""


def test_an_entry_that_matches_no_device_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    resolve_configs(LAMPS, REF, [result("a")], [entry("FromClass", 1), entry("FromClaim", 2, "b", "c")])
    assert f"{REF}: config[1] of the claim for requests b, c applies to none of its devices" in caplog.text


def test_a_driver_sees_all_its_entries_also_those_for_no_device() -> None:
    entries = [
        entry("FromClaim", 1),
        entry("FromClass", 0, "b", kind="Lens", focus=7),
        entry("FromClaim", 0, driver="other.example.com"),
        entry("FromClaim", 2, "absent"),
    ]
    assert claim_configs(LAMPS, entries) == (
        ClaimConfig("config[1] of the DeviceClass for requests b", ("b",), "Lens"),
        ClaimConfig("config[0] of the claim", (), "Lamp"),
        ClaimConfig("config[3] of the claim for requests absent", ("absent",), "Lamp"),
    )
    assert claim_configs(LAMPS, []) == ()


GUARDED = DriverInfo(LAMPS.name, configs=[Lamp, Lens], class_only=["watts"])


def test_what_only_a_class_may_set_is_refused_in_a_claim() -> None:
    with pytest.raises(ConfigError, match=r"^config\[1\] of the claim: Lamp: watts may be set in a DeviceClass only$"):
        resolve_configs(GUARDED, REF, [result("r")], [entry("FromClass", 4), entry("FromClaim", 1)])
    assert resolve_configs(GUARDED, REF, [result("r")], [entry("FromClass", 4)]) == [[Lamp(watts=4)]]


def test_what_only_a_class_may_set_holds_for_a_claim_with_a_configuration_of_its_own() -> None:
    """Otherwise any configuration of the claim, which takes the place of that of the class, would get rid of it."""
    claimed = read(
        {"source": "FromClaim", "opaque": {"driver": LAMPS.name, "parameters": {"apiVersion": V1, "kind": "Lamp"}}}
    )
    of_class = [entry("FromClass", 4, "r"), entry("FromClass", 0, "r", kind="Lens", focus=7)]
    resolved = resolve_configs(GUARDED, REF, [result("r"), result("other")], [claimed, *of_class])
    assert [chain[-1] for chain in resolved] == [Lamp(watts=4), Lamp()]


def test_a_driver_whose_class_only_fields_do_not_exist_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"class_only of driver lamp\.example\.com: no configuration class has wats, watts\.x"
    ):
        DriverInfo(LAMPS.name, configs=[Lamp, Lens], class_only=["watts", "wats", "watts.x"])


def test_kinds_of_one_driver_are_kept_in_order() -> None:
    entries = [entry("FromClaim", 1), entry("FromClass", 0, kind="Lens", focus=7)]
    assert resolve_configs(LAMPS, REF, [result("r")], entries) == [[Lens(focus=7), Lamp(watts=1)]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"apiVersion": V1, "kind": "Torch"}, f"does not know apiVersion '{V1}' kind 'Torch'; it takes {V1} Lamp, "),
        ({"apiVersion": "lamp.example.com/v2", "kind": "Lamp"}, "does not know apiVersion 'lamp.example.com/v2'"),
        ({"kind": "Lamp"}, "does not know apiVersion None kind 'Lamp'"),
        ({}, "does not know apiVersion None kind None"),
        ({"apiVersion": [], "kind": {}}, "does not know apiVersion [] kind {}"),
        ({"apiVersion": V1, "kind": "Lamp", "watts": 0}, "Lamp: watts: must be greater than or equal to 1"),
        ({"apiVersion": V1, "kind": "Lamp", "wats": 1}, "Lamp: wats: unknown field (known: watts)"),
    ],
)
def test_a_wrong_entry_is_named_with_its_place_kind_and_field(given: dict[str, Any], message: str) -> None:
    for source, name in (("FromClass", "the DeviceClass"), ("FromClaim", "the claim")):
        wrong = read({"source": source, "opaque": {"driver": LAMPS.name, "parameters": given}})
        with pytest.raises(ConfigError) as caught:
            resolve_configs(LAMPS, REF, [result("r")], [entry("FromClass", 1), wrong])
        assert str(caught.value).startswith(f"config[1] of {name}: ")
        assert message in str(caught.value)


def test_a_wrong_entry_is_named_with_its_requests() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_configs(LAMPS, REF, [result("a")], [entry("FromClaim", 0, "a", "b/big")])
    said = "config[0] of the claim for requests a, b/big: Lamp: watts: must be greater than or equal to 1 (got 0)"
    assert str(caught.value) == said


def test_a_driver_without_configuration_says_so() -> None:
    with pytest.raises(ConfigError, match="it takes no configuration at all"):
        resolve_configs(DriverInfo(LAMPS.name), REF, [result("r")], [entry("FromClaim", 1)])


def test_the_default_is_the_first_kind() -> None:
    assert default_config(LAMPS) == Lamp()
    assert default_config(DriverInfo("x.example.com")) is None


def test_a_kind_without_defaults_must_be_brought_by_the_claim() -> None:
    with pytest.raises(ConfigError, match="a Needed config is required, and the claim has none: name: is required"):
        default_config(DriverInfo("x.example.com", configs=[Needed]))


def mine(name: str = "d", *, pool: str = "p", share: str | None = None, admin: bool = False) -> AllocatedDevice[None]:
    return AllocatedDevice("r", pool, name, None, share_id=share, admin_access=admin)


def theirs(
    name: str = "d",
    *,
    pool: str = "p",
    share: str | None = None,
    admin: bool = False,
    complete: bool = True,
    boot_id: str = "boot-1",
) -> Checkpoint:
    device = HeldDevice(request="r", pool=pool, name=name, share_id=share, admin_access=admin)
    return Checkpoint(HeldClaim("ns", "other", "u-9", (device,), complete=complete), boot_id)


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (mine(), theirs()),
        (mine(), theirs(complete=False)),
        (mine(), theirs(boot_id="boot-0")),
        (mine(share="s-1"), theirs()),
        (mine(), theirs(share="s-1")),
        (mine(share=""), theirs(share="")),
    ],
)
def test_a_held_device_is_refused_and_its_holder_named(wanted: AllocatedDevice[None], held: Checkpoint) -> None:
    with pytest.raises(DeviceHeldError, match=r"device p/d is held by claim ns/other \(u-9\)"):
        refuse_held([mine("free"), wanted], [theirs("elsewhere"), held])


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (mine(), theirs("e")),
        (mine(), theirs(pool="q")),
        (mine(admin=True), theirs()),
        (mine(), theirs(admin=True)),
        (mine(admin=True), theirs(admin=True)),
        (mine(share="s-1"), theirs(share="s-2")),
        (mine(share="s-1"), theirs(admin=True)),
    ],
)
def test_what_may_be_held_together_is_not_refused(wanted: AllocatedDevice[None], held: Checkpoint) -> None:
    refuse_held([wanted], [held])


def test_one_share_among_whole_devices_opens_no_door() -> None:
    for wanted in ([mine(), mine(share="s-1")], [mine(share="s-1"), mine()]):
        with pytest.raises(DeviceHeldError):
            refuse_held(wanted, [theirs(share="s-2")])


def test_admin_access_of_one_request_opens_no_door_for_another() -> None:
    for wanted in ([mine(admin=True), mine()], [mine(), mine(admin=True)]):
        with pytest.raises(DeviceHeldError):
            refuse_held(wanted, [theirs()])


def holding(*devices: HeldDevice) -> Checkpoint:
    return Checkpoint(HeldClaim("ns", "other", "u-9", devices), "boot-1")


def test_every_device_of_every_claim_counts() -> None:
    many = holding(*(HeldDevice("r", "p", f"d-{index}") for index in range(3)))
    with pytest.raises(DeviceHeldError, match="p/d-2"):
        refuse_held([mine("d-2")], [theirs("x"), many])


def test_nobody_else_holds_nothing() -> None:
    refuse_held([mine()], [])
    refuse_held([], [theirs()])


DAMAGED = Path("/plugins/lamps.example.com/claims/u-9.json")
COMMAND = "`dra-sdk state lamps.example.com` shows, repairs or forgets it"


def test_a_device_of_a_damaged_file_is_refused_with_the_command_to_type() -> None:
    damaged = Unreadable(DAMAGED, "state file u-9.json is damaged", theirs())
    with pytest.raises(DeviceHeldError) as caught:
        refuse_unreadable([mine("free"), mine()], [damaged])
    held = "device p/d is held by claim ns/other (u-9)"
    assert str(caught.value) == f"{held}: state file u-9.json is damaged; {COMMAND}"
    refuse_unreadable([mine("free"), mine(admin=True)], [damaged])


def test_a_file_without_content_bars_every_device_and_names_the_command() -> None:
    with pytest.raises(StateError) as caught:
        refuse_unreadable([mine("free")], [Unreadable(DAMAGED, "state file u-9.json is damaged")])
    assert str(caught.value).startswith(f"state file u-9.json is damaged; {COMMAND}; it does not say which devices")
    refuse_unreadable([mine("free")], [])


def test_a_cdi_name_of_another_claim_is_refused_and_its_holder_named() -> None:
    def named(*names: str) -> Checkpoint:
        return holding(HeldDevice("r", "p", "d", cdi_ids=tuple(f"a/b={name}" for name in names)))

    refuse_taken_names(named("x"), "a/b", [named("y"), named(), theirs()])
    with pytest.raises(HookError, match=r"the CDI name 'x', which a device of claim ns/other \(u-9\) has"):
        refuse_taken_names(named("w", "x"), "a/b", [named("y"), named("z", "x")])
    refuse_taken_names(named("x"), "c/d", [named("x")])  # a CDI device of somebody else, which any claim may have


FULL: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"namespace": "default", "name": "lamps", "uid": "u-1", "generation": 3, "labels": {"a": "b"}},
    "spec": {"devices": {"requests": [{"name": "r"}]}},
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "r/big",
                        "driver": "lamp.example.com",
                        "pool": "node-a",
                        "device": "lamp-0",
                        "adminAccess": True,
                        "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
                        "consumedCapacity": {"memory": "2Gi"},
                        "tolerations": [],
                        "aFutureField": 1,
                    }
                ],
                "config": [
                    {
                        "source": "FromClass",
                        "requests": ["r"],
                        "opaque": {"driver": "lamp.example.com", "parameters": {"apiVersion": "v1", "x": 1}},
                    }
                ],
            },
            "nodeSelector": {},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    },
}


RESULT = {"request": "r", "driver": "lamp.example.com", "pool": "node-a", "device": "lamp-0"}


def allocated(**devices: Any) -> dict[str, Any]:
    return {"status": {"allocation": {"devices": devices}}}


def test_fields_that_are_not_known_here_are_passed_over() -> None:
    status = read_status(FULL, REF)
    assert [each.name for each in status.reserved_for or ()] == ["p"]
    assert status.allocation
    (found,) = status.allocation.devices.results or ()
    assert (found.request, found.driver, found.pool, found.device) == ("r/big", "lamp.example.com", "node-a", "lamp-0")
    assert (found.admin_access, found.share_id) == (True, "a671734a-e8e5-11e4-8fde-42010af09327")
    assert found.consumed_capacity == {"memory": Quantity("2Gi")}
    (config,) = status.allocation.devices.config or ()
    assert (config.source, config.requests) == ("FromClass", ["r"])
    assert config.opaque
    assert config.opaque.parameters == {"apiVersion": "v1", "x": 1}


@pytest.mark.parametrize("devices", [None, {}, {"results": None, "config": None}, {"results": [], "config": []}])
def test_null_stands_for_absent(devices: Any) -> None:
    status = read_status({"metadata": {"uid": "u-1"}, "status": {"allocation": {"devices": devices}}}, REF)
    with pytest.raises(ClaimError, match="holds no device of driver"):
        read_claim(LAMPS, "node-a", REF, {}, status, find_device=published)


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ({"metadata": []}, "it has no metadata"),
        ({"status": {"allocation": {"devices": {"results": {}}}}}, "status.allocation.devices.results: "),
        ({"status": {"allocation": []}}, "status.allocation: "),
        ({"status": {"allocation": {"devices": [1]}}}, "status.allocation.devices: "),
        ({"status": {"reservedFor": [{"name": 7}]}}, "status.reservedFor.0.name: "),
        (
            allocated(config=[{"source": "FromClaim", "requests": [1]}]),
            "status.allocation.devices.config.0.requests.0: ",
        ),
        (allocated(results=[{**RESULT, "adminAccess": "true"}]), "status.allocation.devices.results.0.adminAccess: "),
        (allocated(results=[RESULT, {**RESULT, "pool": 1}]), "status.allocation.devices.results.1.pool: "),
        (allocated(results=[{**RESULT, "consumedCapacity": {"m": []}}]), "results.0.consumedCapacity.m: "),
    ],
)
def test_what_is_no_claim_is_refused_by_field(raw: Any, where: str) -> None:
    with pytest.raises(ClaimError, match="the API server's answer is not a ResourceClaim: ") as caught:
        read_status({"metadata": {"uid": "u-1"}, **raw}, REF)
    assert where in str(caught.value)


def test_a_configuration_from_nowhere_is_refused() -> None:
    with pytest.raises(ClaimError, match="a configuration of the claim has source 'FromHeaven', want FromClass or Fr"):
        resolve_configs(LAMPS, REF, [result("r")], [entry("FromHeaven", 1)])


def selector(*nodes: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": "In", "values": list(nodes)}]}


@pytest.mark.parametrize(
    ("terms", "refused"),
    [
        ([selector("node-b")], "node node-b"),
        ([selector("node-c", "node-b")], "node node-b, node-c"),
        ([selector("node-a", "node-b")], None),
        ([selector("node-b"), selector("node-a")], None),
        ([selector("node-b"), {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}], None),
        ([], None),
    ],
)
def test_a_claim_that_is_allocated_for_another_node_is_refused(terms: list[Any], refused: str | None) -> None:
    claim = raw({})
    claim["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
    if refused is None:
        assert len(devices(claim)) == 1
    else:
        with pytest.raises(ClaimError, match=f"the claim is allocated for {refused}, this is node-a"):
            devices(claim)
