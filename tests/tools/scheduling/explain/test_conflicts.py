from __future__ import annotations

from dra_sdk.tools.scheduling.explain.conflicts import conflicts
from dra_sdk.tools.scheduling.explain.model import Conflict
from dra_sdk.tools.scheduling.explain.setting import Setting
from tests.tools.scheduling.explain.test_requests import looked
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import GPU, NIC, NUMA, ROOT, claim, device, exactly, gpus, nics, pool_slice


def found(made: Setting) -> tuple[Conflict, ...]:
    return conflicts(made, made.nodes[0], looked(made))


def test_the_values_of_a_constraint():
    (conflict,) = found(setting("aligned"))
    assert conflict.kind == "constraint"
    assert conflict.details == ("gpu: pci0000:02, pci0000:03", "nic: pci0000:00, pci0000:01")


def test_values_are_counted_and_those_without_are_told_of():
    wanted = claim("c", exactly("gpu", GPU, count=3), constraints=[{"matchAttribute": NUMA}])
    made = setting("taken").changed(claims=(wanted,), holders=(), slices=(gpus("n1", 4),))
    (conflict,) = found(made)
    assert conflict.details == ("gpu: 0 (2 devices), 1 (2 devices); 3 needed",)


def test_different_values_are_wanted():
    wanted = claim("c", exactly("gpu", GPU, count=3), constraints=[{"distinctAttribute": NUMA}])
    (conflict,) = found(setting("taken").changed(claims=(wanted,), holders=(), slices=(gpus("n1", 4),)))
    assert conflict.text == f"constraint 0 (distinctAttribute {NUMA}): there are not enough different values"


def test_two_constraints_that_only_together_stand_in_the_way():
    constraints = [{"matchAttribute": ROOT}, {"distinctAttribute": ROOT}]
    wanted = claim("c", exactly("gpu", GPU), exactly("nic", NIC), constraints=constraints)
    made = setting("aligned").changed(claims=(wanted,), holders=(), slices=(gpus("n1", 4), nics("n1", 4)))
    # Without either one the other can be met.
    assert [each.text.partition(" (")[0] for each in found(made)] == ["constraint 0", "constraint 1"]
    assert all(each.text.endswith(": cannot be met together with the other constraints") for each in found(made))
    double = claim("c", exactly("gpu", GPU, count=3), constraints=[{"matchAttribute": NUMA}, {"matchAttribute": NUMA}])
    both = made.changed(claims=(double,))
    assert [each.text.partition(" (")[0] for each in found(both)] == ["constraint 0", "constraint 1"]


def test_counters():
    (conflict,) = found(setting("counters_together"))
    assert conflict.kind == "counters"
    assert conflict.details[0] == (
        "a: a device such as gpu-0-mig-4g-20gb-0 takes memory 19968Mi, multiprocessors 56, copy-engines 4"
    )
    assert conflict.details[-1] == "gpu-0-counter-set has memory 40192Mi, multiprocessors 98, copy-engines 7 left"


def test_requests_that_want_the_same_devices():
    made = setting("taken").changed(claims=(claim("c", exactly("a", GPU), exactly("b", GPU, count=2)),), holders=())
    assert found(made)[0].text == "requests a, b need 3 devices together, 2 are left for them"


def test_requests_that_want_the_same_capacity():
    amount = {"requests": {"cpu": "5"}}
    shared = device("numa-0", {}, {"cpu": "8"}, allowMultipleAllocations=True)
    wanted = claim("c", exactly("a", "cpu", capacity=amount), exactly("b", "cpu", capacity=amount))
    made = setting("shared").changed(claims=(wanted,), holders=(), slices=(pool_slice("n1", "dra.cpu", [shared]),))
    assert found(made) == (
        Conflict("capacity", "requests a, b each find enough capacity, but not all of them together"),
    )
