from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, changed, device_class, found, taint_rule

SERVED = {"1.34": "v1alpha3", "1.35": "v1alpha3", "1.36": "v1beta2", "1.37": "v1"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, set()),
        ({"extendedResourceName": "example.com/gpu"}, set()),
        ({"extendedResourceName": "kubernetes.io/gpu"}, {("extendedResourceName", "Invalid")}),
        ({"config": [{}]}, {("config[0].opaque", "Required")}),
        ({"config": [{"opaque": {"driver": "a.com", "parameters": {}}}] * 33}, {("config", "TooMany")}),
    ],
)
def test_rules_of_classes_are_checked(spec, expected, version):
    assert found(device_class(**spec), version) == {(f"spec.{field}", kind) for field, kind in expected}


def test_a_class_may_change():
    new = device_class(selectors=[{"cel": {"expression": "true"}}])
    assert found(new, old=device_class()) == set()


def test_selectors_that_stay_are_trusted_since_1_37():
    old = device_class(selectors=[{"cel": {"expression": "1" * 10241}}])
    new = changed(old, "spec", "extendedResourceName", to="a.com/gpu")
    assert found(new, "1.37", old=old) == set()
    assert found(new, "1.36", old=old) == {("spec.selectors[0].cel.expression", "TooLong")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, set()),
        ({"deviceSelector": {}}, set()),
        ({"deviceSelector": {"driver": "a.com", "pool": "a/b", "device": "gpu-0"}}, set()),
        ({"deviceSelector": {"driver": ""}}, {("deviceSelector.driver", "Required")}),
        ({"deviceSelector": {"pool": "A"}}, {("deviceSelector.pool", "Invalid")}),
        ({"deviceSelector": {"device": "A"}}, {("deviceSelector.device", "Invalid")}),
        ({"taint": {"key": "a"}}, {("taint.effect", "Required")}),
        ({"taint": {"key": "", "effect": "NoExecute"}}, {("taint.key", "Invalid")}),
    ],
)
def test_rules_of_taint_rules_are_checked(spec, expected, version):
    assert found(taint_rule(SERVED[version], **spec), version) == {(f"spec.{field}", kind) for field, kind in expected}


def test_1_34_selects_by_class_and_expression_too():
    spec = {"deviceSelector": {"deviceClassName": "A", "selectors": [{}]}}
    assert found(taint_rule("v1alpha3", **spec), "1.34") == {
        ("spec.deviceSelector.deviceClassName", "Invalid"),
        ("spec.deviceSelector.selectors[0].cel", "Required"),
    }
    assert found(taint_rule("v1alpha3", **spec), "1.35") == {
        ("spec.deviceSelector.deviceClassName", "Unknown"),
        ("spec.deviceSelector.selectors", "Unknown"),
    }


def test_an_effect_that_is_stored_may_stay_since_1_35():
    old = taint_rule("v1alpha3", taint={"key": "a", "effect": "FromTheFuture"})
    new = changed(old, "spec", "taint", "value", to="b")
    assert found(new, "1.35", old=old) == set()
    assert found(new, "1.34", old=old) == {("spec.taint.effect", "NotSupported")}
    other = changed(old, "spec", "taint", "effect", to="Other")
    assert found(other, "1.35", old=old) == {("spec.taint.effect", "NotSupported")}
