from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, changed, claim, device, found, request, resource_slice

AT = "spec.devices[0]"


def ints(count, prefix="a"):
    return {f"{prefix}{index}": {"int": index} for index in range(count)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["", "GPU", "gpu.0", "g" * 64])
def test_device_names_are_dns_labels(name, version):
    assert found(resource_slice(device(name)), version) == {(f"{AT}.name", "Invalid")}


@pytest.mark.parametrize("version", VERSIONS)
def test_attributes_and_capacities_are_limited_together(version):
    capacity = {"memory": {"value": "1Gi"}}
    assert found(resource_slice(device(attributes=ints(31), capacity=capacity)), version) == set()
    assert found(resource_slice(device(attributes=ints(32), capacity=capacity)), version) == {(AT, "Invalid")}


@pytest.mark.parametrize(("version", "expected"), [("1.36", {(AT, "Invalid")}), ("1.37", {(AT, "Invalid")})])
def test_attribute_values_are_limited(version, expected):
    fits = {"ids": {"ints": list(range(47))}, **ints(1)}
    assert found(resource_slice(device(attributes=fits)), version) == set()
    assert found(resource_slice(device(attributes={**fits, **ints(1, "b")})), version) == expected


def test_names_of_attributes_and_capacities_are_checked():
    obj = resource_slice(device(attributes={"a-b": {"int": 1}}, capacity={"c-d": {"value": "1"}}))
    assert found(obj, "1.36") == {(f"{AT}.attributes", "Invalid"), (f"{AT}.capacity", "Invalid")}
    assert found(obj, "1.35") == {(f"{AT}.attributes[a-b]", "Invalid"), (f"{AT}.capacity[c-d]", "Invalid")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"nodeName": "a"}, set()),
        ({"allNodes": True}, set()),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, set()),
        ({}, {("", "Required")}),
        ({"nodeName": "a", "allNodes": True}, {("", "Invalid")}),
        ({"nodeName": ""}, {("", "Required"), (".nodeName", "Invalid")}),
        ({"nodeName": "A"}, {(".nodeName", "Invalid")}),
        ({"allNodes": False}, {("", "Required"), (".allNodes", "Invalid")}),
        ({"nodeSelector": {}}, {(".nodeSelector.nodeSelectorTerms", "Required")}),
    ],
)
def test_rules_of_device_nodes_are_checked(nodes, expected, version):
    obj = resource_slice(device(**nodes), nodeName=None, perDeviceNodeSelection=True)
    assert found(obj, version) == {(f"{AT}{field}", kind) for field, kind in expected}


@pytest.mark.parametrize("nodes", [{"nodeName": "a"}, {"allNodes": False}, {"nodeSelector": {}}])
def test_device_nodes_need_per_device_node_selection(nodes):
    assert found(resource_slice(device(**nodes))) == {(AT, "Invalid")}


ATTRIBUTE = "spec.devices[0].attributes[a]"


def attribute_problems(attribute, version="1.36"):
    return found(resource_slice(device(attributes={"a": attribute})), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "attribute", [{"int": -1}, {"bool": False}, {"string": ""}, {"string": "x" * 64}, {"version": "1.2.3-rc.1"}]
)
def test_good_attribute_values_have_no_problems(attribute, version):
    assert attribute_problems(attribute, version) == set()


