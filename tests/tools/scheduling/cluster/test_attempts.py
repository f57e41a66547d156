from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator import Allocated, AllocationError, Allocator, Features, Inventory
from dra_sdk.tools.scheduling.cluster.amounts import Room
from dra_sdk.tools.scheduling.cluster.attempts import Attempts, Fit, Misfit
from dra_sdk.tools.scheduling.cluster.core import Node
from dra_sdk.tools.scheduling.cluster.names import key_of
from dra_sdk.tools.scheduling.cluster.wishes import wish_of
from tests.tools.scheduling.allocator.build import of_1_37
from tests.tools.scheduling.cluster.objects import (
    allocated,
    claim,
    device_class,
    gpus,
    node,
    parsed,
    pod,
    request,
    wanting,
)

OLDER = Features()
CLASSES = {"gpu": device_class(extendedResourceName="example.com/gpu")}


def attempt(made, *claims, where=None, slices=None, features=OLDER):
    where = where or node("node-a")
    found = Node.model_validate(where)
    inventory = Inventory(slices or [gpus("node-a", "gpu-0")], features)
    attempts = Attempts(Allocator(inventory, CLASSES), Allocated.of(claims), Room([found]))
    wish = wish_of(parsed(made), {key_of(each): each for each in claims}, CLASSES, {"example.com/gpu": "gpu"})
    return attempts.fit(wish, found, where)


def test_what_a_pod_gets():
    found = attempt(pod("p", claims=["c"]), claim("c"))
    assert isinstance(found, Fit)
    assert found.allocations["c"]["devices"]["results"][0]["device"] == "gpu-0"


def test_a_pod_without_claims_gets_nothing():
    assert attempt(pod("p")) == Fit("node-a")


def test_a_resource_is_a_claim_where_no_device_plugin_has_it():
    found = attempt(wanting("p", example__com_gpu=1))
    assert isinstance(found, Fit)
    assert list(found.allocations) == ["extended resources"]
    plugin = node("node-a", allocatable={"example.com/gpu": "1"})
    assert attempt(wanting("p", example__com_gpu=1), where=plugin) == Fit("node-a")


@pytest.mark.parametrize(
    ("made", "claims", "where", "expected"),
    [
        (pod("p"), (), node("node-a", unschedulable=True), Misfit("cordoned")),
        (wanting("p", cpu=2), (), node("node-a", allocatable={"cpu": "1"}), Misfit("not enough cpu")),
        (
            pod("p", claims=["c"]),
            (allocated(claim("c"), "gpu-0", on="node-b"),),
            None,
            Misfit("claim c allocated elsewhere", ["c"]),
        ),
        (pod("p", claims=["c"]), (claim("c", request(count=2)),), None, Misfit()),
    ],
)
def test_why_it_does_not_fit(made, claims, where, expected):
    assert attempt(made, *claims, where=where) == expected


def test_an_invalid_pool_concerns_its_node_alone():
    twice = gpus("node-a", "gpu-0", "gpu-0")
    found = attempt(pod("p", claims=["c"]), claim("c"), slices=[twice])
    assert isinstance(found, Misfit)
    assert found.reason.startswith("invalid resource pools were encountered")


def test_a_selector_without_an_answer_is_an_error():
    broken = claim("c", request(expression='device.attributes["gpu.example.com"].missing == 1'))
    with pytest.raises(AllocationError, match="no such key: missing"):
        attempt(pod("p", claims=["c"]), broken)


def test_a_claim_whose_devices_skip_operations_needs_a_node_that_can():
    """Since 1.37, and whether the gate is still on or not."""
    held = allocated(claim("c"), "gpu-0", on="node-a")
    for result in held["status"]["allocation"]["devices"]["results"]:
        result["skipNodeOperations"] = ["*"]
    able = node("node-a") | {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    made = pod("p", claims=["c"])
    assert attempt(made, held, features=of_1_37()) == Misfit("claim c allocated elsewhere", ["c"])
    assert attempt(made, held, features=of_1_37(), where=able) == Fit("node-a")
    assert attempt(made, held) == Fit("node-a")
