from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.simulation_notes import NO_PREEMPTION, contradicting_slices, idle_daemon_sets
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import DRIVER, allocated, claim, cluster, gpus, node, obj, pod

RULE = obj("DeviceTaintRule", "r", {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "a", "effect": "NoExecute"}})
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
FEWER, OTHER = "a cluster may allow fewer nodes", "a cluster may choose another node"
VOLUMES = "on which nodes volumes (spec.volumes) can be used is {}"
TERM = {"topologyKey": "zone"}
PORTS = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}


def notes(*objects, **more):
    return list(schedule(cluster(node("a"), *objects, **more)).notes)


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (
            {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
            f"affinity between pods (spec.affinity) is not simulated; {FEWER}",
        ),
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
            f"affinity between pods (spec.affinity) is not simulated; {FEWER}",
        ),
        (
            {"affinity": {"podAffinity": {PREFERRED: [TERM]}}},
            f"preferences among nodes (preferred terms, ScheduleAnyway) are not simulated; {OTHER}",
        ),
        (
            {"affinity": {"nodeAffinity": {PREFERRED: [{}]}}},
            f"preferences among nodes (preferred terms, ScheduleAnyway) are not simulated; {OTHER}",
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            f"topology spread (spec.topologySpreadConstraints) is not simulated; {FEWER}",
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
            f"preferences among nodes (preferred terms, ScheduleAnyway) are not simulated; {OTHER}",
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            VOLUMES,
        ),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, VOLUMES),
        ({"containers": [PORTS]}, "whether host ports (ports[].hostPort) are free is {}"),
        (
            {"containers": [{"name": "main", "ports": [{"containerPort": 80}]}], "hostNetwork": True},
            "whether host ports (ports[].hostPort) are free is {}",
        ),
        (
            {"schedulerName": "volcano"},
            "its scheduler (spec.schedulerName) is not simulated; it is scheduled as by kube-scheduler",
        ),
    ],
)
def test_what_is_not_simulated(spec, note):
    assert notes(pod("p", **spec)) == [f"pod p: {note.format(f'not simulated; {FEWER}')}"]
    assert notes(pod("p", nodeName="a", **spec)) == []  # it runs already


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "m", "ports": [{"containerPort": 80}]}]},
        {"schedulerName": "default-scheduler", "affinity": {"podAffinity": {}}},
    ],
)
def test_no_note_without_effect(spec):
    assert notes(pod("p", **spec)) == []


def test_one_sentence_for_many_pods():
    pods = [pod(f"p{number}", schedulerName="x", namespace="team") for number in range(7)]
    assert notes(*pods)[0].startswith("pods team/p0, team/p1, team/p2, team/p3, team/p4 and 2 more: its scheduler")


def test_nothing_is_preempted_for_devices():
    held = allocated(claim("c"), "gpu-0", on="a", pods=["low"])
    objects = (gpus("a", "gpu-0"), held, pod("low", claims=["c"], nodeName="a", priority=5), claim("d"))
    note = f"{NO_PREEMPTION}; `dra-sdk explain --make-room POD` plans evictions"
    assert notes(*objects, pod("p", claims=["d"], priority=6)) == [f"pod p: {note}"]
    assert notes(*objects, pod("p", claims=["d"], priority=5)) == []
    assert notes(*objects, pod("p", claims=["d"], priorityClassName="system-node-critical")) == [f"pod p: {note}"]
    assert notes(*objects, pod("p", claims=["missing"], priority=6)) == []


def test_a_priority_class_that_is_not_given():
    assert notes(pod("p", priorityClassName="high")) == [
        "pod p: PriorityClass high is not given, so the priority is taken as 0"
    ]
    assert notes(obj("PriorityClass", "high") | {"value": 7}, pod("p", priorityClassName="high")) == []


def test_devices_that_are_no_longer_published():
    held = claim("c")
    results = [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": name} for name in ("gpu-0", "gpu-1")]
    held["status"] = {"allocation": {"devices": {"results": results}}}
    assert notes(gpus("a", "gpu-0"), held) == [f"claim c holds {DRIVER}/a/gpu-1, which is in no ResourceSlice"]


def test_rules_that_have_no_effect():
    old = notes(RULE, profile=ServerProfile.of("1.36"))
    reason = "feature gate DRADeviceTaintRules is off in Kubernetes 1.36"
    assert old == [f"DeviceTaintRule r has no effect: {reason}"]
    assert notes(RULE) == []
    assert notes(RULE, profile=ServerProfile.of("1.34", {"DRADeviceTaints": True})) == []
    assert "gate DRADeviceTaints is off" in notes(RULE, profile=ServerProfile.of("1.34"))[0]


@pytest.mark.parametrize(
    ("version", "field"), [("1.36", "nodeAllocatableResourceMappings"), ("1.37", "nodeAllocatableResources")]
)
def test_devices_with_node_allocatable_resources(version, field):
    made = gpus("a", "gpu-0")
    made["spec"]["devices"][0][field] = {"cpu": {}}
    for on in (True, False):
        profile = ServerProfile.of(version, {"DRANodeAllocatableResources": on})
        used = f"what they use of the node's CPU and memory is not simulated; {FEWER}"
        note = f"devices with node-allocatable resources: {used}"
        assert notes(made, profile=profile) == ([note] if on else [])


def test_slices_that_contradict_each_other():
    one, two = (
        obj("ResourceSlice", name, {
            "driver": DRIVER, "nodeName": "n1", "devices": [],
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": count},
        })
        for name, count in (("s1", 1), ("s2", 2))
    )  # fmt: skip
    (note,) = contradicting_slices(cluster(one, two))
    assert note.startswith(
        f"slices of pool {DRIVER}/n1 contradict each other: resourceSliceCount is 1 in s1 and 2 in s2; "
    )
    assert list(contradicting_slices(cluster(one))) == []


def test_a_daemon_set_that_selects_no_node():
    spec = {
        "nodeSelector": {"gpu": "yes"},
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "missing"}],
    }
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    exporter = obj("DaemonSet", "e", spec, "default") | {"apiVersion": "apps/v1"}
    assert list(idle_daemon_sets(cluster(node("n1"), exporter))) == [
        "DaemonSet e selects no node, so it has no pod: not selected by nodeSelector gpu=yes",
        "DaemonSet e: there is no ResourceClaimTemplate missing",
    ]
    assert list(idle_daemon_sets(cluster(node("n1", labels={"gpu": "yes"}), exporter))) == []
