from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, changed, claim, found, request

RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
SHARED = {**RESULT, "device": "gpu-1", "shareID": "00000000-0000-4000-8000-00000000000a"}
DEVICE = {name: RESULT[name] for name in ("driver", "pool", "device")}
USER = {"resource": "pods", "name": "a", "uid": "1"}
ALLOCATION = {"devices": {"results": [RESULT, SHARED]}}
OLD = claim(status={"allocation": ALLOCATION})


def problems(version="1.36", old=OLD, **status):
    return found(claim(status={"allocation": ALLOCATION, **status}), version, old=old, subresource="status")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ([USER, {**USER, "apiGroup": "a.com", "uid": "2"}], set()),
        ([{**USER, "resource": ""}], {("[0].resource", "Required")}),
        ([{**USER, "name": ""}], {("[0].name", "Required")}),
        ([{**USER, "uid": ""}], {("[0].uid", "Required")}),
        ([USER, {**USER, "name": "b"}], None),
        ([{**USER, "uid": str(index)} for index in range(256)], set()),
        ([{**USER, "uid": str(index)} for index in range(257)], {("", "TooMany")}),
    ],
)
def test_consumers_are_unique_and_limited(users, expected, version):
    if expected is None:
        expected = {("[1].uid" if version == "1.34" else "[1]", "Duplicate")}
    assert problems(version, reservedFor=users) == {(f"status.reservedFor{field}", kind) for field, kind in expected}


def test_consumers_need_an_allocation():
    new = claim(status={"reservedFor": [USER]})
    assert found(new, old=OLD, subresource="status") == {("status.reservedFor", "Forbidden")}


def test_no_consumer_is_added_while_the_claim_is_being_deleted():
    old = changed(
        claim(status={"allocation": ALLOCATION, "reservedFor": [USER]}),
        "metadata",
        "deletionTimestamp",
        to="2026-01-01T00:00:00Z",
    )
    fewer = changed(old, "status", "reservedFor", to=[])
    more = changed(old, "status", "reservedFor", to=[USER, {**USER, "uid": "2"}])
    assert found(fewer, old=old, subresource="status") == set()
    assert found(more, old=old, subresource="status") == {("status.reservedFor", "Forbidden")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (DEVICE, set()),
        ({**DEVICE, "device": "gpu-1", "shareID": SHARED["shareID"]}, set()),
        ({**DEVICE, "device": "gpu-1"}, {("", "Invalid")}),
        ({**DEVICE, "device": "gpu-2"}, {("", "Invalid")}),
        ({**DEVICE, "pool": ""}, {("", "Invalid"), ("pool", "Required")}),
        ({**DEVICE, "shareID": "x"}, {("", "Invalid"), ("shareID", "Invalid")}),
        ({**DEVICE, "data": {"any": "thing"}}, set()),
        ({**DEVICE, "data": []}, {("data", "Invalid")}),
        ({**DEVICE, "data": {"x": "y" * 10240}}, {("data", "TooLong")}),
        (
            {
                **DEVICE,
                "conditions": [
                    {"type": "a b", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                ],
            },
            {("conditions[0].type", "Invalid")},
        ),
        ({**DEVICE, "networkData": {}}, set()),
        ({**DEVICE, "networkData": {"interfaceName": "é" * 128, "hardwareAddress": "a" * 128}}, set()),
        ({**DEVICE, "networkData": {"interfaceName": "é" * 129}}, {("networkData.interfaceName", "TooLong")}),
        ({**DEVICE, "networkData": {"hardwareAddress": "a" * 129}}, {("networkData.hardwareAddress", "TooLong")}),
        (
            {**DEVICE, "networkData": {"ips": [f"10.0.0.{last}/24" for last in range(17)]}},
            {("networkData.ips", "TooMany")},
        ),
        ({**DEVICE, "networkData": {"ips": ["10.0.0.1/24", "10.0.0.1/24"]}}, {("networkData.ips[1]", "Duplicate")}),
    ],
)
def test_rules_of_device_status_are_checked(device, expected, version):
    expected = {(f"status.devices[0].{field}".rstrip("."), kind) for field, kind in expected}
    got = problems(version, devices=[device])
    if version == "1.34" and ("status.devices[0].networkData.ips", "TooMany") in expected:
        assert expected <= got
    else:
        assert got == expected


@pytest.mark.parametrize(("version", "field"), [("1.34", ".deviceID"), ("1.36", "")])
def test_each_device_has_one_entry(version, field):
    assert problems(version, devices=[DEVICE, DEVICE]) == {(f"status.devices[1]{field}", "Duplicate")}


