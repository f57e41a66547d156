"""Extended resources; the table is that of the scheduler's own unit test, createRequestsAndMappings (1.36)."""

from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator.features import OF_1_34, UP_TO_1_36
from dra_sdk.tools.scheduling.cluster.extended_resources import (
    IMPLICIT_RESOURCE_PREFIX,
    classes_by_resource,
    extended_resource_claim,
)
from dra_sdk.tools.scheduling.cluster.node_filter import FreeResources
from tests.tools.scheduling.cluster.objects import device_class, node, parsed, pod

ONE, TWO, INIT = "example.com/gpu", "example.com/gpu1", "example.com/gpuinit"
OF_CLASS = f"{IMPLICIT_RESOURCE_PREFIX}class-init"
CLASSES = {ONE: "class", TWO: "class1", INIT: "class-init", OF_CLASS: "class-init"}


def containers(*wanted, kind="con", sidecars=()):
    return [
        {"name": f"{kind}{index}", "resources": {"requests": {key: str(value) for key, value in amounts.items()}}}
        | ({"restartPolicy": "Always"} if index in sidecars else {})
        for index, amounts in enumerate(wanted)
    ]


def made(init=(), main=(), sidecars=(), behaviour=UP_TO_1_36):
    spec = {
        "containers": containers(*main),
        "initContainers": containers(*init, kind="init", sidecars=sidecars),
    }
    wanted = {name for amounts in (*init, *main) for name in amounts}
    return extended_resource_claim(parsed(pod("p", **spec)), {name: CLASSES[name] for name in wanted}, behaviour)


def mappings(found):
    _, served = found
    return sorted((mapping["requestName"], mapping["containerName"], mapping["resourceName"]) for mapping in served)


def requests(found):
    claim, _ = found
    return [
        (request["name"], request["exactly"]["deviceClassName"], request["exactly"]["count"])
        for request in claim["spec"]["devices"]["requests"]
    ]


@pytest.mark.parametrize(
    ("pod_of", "expected_requests", "expected_mappings"),
    [
        (
            {"main": [{ONE: 1, TWO: 2}]},
            [("container-0-request-0", "class", 1), ("container-0-request-1", "class1", 2)],
            [("container-0-request-0", "con0", ONE), ("container-0-request-1", "con0", TWO)],
        ),
        (
            {"init": [{INIT: 1, OF_CLASS: 2}]},
            [("container-0-request-0", "class-init", 2), ("container-0-request-1", "class-init", 1)],
            [("container-0-request-0", "init0", OF_CLASS), ("container-0-request-1", "init0", INIT)],
        ),
        (
            {"main": [{ONE: 1}, {TWO: 2}]},
            [("container-0-request-0", "class", 1), ("container-1-request-0", "class1", 2)],
            [("container-0-request-0", "con0", ONE), ("container-1-request-0", "con1", TWO)],
        ),
        (
            {"init": [{INIT: 2}], "main": [{ONE: 1}]},
            [("container-0-request-0", "class-init", 2), ("container-1-request-0", "class", 1)],
            [("container-0-request-0", "init0", INIT), ("container-1-request-0", "con0", ONE)],
        ),
        (
            {"init": [{INIT: 1}, {INIT: 2}], "main": [{ONE: 1}]},
            [("container-1-request-0", "class-init", 2), ("container-2-request-0", "class", 1)],
            [
                ("container-1-request-0", "init0", INIT),
                ("container-1-request-0", "init1", INIT),
                ("container-2-request-0", "con0", ONE),
            ],
        ),
        (
            {"init": [{INIT: 1}, {INIT: 1}, {INIT: 2}], "main": [{ONE: 1}], "sidecars": {1}},
            [
                ("container-1-request-0", "class-init", 1),
                ("container-2-request-0", "class-init", 2),
                ("container-3-request-0", "class", 1),
            ],
            [
                ("container-1-request-0", "init0", INIT),
                ("container-1-request-0", "init1", INIT),
                ("container-2-request-0", "init2", INIT),
                ("container-3-request-0", "con0", ONE),
            ],
        ),
        (
            {"init": [{ONE: 3}], "main": [{ONE: 1}, {ONE: 1}]},
            [
                ("container-0-request-0", "class", 1),
                ("container-1-request-0", "class", 1),
                ("container-2-request-0", "class", 1),
            ],
            [
                ("container-0-request-0", "init0", ONE),
                ("container-1-request-0", "con0", ONE),
                ("container-1-request-0", "init0", ONE),
                ("container-2-request-0", "con1", ONE),
                ("container-2-request-0", "init0", ONE),
            ],
        ),
    ],
)
def test_requests_and_mappings(pod_of, expected_requests, expected_mappings):
    mapped = made(**pod_of)
    assert requests(mapped) == expected_requests
    assert mappings(mapped) == expected_mappings