@pytest.mark.parametrize(
    "attribute", [{"ints": [1, 2]}, {"bools": [True]}, {"strings": ["", "x" * 64]}, {"versions": ["1.2.3"]}]
)
def test_lists_came_with_1_36(attribute):
    (name,) = attribute
    assert attribute_problems(attribute, "1.36") == attribute_problems(attribute, "1.37") == set()
    assert attribute_problems(attribute, "1.35") == {(f"{ATTRIBUTE}.{name}", "Unknown"), (ATTRIBUTE, "Invalid")}
    assert attribute_problems(attribute, "1.34") == {(f"{ATTRIBUTE}.{name}", "Unknown"), (ATTRIBUTE, "Required")}


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({}, {(ATTRIBUTE, "Invalid")}),
        ({"int": 1, "bool": True}, {(ATTRIBUTE, "Invalid")}),
        ({"int": 1, "ints": [1]}, {(ATTRIBUTE, "Invalid")}),
        ({"string": "é" * 33}, {(f"{ATTRIBUTE}.string", "TooLong")}),
        ({"version": "v1"}, {(f"{ATTRIBUTE}.version", "Invalid")}),
        ({"version": f"1.0.0-{'a' * 60}"}, {(f"{ATTRIBUTE}.version", "TooLong")}),
        ({"strings": ["", "x" * 65]}, {(f"{ATTRIBUTE}.strings[1]", "TooLong")}),
        ({"versions": ["1.0.0", "1"]}, {(f"{ATTRIBUTE}.versions[1]", "Invalid")}),
    ],
)
def test_each_broken_rule_of_an_attribute_is_reported(attribute, expected):
    assert attribute_problems(attribute) == attribute_problems(attribute, "1.37") == expected


def test_an_empty_list_counts_as_no_value_since_1_37():
    assert attribute_problems({"ints": []}, "1.36") == {(f"{ATTRIBUTE}.ints", "Invalid")}
    assert attribute_problems({"ints": []}, "1.37") == {(f"{ATTRIBUTE}.ints", "Invalid"), (ATTRIBUTE, "Invalid")}
    for version in ("1.36", "1.37"):
        assert attribute_problems({"ints": [], "int": 1}, version) == {
            (f"{ATTRIBUTE}.ints", "Invalid"),
            (ATTRIBUTE, "Invalid"),
        }


TAINTS, TOLERATED = "spec.devices[0].taints", "spec.devices.requests[0].exactly.tolerations"
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
def test_rules_of_taints_are_checked(taint, expected, version):
    assert found(tainted(taint), version) == {(f"{TAINTS}[0].{field}", kind) for field, kind in expected}


def test_the_effect_none_came_with_1_35():
    obj = tainted({**TAINT, "effect": "None"})
    assert found(obj, "1.34") == {(f"{TAINTS}[0].effect", "NotSupported")}
    assert found(obj, "1.35") == set()


@pytest.mark.parametrize(("version", "limit"), [("1.34", 4), ("1.35", 16), ("1.36", 16), ("1.37", 16)])
def test_the_number_of_taints_is_limited(version, limit):
    assert found(tainted(*[TAINT] * limit), version) == set()
    assert found(tainted(*[TAINT] * (limit + 1)), version) == {(TAINTS, "TooMany")}


def test_stored_taints_may_stay_since_1_35():
    old = tainted({**TAINT, "effect": "FromTheFuture"})
    new = changed(old, "spec", "devices", 0, "attributes", to={"a": {"int": 1}})
    assert found(new, "1.36", old=old) == set()
    assert found(new, "1.34", old=old) == {(f"{TAINTS}[0].effect", "NotSupported")}
    more = changed(new, "spec", "devices", 0, "taints", to=[*old["spec"]["devices"][0]["taints"], TAINT])
    assert found(more, "1.36", old=old) == {(f"{TAINTS}[0].effect", "NotSupported")}


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
def test_rules_of_tolerations_are_checked(toleration, expected, version):
    obj = claim(request(tolerations=[toleration]))
    assert found(obj, version) == {(f"{TOLERATED}[0].{field}", kind) for field, kind in expected}


def test_the_declared_limit_of_tolerations_is_not_enforced():
    assert found(claim(request(tolerations=[{}] * 17))) == set()


DEVICE = "spec.devices[0]"
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
def test_rules_of_binding_conditions_are_checked(good, bad, expected, version):
    obj = resource_slice(device(bindingConditions=good, bindingFailureConditions=bad, bindsToNode=True))
    assert found(obj, version) == {(f"{DEVICE}.{field}", kind) for field, kind in expected}
