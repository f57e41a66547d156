from __future__ import annotations

import pytest

from dra_sdk.wire.validation.conditions import MAX_MESSAGE, MAX_REASON
from tests.wire.validation.objects import changed, found, taint_rule

GOOD = {"type": "a.com/Done", "status": "True", "reason": "AllGone", "lastTransitionTime": "2026-01-01T00:00:00Z"}
AT = "status.conditions"


def problems(*conditions, version="1.36"):
    rule = taint_rule("v1beta2" if version == "1.36" else "v1")
    return found(changed(rule, "status", to={"conditions": list(conditions)}), version, old=rule, subresource="status")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"reason": "A:b,c_", "message": "m" * MAX_MESSAGE, "observedGeneration": 3}, set()),
        ({"type": "a b"}, {("type", "Invalid")}),
        ({"status": "Perhaps"}, {("status", "NotSupported")}),
        ({"observedGeneration": -1}, {("observedGeneration", "Invalid")}),
        ({"lastTransitionTime": None}, {("lastTransitionTime", "Required")}),
        ({"reason": ""}, {("reason", "Required")}),
        ({"reason": "not one word"}, {("reason", "Invalid")}),
        ({"reason": "r" * (MAX_REASON + 1)}, {("reason", "TooLong")}),
        ({"message": "m" * (MAX_MESSAGE + 1)}, {("message", "TooLong")}),
    ],
)
def test_one_condition(changes, expected):
    for version in ("1.36", "1.37"):
        assert problems({**GOOD, **changes}, version=version) == {
            (f"{AT}[0].{field}", kind) for field, kind in expected
        }


@pytest.mark.parametrize(("field", "kind"), [("type", "Invalid"), ("status", "NotSupported")])
def test_what_is_missing_is_called_so_since_1_37(field, kind):
    assert problems({**GOOD, field: ""}) == {(f"{AT}[0].{field}", kind)}
    assert problems({**GOOD, field: ""}, version="1.37") == {(f"{AT}[0].{field}", "Required")}


def test_each_type_once():
    assert problems(GOOD, GOOD) == {(f"{AT}[1].type", "Duplicate")}
    assert problems(GOOD, GOOD, version="1.37") == {(f"{AT}[1]", "Duplicate")}


def test_how_many():
    conditions = [{**GOOD, "type": f"T{index}"} for index in range(9)]
    assert problems(*conditions[:8]) == set()
    assert problems(*conditions) == {(AT, "TooMany")}