def test_in_1_34_each_container_has_a_request_of_its_own():
    init, main = [{ONE: 1}, {ONE: 1}, {ONE: 2}], [{ONE: 1}]
    counts = {
        behaviour: [count for _, _, count in requests(made(init, main, {1}, behaviour))]
        for behaviour in (UP_TO_1_36, OF_1_34)
    }
    assert counts == {UP_TO_1_36: [1, 1, 1], OF_1_34: [1, 1, 2, 1]}
    served = mappings(made(init, main, {1}, OF_1_34))
    assert [(name, container) for name, container, _ in served] == [
        ("container-0-request-0", "init0"),
        ("container-1-request-0", "init1"),
        ("container-2-request-0", "init2"),
        ("container-3-request-0", "con0"),
    ]


def test_in_1_34_a_class_with_a_resource_has_no_implicit_one():
    classes = [device_class("a", extendedResourceName=ONE), device_class("b")]
    assert classes_by_resource(classes, OF_1_34) == {ONE: "a", f"{IMPLICIT_RESOURCE_PREFIX}b": "b"}
    assert f"{IMPLICIT_RESOURCE_PREFIX}a" in classes_by_resource(classes)


def test_in_1_34_a_device_plugin_without_devices_offers_the_resource():
    where = node("n", allocatable={ONE: "0"})
    assert FreeResources([where], OF_1_34).has_device_plugin("n", ONE)
    assert not FreeResources([where]).has_device_plugin("n", ONE)


def test_the_claim_has_owner_reference_and_annotation():
    claim, _ = made(main=[{ONE: 1}])
    metadata = claim["metadata"]
    assert metadata["name"].startswith("p-extended-resources-")
    assert metadata["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": True}
    assert metadata["ownerReferences"] == [owner]


def test_of_several_classes_for_a_resource_the_newest_wins():
    def cls(name, created=None):
        made = device_class(name, extendedResourceName=ONE)
        if created:
            made["metadata"]["creationTimestamp"] = created
        return made

    assert classes_by_resource([cls("b"), cls("a")])[ONE] == "a"
    class_names = classes_by_resource([cls("a", "2026-01-01T00:00:00Z"), cls("b", "2026-01-02T00:00:00Z")])
    assert class_names[ONE] == "b"
    assert class_names[f"{IMPLICIT_RESOURCE_PREFIX}a"] == "a"


def test_a_class_that_loses_its_resource_has_no_implicit_name():
    older = device_class("a", extendedResourceName=ONE)
    older["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert classes_by_resource(
        [device_class("c", extendedResourceName=ONE), device_class("b", extendedResourceName=ONE)]
    ) == {
        ONE: "b",
        f"{IMPLICIT_RESOURCE_PREFIX}b": "b",
    }
    younger = device_class("b", extendedResourceName=ONE)
    younger["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    assert classes_by_resource([younger, older]) == {
        ONE: "b",
        f"{IMPLICIT_RESOURCE_PREFIX}a": "a",
        f"{IMPLICIT_RESOURCE_PREFIX}b": "b",
    }
