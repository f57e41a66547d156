from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.attempts import Fit
from dra_sdk.tools.scheduling.cluster.ledger import Ledger
from dra_sdk.tools.scheduling.cluster.names import key_of
from dra_sdk.tools.scheduling.cluster.wishes import wish_of
from tests.tools.scheduling.cluster.objects import allocated, claim, cluster, device_class, gpus, node, parsed, pod

ALLOCATION = allocated(claim("x"), "gpu-0")["status"]["allocation"]


def wish(made, *claims):
    return wish_of(parsed(made), {key_of(each): each for each in claims}, {"gpu": device_class()}, {})


def test_binding_writes_down_allocation_reservation_and_node():
    one, user = claim("c"), pod("p", claims=["c"])
    ledger = Ledger(cluster(node("node-a"), gpus("node-a", "gpu-0"), one, user))
    assert not ledger.is_allocated(("default", "c"))
    used = ledger.bind(wish(user, one), Fit("node-a", {"c": one}, {"c": ALLOCATION}))
    assert used == (("default", "c"),)
    assert ledger.is_allocated(("default", "c"))
    after = ledger.after()
    assert after.pods[0]["spec"]["nodeName"] == "node-a"
    assert after.claims[0]["status"]["allocation"] == ALLOCATION
    assert [str(each) for each in ledger.allocated.devices] == ["gpu.example.com/node-a/gpu-0"]
    assert "status" not in one
    assert "nodeName" not in user["spec"]


def test_a_second_pod_is_added_to_those_who_use_a_claim():
    held = allocated(claim("c"), "gpu-0", pods=["q"])
    user = pod("p", claims=["c"])
    ledger = Ledger(cluster(held, user))
    ledger.bind(wish(user, held), Fit("node-a"))
    ledger.bind(wish(user, ledger.claims["default", "c"]), Fit("node-a"))
    assert [each["name"] for each in ledger.claims["default", "c"]["status"]["reservedFor"]] == ["q", "p"]


def test_only_claims_that_nobody_else_uses_are_released():
    free, used = allocated(claim("free"), "gpu-0"), allocated(claim("used"), "gpu-1", pods=["other"])
    user = pod("p", claims=["free", "used"])
    ledger = Ledger(cluster(free, used, user, imagined={("default", "free"): "node-a"}))
    assert ledger.release(wish(user, free, used), ["free", "used"]) == 1
    assert not ledger.is_allocated(("default", "free"))
    assert ledger.is_allocated(("default", "used"))
    assert ledger.imagined == {}
    assert [each.device for each in ledger.allocated.devices] == ["gpu-1"]


def test_a_claim_without_a_pod_is_remembered_as_such():
    ledger = Ledger(cluster(claim("c")))
    ledger.imagine(("default", "c"), "node-a", ALLOCATION)
    assert dict(ledger.after().imagined) == {("default", "c"): "node-a"}
    assert "reservedFor" not in ledger.after().claims[0]["status"]
