from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, claim, found, request

RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
UUID = "00000000-0000-4000-8000-00000000000a"
AT = "status.allocation"


def problems(allocation, version="1.36", **options):
    requests = [request(), {"name": "other", "firstAvailable": [{"name": "large", "deviceClassName": "a"}]}]
    obj = claim(*requests, status={"allocation": allocation})
    return found(obj, version, old=claim(*requests), subresource="status", **options)


def results(**changes):
    return {"devices": {"results": [{**RESULT, **changes}]}}


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
def test_results(changes, expected, version):
    assert problems(results(**changes), version) == {
        (f"{AT}.devices.results[0].{field}", kind) for field, kind in expected
    }


@pytest.mark.parametrize(
    ("changes", "field", "kind"),
    [
        ({"tolerations": [{"operator": "Like"}]}, "tolerations[0].operator", "NotSupported"),
        ({"skipNodeOperations": ["NodePrepareResources"]}, "skipNodeOperations", "Invalid"),
    ],
)
def test_what_only_1_37_checks(changes, field, kind):
    assert problems(results(**changes), "1.37") == {(f"{AT}.devices.results[0].{field}", kind)}
    assert (f"{AT}.devices.results[0].{field}", kind) not in problems(results(**changes), "1.36")


def test_how_many():
    config = {"source": "FromClaim", "opaque": {"driver": "a.com", "parameters": {}}}
    assert problems({"devices": {"results": [RESULT] * 32, "config": [config] * 64}}) == set()
    assert problems({"devices": {"results": [RESULT] * 33, "config": [config] * 65}}) == {
        (f"{AT}.devices.results", "TooMany"),
        (f"{AT}.devices.config", "TooMany"),
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
def test_configuration(changes, expected):
    config = {"source": "FromClaim", "opaque": {"driver": "a.com", "parameters": {}}, **changes}
    allocation = {"devices": {"config": [config]}}
    assert problems(allocation) == {(f"{AT}.devices.config[0].{field}", kind) for field, kind in expected}


def test_nodes():
    assert problems({"nodeSelector": {}}) == {(f"{AT}.nodeSelector.nodeSelectorTerms", "Required")}
    assert problems({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}) == set()


def test_an_allocation_can_be_cleared_but_not_changed():
    old = claim(status={"allocation": results()})
    assert found(claim(), old=old, subresource="status") == set()
    assert found(old, old=old, subresource="status") == set()
    new = claim(status={"allocation": results(device="gpu-1")})
    assert found(new, old=old, subresource="status") == {(AT, "Invalid")}
