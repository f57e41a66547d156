from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, device, found, resource_slice

AT = "spec.devices[0]"
GOOD, BAD = "bindingConditions", "bindingFailureConditions"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (["a.com/ready"], ["a.com/failed"], set()),
        (list("abcd"), list("efgh"), set()),
        (["a"], [], {(BAD, "Invalid")}),
        ([], ["a"], {(GOOD, "Invalid")}),
        (["a b"], ["c"], {(f"{GOOD}[0]", "Invalid")}),
        (["a"], ["b c"], {(f"{BAD}[0]", "Invalid")}),
        (["a", "a"], ["b"], {(f"{GOOD}[1]", "Duplicate")}),
        (["a"], ["b", "b"], {(f"{BAD}[1]", "Duplicate")}),
        (["a"], ["b", "a"], {(f"{BAD}[1]", "Invalid")}),
        (list("abcde"), ["x"], {(GOOD, "TooMany")}),
        (["x"], list("abcde"), {(BAD, "TooMany")}),
    ],
)
def test_conditions_of_binding(good, bad, expected, version):
    obj = resource_slice(device(bindingConditions=good, bindingFailureConditions=bad, bindsToNode=True))
    assert found(obj, version) == {(f"{AT}.{field}", kind) for field, kind in expected}
