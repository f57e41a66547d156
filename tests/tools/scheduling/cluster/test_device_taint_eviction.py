from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.device_taint_eviction import find_evictions
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import DRIVER, allocated, claim, cluster, gpus, obj, pod

TAINT = {"key": "broken", "value": "yes", "effect": "NoExecute"}
TOLERATED = {"key": "broken", "operator": "Exists", "effect": "NoExecute"}


def tainted(*taints, generation=1):
    made = gpus("node-a", "gpu-0", generation=generation)
    made["spec"]["devices"][0]["taints"] = list(taints)
    return made


def found(*objects, held=None, profile="1.37", **gates):
    held = held or allocated(claim("c"), "gpu-0", pods=["p"])
    user = pod("p", claims=["c"], nodeName="node-a")
    return find_evictions(cluster(user, held, *objects, profile=ServerProfile.of(profile, gates))).pods


def test_a_no_execute_taint_evicts_the_pods_that_use_the_device():
    (eviction,) = found(tainted(TAINT)).values()
    assert eviction.node == "node-a"
    assert str(eviction) == f"device {DRIVER}/node-a/gpu-0 has taint broken=yes:NoExecute"


@pytest.mark.parametrize(
    "objects",
    [
        (),
        (gpus("node-a", "gpu-0"),),
        (tainted(TAINT | {"effect": "NoSchedule"}),),
        (tainted(TAINT), gpus("node-a", "gpu-0", generation=2)),
    ],
)
def test_no_eviction_without_a_no_execute_taint_in_the_newest_generation(objects):
    assert not found(*objects)


@pytest.mark.parametrize(
    ("tolerations", "after"),
    [
        ([TOLERATED], None),
        ([TOLERATED | {"operator": "Equal", "value": "yes"}], None),
        ([TOLERATED | {"operator": "Equal", "value": "no"}], 0),
        ([TOLERATED | {"key": "other"}], 0),
        (
            [{"key": "broken", "operator": "Exists"}],
            0,
        ),  # the controller ignores tolerations that do not name the effect
        ([TOLERATED | {"tolerationSeconds": 300}, TOLERATED | {"tolerationSeconds": 30}], 30),
        ([TOLERATED | {"tolerationSeconds": 300}, TOLERATED], None),
    ],
)
def test_tolerations(tolerations, after):
    held = allocated(claim("c"), "gpu-0", pods=["p"], tolerations=tolerations)
    left = [eviction.after_seconds for eviction in found(tainted(TAINT), held=held).values()]
    assert left == ([] if after is None else [after])


def test_taint_rules_evict_if_their_feature_is_on():
    rule = obj("DeviceTaintRule", "r", {"deviceSelector": {"driver": DRIVER, "device": "gpu-0"}, "taint": TAINT})
    other = obj("DeviceTaintRule", "r", {"deviceSelector": {"driver": DRIVER, "device": "gpu-1"}, "taint": TAINT})
    assert found(rule)
    assert not found(other)
    assert not found(rule, profile="1.36")
    assert found(rule, profile="1.34", DRADeviceTaints=True)
    assert not found(tainted(TAINT), DRADeviceTaints=False)


def test_a_claim_that_is_not_reserved_for_the_pod_does_not_matter():
    assert not found(tainted(TAINT), held=allocated(claim("c"), "gpu-0", pods=["other"]))


def test_hypothetical_allocations_are_evicted_too():
    snapshot = cluster(tainted(TAINT), allocated(claim("c"), "gpu-0"), hypothetical={("default", "c"): "node-a"})
    assert list(find_evictions(snapshot).hypothetical) == [("default", "c")]
