from __future__ import annotations

from dataclasses import replace

from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.explain import checks
from dra_sdk.tools.scheduling.explain.setting import Setting
from tests.tools.scheduling.allocator.build import NEWER
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import NUMA, claim, device, exactly, given, pool_slice


def candidates(made: Setting) -> list[Candidate]:
    return list(made.inventory.view(made.nodes[0]).candidates)


def details(made: Setting, test: object) -> list[tuple[str, str]]:
    assert callable(test)
    return [(each.text, each.detail) for candidate in candidates(made) for each in test(candidate)]


def test_taints():
    made = setting("tainted")
    (request,) = made.plan.requests
    assert details(made, checks.untainted(request))[0][0] == (
        "with taint gpu.nvidia.com/xid=79:NoExecute, which is not tolerated"
    )
    tolerating = claim("c", exactly("gpu", "gpu.nvidia.com", tolerations=[{"operator": "Exists"}]))
    (request,) = made.changed(claims=(tolerating,)).plan.requests
    assert details(made, checks.untainted(request)) == []


def test_use():
    made = setting("taken")
    assert details(made, checks.free(made, "n1")) == [
        ("in use", "gpu-0 by old-gpu-0"), ("in use", "gpu-1 by old-gpu-1"),
    ]  # fmt: skip
    assert details(made, checks.free(made, "elsewhere"))[0][1] == "n1/gpu-0 by old-gpu-0"


def test_capacity_of_shared_devices():
    made = setting("shared")
    (request,) = made.plan.requests
    assert details(made, checks.capacity(made, request)) == [
        ("short of capacity dra.cpu/cpu: 16 needed", "12 of 32 left, the rest is old-0's"),
        ("short of capacity dra.cpu/cpu: 16 needed", "8 of 32 left, the rest is old-1's"),
    ]


def asking(made: Setting, **amounts: str) -> list[tuple[str, str]]:
    wanted = claim("c", exactly("cpu", "cpu", capacity={"requests": amounts}))
    changed = made.changed(claims=(wanted,), holders=())
    return details(changed, checks.capacity(changed, next(iter(changed.plan.requests))))


def test_capacity_that_is_not_there_or_not_allowed():
    policy = {"default": "1", "validValues": ["1", "2"]}
    numa = device("numa-0", {NUMA: 0}, allowMultipleAllocations=True) | {
        "capacity": {"cpu": {"value": "8", "requestPolicy": policy}}
    }
    made = setting("shared").changed(slices=(pool_slice("n1", "dra.cpu", [numa]),))
    assert asking(made, memory="1Gi") == [("without capacity memory", "it has cpu")]
    assert asking(made, cpu="3") == [("whose request policy does not allow cpu: 3", "")]
    assert asking(made, cpu="2") == []
    plain = setting("shared").changed(slices=(pool_slice("n1", "dra.cpu", [device("a", capacity={"m": "1Gi"})]),))
    assert asking(plain, m="2Gi") == [("short of capacity m: 2Gi needed", "the device has 1Gi")]


def test_counters():
    made = setting("counters")
    whole = [each for each in details(made, checks.counters(made)) if "40192Mi needed" in each[1]]
    assert whole == [
        (
            "short of counter memory",
            (f"gpu-{index}-counter-set: 40192Mi needed, 35328Mi of 40192Mi left; "
            f"gpu-{index}-mig-1g-5gb-6 is old-gpu-{index}-mig-1g-5gb-6's"),
        )
        for index in (0, 1)
    ]  # fmt: skip
    none = made.changed(holders=())
    assert details(none, checks.counters(none)) == []


def test_attributes_of_constraints():
    made = setting("taken")
    (request,) = made.plan.requests
    test = checks.attribute({"matchAttribute": "a.example.com/x"}, request, lists=True)
    assert details(made, test)[0] == ("without attribute a.example.com/x", "")
    assert details(made, checks.attribute({"distinctAttribute": NUMA}, request, lists=True)) == []
    lists = pool_slice("n1", "gpu.nvidia.com", [device("a", {"x.example.com/y": ["a", "b"]})])
    other = made.changed(slices=(lists,))
    constraint = {"matchAttribute": "x.example.com/y"}
    assert details(other, checks.attribute(constraint, request, lists=True)) == []
    assert "of a kind that is not compared" in details(other, checks.attribute(constraint, request, lists=False))[0][0]


def test_attributes_that_a_request_derives():
    made = setting("taken").changed(features=NEWER)
    name = "x.example.com/y"
    for expression, expected in (
        ("device.driver", []),
        ("1 / 0", [(f"for which attribute {name} cannot be derived", "division by zero")]),
    ):
        fields = {"derivedAttributes": [{"name": name, "expression": expression}]}
        wanted = claim("c", exactly("gpu", "gpu.nvidia.com", **fields))
        changed = made.changed(claims=(wanted,))
        (request,) = changed.plan.requests
        found = details(changed, checks.attribute({"matchAttribute": name}, request, lists=True))
        assert [(text, why in detail) for (text, detail), (_, why) in zip(found, expected * 2, strict=True)] == [
            (text, True) for text, _ in expected * 2
        ]


def test_a_request_for_all_counts_what_is_taken_since_1_37():
    made = setting("shared")
    (request,) = made.plan.requests
    assert details(made, checks.capacity(made, request))
    assert details(made, checks.capacity(made, request, ever=True)) == []


def test_capacity_that_cannot_be_told():
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    numa = device("numa-0", {NUMA: 0}, allowMultipleAllocations=True) | {
        "capacity": {"cpu": {"value": "8", "requestPolicy": policy}}
    }
    made = setting("shared").changed(slices=(pool_slice("n1", "dra.cpu", [numa]),), features=NEWER)
    ((text, detail),) = asking(made, cpu="1000500u")
    assert "1000500u is no multiple of 1m" in text
    assert not detail


def test_compatibility_groups():
    consumed = {"counterSet": "set", "counters": {"memory": {"value": "1"}}}
    names = {"a": ["x"], "b": ["y"]}
    devices = [
        device(name) | {"consumesCounters": [consumed | {"compatibilityGroups": each}]} for name, each in names.items()
    ]
    counters = {"name": "set", "counters": {"memory": {"value": "9"}}}
    slices = (
        pool_slice("n1", "d.example.com", devices, count=2),
        pool_slice("n1", "d.example.com", [], name="sets", count=2, sharedCounters=[counters]),
    )
    held = given(claim("old", exactly("x", "c")), ("x", "d.example.com", "n1", "a"), node="n1")
    made = setting("taken").changed(slices=slices, features=NEWER, holders=(held,))
    assert details(made, checks.groups(made)) == [
        ("whose compatibility groups do not go with those of devices in use on the same counter set", "")
    ]
    assert details(made.changed(holders=()), checks.groups(made.changed(holders=()))) == []


def test_operations_that_a_slice_skips():
    slices = (pool_slice("n1", "d.example.com", [device("a")], skipNodeOperations=["*"]),)
    made = setting("taken").changed(slices=slices, features=NEWER)
    (node, *_) = made.nodes
    ((text, _),) = details(made, checks.operations(made, node))
    assert text == (
        "that skip *, which the node does not declare to be able to "
        "(DRAOptionalNodeOperations in status.declaredFeatures)"
    )
    able = node | {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    assert details(made, checks.operations(made, able)) == []
    off = made.changed(features=replace(NEWER, optional_node_operations=False))
    ((text, _),) = details(off, checks.operations(off, able))
    assert text == "that skip *, while the feature DRAOptionalNodeOperations is off"
