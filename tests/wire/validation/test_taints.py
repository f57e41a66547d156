from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, changed, claim, device, found, request, resource_slice

AT, TOLERATED = "spec.devices[0].taints", "spec.devices.requests[0].exactly.tolerations"
TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}


def tainted(*taints):
    return resource_slice(device(taints=list(taints)))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        (TAINT, set()),
        ({**TAINT, "value": "hot", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}, set()),
        ({"effect": "NoSchedule"}, {("key", "Invalid")}),
        ({**TAINT, "key": "a b"}, {("key", "Invalid")}),
        ({**TAINT, "value": "a b"}, {("value", "Invalid")}),
        ({"key": "a"}, {("effect", "Required")}),
        ({**TAINT, "effect": "Maybe"}, {("effect", "NotSupported")}),
    ],
)
def test_taints(taint, expected, version):
    assert found(tainted(taint), version) == {(f"{AT}[0].{field}", kind) for field, kind in expected}


def test_the_effect_none_came_with_1_35():
    obj = tainted({**TAINT, "effect": "None"})
    assert found(obj, "1.34") == {(f"{AT}[0].effect", "NotSupported")}
    assert found(obj, "1.35") == set()


@pytest.mark.parametrize(("version", "limit"), [("1.34", 4), ("1.35", 16), ("1.36", 16), ("1.37", 16)])
def test_how_many(version, limit):
    assert found(tainted(*[TAINT] * limit), version) == set()
    assert found(tainted(*[TAINT] * (limit + 1)), version) == {(AT, "TooMany")}


def test_stored_taints_may_stay_since_1_35():
    old = tainted({**TAINT, "effect": "FromTheFuture"})
    new = changed(old, "spec", "devices", 0, "attributes", to={"a": {"int": 1}})
    assert found(new, "1.36", old=old) == set()
    assert found(new, "1.34", old=old) == {(f"{AT}[0].effect", "NotSupported")}
    more = changed(new, "spec", "devices", 0, "taints", to=[*old["spec"]["devices"][0]["taints"], TAINT])
    assert found(more, "1.36", old=old) == {(f"{AT}[0].effect", "NotSupported")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({}, set()),
        ({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}, set()),
        ({"operator": "Exists"}, set()),
        ({"key": "a b"}, {("key", "Invalid")}),
        ({"operator": "Exists", "value": "b"}, {("value", "Invalid")}),
        ({"operator": "Equal", "value": "a b"}, {("value", "Invalid")}),
        ({"operator": "Like"}, {("operator", "NotSupported")}),
        ({"effect": "Maybe"}, {("effect", "NotSupported")}),
    ],
)
def test_tolerations(toleration, expected, version):
    obj = claim(request(tolerations=[toleration]))
    assert found(obj, version) == {(f"{TOLERATED}[0].{field}", kind) for field, kind in expected}


def test_the_number_of_tolerations_is_declared_but_not_enforced():
    assert found(claim(request(tolerations=[{}] * 17))) == set()