@pytest.mark.parametrize("address", ["10.9.8.7/24", "2001:db8::1/64", "::/0", "10.0.0.0/32", "fe80::1/64"])
def test_canonical_addresses_are_accepted(address):
    assert problems(devices=[{**DEVICE, "networkData": {"ips": [address]}}]) == set()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "10.9.8.7",
        "10.9.8.07/24",
        "10.9.8.7/255.255.255.0",
        "2001:DB8::1/64",
        "2001:db8:0::1/64",
        "::ffff:1.2.3.4/120",
        "::ffff:102:304/120",
        "fe80::1%eth0/64",
        "10.9.8.7/33",
    ],
)
def test_other_addresses_are_refused(address):
    at = "status.devices[0].networkData.ips[0]"
    assert problems(devices=[{**DEVICE, "networkData": {"ips": [address]}}]) == {(at, "Invalid")}


ALLOCATED = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
UUID = "00000000-0000-4000-8000-00000000000a"
ALLOCATION_FIELD = "status.allocation"


def allocation_problems(allocation, version="1.36", **options):
    requests = [request(), {"name": "other", "firstAvailable": [{"name": "large", "deviceClassName": "a"}]}]
    obj = claim(*requests, status={"allocation": allocation})
    return found(obj, version, old=claim(*requests), subresource="status", **options)


def results(**changes):
    return {"devices": {"results": [{**ALLOCATED, **changes}]}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        (
            {"request": "other/large", "adminAccess": True, "shareID": UUID, "consumedCapacity": {"memory": "1Gi"}},
            set(),
        ),
        ({"request": "missing"}, {("request", "Invalid")}),
        ({"request": "gpu/large"}, {("request", "Invalid")}),
        ({"driver": "a b"}, {("driver", "Invalid")}),
        ({"pool": ""}, {("pool", "Required")}),
        ({"device": "A"}, {("device", "Invalid")}),
        ({"shareID": UUID.upper()}, {("shareID", "Invalid")}),
        ({"bindingConditions": ["a"]}, {("bindingFailureConditions", "Invalid")}),
    ],
)
def test_rules_of_results_are_checked(changes, expected, version):
    assert allocation_problems(results(**changes), version) == {
        (f"{ALLOCATION_FIELD}.devices.results[0].{field}", kind) for field, kind in expected
    }


@pytest.mark.parametrize(
    ("changes", "field", "kind"),
    [
        ({"tolerations": [{"operator": "Like"}]}, "tolerations[0].operator", "NotSupported"),
        ({"skipNodeOperations": ["NodePrepareResources"]}, "skipNodeOperations", "Invalid"),
    ],
)
def test_tolerations_and_operations_are_checked_since_1_37(changes, field, kind):
    assert allocation_problems(results(**changes), "1.37") == {(f"{ALLOCATION_FIELD}.devices.results[0].{field}", kind)}
    assert (f"{ALLOCATION_FIELD}.devices.results[0].{field}", kind) not in allocation_problems(
        results(**changes), "1.36"
    )


def test_the_number_of_results_and_configs_is_limited():
    config = {"source": "FromClaim", "opaque": {"driver": "a.com", "parameters": {}}}
    assert allocation_problems({"devices": {"results": [ALLOCATED] * 32, "config": [config] * 64}}) == set()
    assert allocation_problems({"devices": {"results": [ALLOCATED] * 33, "config": [config] * 65}}) == {
        (f"{ALLOCATION_FIELD}.devices.results", "TooMany"),
        (f"{ALLOCATION_FIELD}.devices.config", "TooMany"),
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"source": "FromClass", "requests": ["gpu"]}, set()),
        ({"source": ""}, {("source", "Required")}),
        ({"source": "FromNowhere"}, {("source", "NotSupported")}),
        ({"requests": ["missing"]}, {("requests[0]", "Invalid")}),
        ({"opaque": None}, {("opaque", "Required")}),
        ({"opaque": {"driver": "a.com", "parameters": {"x": "y" * 10240}}}, {("opaque.parameters", "TooLong")}),
    ],
)
def test_rules_of_allocated_configuration_are_checked(changes, expected):
    config = {"source": "FromClaim", "opaque": {"driver": "a.com", "parameters": {}}, **changes}
    allocation = {"devices": {"config": [config]}}
    assert allocation_problems(allocation) == {
        (f"{ALLOCATION_FIELD}.devices.config[0].{field}", kind) for field, kind in expected
    }


def test_the_node_selector_of_an_allocation_is_checked():
    assert allocation_problems({"nodeSelector": {}}) == {
        (f"{ALLOCATION_FIELD}.nodeSelector.nodeSelectorTerms", "Required")
    }
    assert allocation_problems({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}) == set()


def test_an_allocation_can_be_cleared_but_not_changed():
    old = claim(status={"allocation": results()})
    assert found(claim(), old=old, subresource="status") == set()
    assert found(old, old=old, subresource="status") == set()
    new = claim(status={"allocation": results(device="gpu-1")})
    assert found(new, old=old, subresource="status") == {(ALLOCATION_FIELD, "Invalid")}
