"""Work that nodes and pods of one shape share, beside the plain way, on drawn clusters: the answers are the same."""

from __future__ import annotations

import copy
import json
import random

import pytest

from dra_sdk.tools.scheduling.allocator import Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.cluster import NodeTemplate, Snapshot, add_nodes, schedule, scheduling_cycle
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import node, obj, template
from tests.tools.scheduling.clusters import GPU, claim, device_class, exactly, gpus, mig
from tests.tools.scheduling.clusters import pod as running_pod

CLASSES = (
    device_class("gpu", f'device.driver == "{GPU}"'),
    device_class("mig", f'device.attributes["{GPU}"].type == "mig"'),
)
VERSIONS = ("1.34", "1.35", "1.36", "1.37")


def affinity(draw: random.Random, names: list[str]):
    """Required terms: by name, by label, by both, invalid ones."""

    def requirement(key: str, values: list[str], operator: str = "In"):
        return {"key": key, "operator": operator, "values": values}

    def term():
        kind = draw.choice(("name", "label", "both", "not", "two", "empty", "other field", "invalid"))
        name, label = requirement("metadata.name", [draw.choice(names)]), requirement("zone", ["a"])
        return {
            "name": {"matchFields": [name]},
            "label": {"matchExpressions": [label]},
            "both": {"matchFields": [name], "matchExpressions": [label]},
            "not": {"matchFields": [requirement("metadata.name", [draw.choice(names)], "NotIn")]},
            "two": {"matchFields": [name, requirement("metadata.name", [draw.choice(names)])]},
            "empty": {},
            "other field": {"matchFields": [requirement("metadata.uid", ["x"])]},
            "invalid": {"matchFields": [requirement("metadata.name", names[:2])]},
        }[kind]

    terms = {"nodeSelectorTerms": [term() for _ in range(draw.randint(1, 2))]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def drawn_cluster(seed: int, version: str) -> Snapshot:
    draw = random.Random(seed)
    names = [f"node-{number}" for number in range(draw.randint(1, 6))]
    objects = []
    for name in names:
        spec = {"unschedulable": True} if draw.random() < 0.1 else {}
        if draw.random() < 0.2:
            spec["taints"] = [{"key": "k", "effect": draw.choice(("NoSchedule", "PreferNoSchedule"))}]
        allocatable = draw.choice((None, {"cpu": "4", "pods": "3"}, {"cpu": "1", "pods": "10"}))
        objects.append(node(name, labels={"zone": draw.choice("ab")}, allocatable=allocatable, **spec))
        objects += mig(name, 2) if draw.random() < 0.6 else [gpus(name, draw.randint(1, 3))]
    spoilt = draw.random()
    if spoilt < 0.1:
        objects.pop()  # the pool is incomplete, or the node has none
    elif spoilt < 0.2:
        devices = objects[-1]["spec"]["devices"]
        devices.append(devices[0])  # the pool is invalid
    elif spoilt < 0.25 and "consumesCounters" in objects[-1]["spec"]["devices"][0]:
        consumed = objects[-1]["spec"]["devices"][0]["consumesCounters"][0]
        consumed |= draw.choice(({"counterSet": "none"}, {"counters": {"none": {"value": "1"}}}))
    templates = {
        "one": exactly("r", "gpu"),
        "two": exactly("r", "gpu", count=2),
        "part": exactly("r", "mig", f'device.attributes["{GPU}"].profile == "1g.5gb"'),
        "all": exactly("r", "gpu", allocationMode="All"),
    }
    objects += [template(name, spec) for name, spec in templates.items()]
    for number in range(draw.randint(1, 12)):
        entries = [
            {"name": f"c{index}", "resourceClaimTemplateName": draw.choice(list(templates))}
            for index in range(draw.choice((0, 1, 1, 1, 2)))
        ]
        spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": draw.choice(("1", "500m"))}}}]}
        spec |= {"resourceClaims": entries, "priority": draw.choice((0, 0, 10))}
        if draw.random() < 0.4:
            spec["affinity"] = affinity(draw, [*names, "elsewhere"])
        if draw.random() < 0.3:
            spec["tolerations"] = [{"operator": "Exists"}]
        if draw.random() < 0.1:
            spec["nodeName"] = draw.choice(names)
        objects.append(obj("Pod", f"pod-{number}", spec, "default"))
    return Snapshot(profile=ServerProfile.of(version)).with_objects([*CLASSES, *objects])


def answer(snapshot: Snapshot) -> str:
    outcome = schedule(snapshot)
    after = outcome.snapshot
    told = [repr((outcome.pods, outcome.claims, outcome.preemptions, outcome.notes)), after.claims, after.pods]
    return json.dumps([*told, repr(outcome.evicted)])


@pytest.mark.parametrize("seed", range(80))
def test_pods_for_some_nodes_by_name_are_placed_as_if_all_nodes_were_tried(monkeypatch, seed):
    snapshot = drawn_cluster(seed, VERSIONS[seed % 4])
    short = answer(snapshot)
    monkeypatch.setattr(scheduling_cycle, "required_node_names", lambda _: None)
    assert short == answer(snapshot)


@pytest.mark.parametrize("seed", range(24))
def test_objects_that_nodes_share_are_treated_like_equal_objects(seed):
    """Slices of the same devices: the one half shares them in memory, the other has copies."""
    snapshot = drawn_cluster(seed, VERSIONS[seed % 4])
    first = next(iter(snapshot.nodes_by_name))
    names = [f"more-{number}" for number in range(4)]
    shared = add_nodes(snapshot, NodeTemplate.of(snapshot, first), names)
    copied = Snapshot(**{
        name: copy.deepcopy(value) if isinstance(value, tuple) else value for name, value in vars(shared).items()
        if name in Snapshot.__dataclass_fields__
    })  # fmt: skip
    assert answer(shared) == answer(copied)


def test_copies_of_a_node_share_its_devices():
    snapshot = Snapshot().with_objects([*CLASSES, node("a"), *mig("a", 2)])
    after = add_nodes(snapshot, NodeTemplate.of(snapshot, "a"), ["b", "c"])
    lists = {id(raw_slice["spec"].get("devices")) for raw_slice in after.slices if raw_slice["spec"].get("devices")}
    assert len(after.slices) == 6
    assert len(lists) == 1


def test_slices_of_one_shape_are_checked_once():
    snapshot = Snapshot().with_objects([*CLASSES, node("a"), *mig("a", 2)])
    after = add_nodes(snapshot, NodeTemplate.of(snapshot, "a"), ["b", "c"])
    inventory = Inventory(after.slices, SchedulerFeatures())
    assert not inventory.problems
    assert len({id(pool_slice.shape) for pool_slice in inventory.slices}) == 2
    a, b = (inventory.node_devices(node).pools[0] for node in after.nodes[:2])
    assert a.counters is b.counters
    assert a.candidates[0].content is b.candidates[0].content
    assert a.candidates[0].device.counters is b.candidates[0].device.counters
    assert a.candidates[0].id != b.candidates[0].id


@pytest.mark.parametrize("seed", range(20))
def test_models_of_pods_are_those_of_the_pods_by_themselves(seed):
    for raw_pod in drawn_cluster(seed, "1.36").pods:
        plain, shared = Pod.model_validate(raw_pod), pod_of(raw_pod)
        assert shared == plain
        assert shared.to_json() == plain.to_json()
        assert shared.spec.affinity.to_json() == plain.spec.affinity.to_json()


def test_equal_pods_share_the_model_of_their_spec():
    one, two = running_pod("one", "c"), running_pod("two", "c")
    assert pod_of(one).spec is pod_of(two).spec
    moved = copy.deepcopy(two)
    moved["spec"]["nodeName"] = "node-a"
    assert pod_of(moved).spec.node_name == "node-a"
    assert pod_of(two).spec.node_name == ""
    assert pod_of(moved).spec.containers is pod_of(two).spec.containers


@pytest.mark.parametrize("spec", [None, [], {"nodeName": 7}, {"affinity": "x"}, {"containers": {}}, {"nodeName": None}])
def test_a_pod_that_is_no_pod_has_the_same_error(spec):
    made = obj("Pod", "p") | {"spec": spec}

    def told(make):
        try:
            return make(made)
        except ValueError as error:
            return str(error)

    assert told(pod_of) == told(Pod.model_validate)


def test_claims_are_told_apart_by_their_own_devices():
    """Two nodes share devices in memory, and each has its own of them."""
    base = Snapshot().with_objects([*CLASSES, node("a"), gpus("a", 1)])
    objects = [claim(name, exactly("r", "gpu")) for name in ("x", "y", "z")]
    outcome = schedule(add_nodes(base, NodeTemplate.of(base, "a"), ["b"]).with_objects(objects))
    assert [
        claim_outcome.results[0]["pool"] if claim_outcome.results else None for claim_outcome in outcome.claims
    ] == ["a", "b", None]
