from __future__ import annotations

from dra_sdk.tools.simulator.managed_fields import ITEM, Managed, Manager, after_update, shown, values_of

GPU = 'k:{"device":"a","driver":"gpu","pool":"p"}'
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "uid": "1", "labels": {"x": "y"}, "finalizers": ["f"]},
    "spec": {"devices": {"requests": [{"name": "r"}]}},
    "status": {"devices": [{"driver": "gpu", "pool": "p", "device": "a", "data": {"free": {"form": 1}}}]},
}


def test_the_fields_of_an_object() -> None:
    assert values_of(CLAIM) == {
        ("f:metadata", "f:labels", "f:x"): "y",
        ("f:metadata", "f:finalizers", 'v:"f"'): "f",
        ("f:spec", "f:devices", "f:requests"): [{"name": "r"}],
        ("f:status", "f:devices", GPU): ITEM,
        ("f:status", "f:devices", GPU, "f:driver"): "gpu",
        ("f:status", "f:devices", GPU, "f:pool"): "p",
        ("f:status", "f:devices", GPU, "f:device"): "a",
        ("f:status", "f:devices", GPU, "f:data"): {"free": {"form": 1}},
    }


def test_paths_as_they_are_shown() -> None:
    assert shown(("f:status", "f:devices", GPU, "f:data")) == '.status.devices[device="a",driver="gpu",pool="p"].data'
    assert shown(("f:metadata", "f:finalizers", 'v:"f"')) == '.metadata.finalizers[="f"]'


def test_ownership_is_read_as_it_was_written() -> None:
    manager = Manager("m", "Apply", "status")
    fields = frozenset(values_of(CLAIM))
    managed = Managed({}).given(manager, fields, (), time="t", api_version="v1")
    read = Managed.of({"metadata": {"managedFields": managed.encoded()}})
    assert read.owners == managed.owners
    assert read.fields_of_others(manager) == frozenset()


def test_an_update_owns_what_it_changed_and_nobody_else_does() -> None:
    def updated(before: dict[str, object] | None, after: dict[str, object], name: str) -> dict[str, set[str]]:
        manager = Manager(name, "Update")
        fields = after_update(before, after, manager, time=f"by {name}", api_version="v1")  # type: ignore[arg-type]
        after["metadata"] = {"managedFields": fields}
        return {entry["manager"]: set(entry["fieldsV1"]["f:spec"]) for entry in fields}

    first: dict[str, object] = {"metadata": {}, "spec": {"a": 1, "b": 1, "c": 1}}
    assert updated(None, first, "one") == {"one": {"f:a", "f:b", "f:c"}}
    second: dict[str, object] = {"metadata": {}, "spec": {"a": 1, "b": 2, "d": 1}}
    assert updated(first, second, "two") == {"one": {"f:a"}, "two": {"f:b", "f:d"}}
    third: dict[str, object] = {"metadata": {}, "spec": {"d": 1, "b": 2}}
    assert updated(second, third, "three") == {"two": {"f:b", "f:d"}}
