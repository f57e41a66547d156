from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.cluster.names import key_of
from dra_sdk.tools.scheduling.cluster.schedule import schedule
from dra_sdk.tools.scheduling.explain.setting import Setting
from dra_sdk.tools.scheduling.explain.subject import subject_of_claim
from tests.tools.scheduling.explain import situations
from tests.tools.scheduling.worlds import given, gpus, plain_node


def setting(name: str) -> Setting:
    subject = subject_of_claim(schedule(situations.FAILING[name]()), ("default", "c"))
    return subject.setting(subject.claims, subject.snapshot.nodes)


def test_attempts():
    made = setting("taken")
    assert not made.attempt(made.nodes[0]).fits
    assert made.attempt(made.nodes[1], [made.holders[0]]).fits
    assert key_of(made.claim) == ("default", "c")
    assert made.plan.label == "default/c"


def test_errors_are_told_in_short():
    found = setting("error")
    attempt = found.attempt(found.nodes[0])
    assert attempt.final
    assert attempt.error == "request gpu: selector 0 has no answer for gpu.nvidia.com/n1/gpu-0: no such key: memory"
    broken = gpus("n2")
    broken["spec"]["devices"].append(broken["spec"]["devices"][0])
    other = found.changed(slices=(broken,)).attempt(plain_node("n2"))
    assert (other.fits, other.final) == (False, False)
    assert "duplicate device name gpu-0" in other.error


def test_a_search_that_takes_too_long_is_given_up():
    made = setting("taken").changed(holders=(), steps=1)
    attempt = made.attempt(made.nodes[0])
    assert (attempt.fits, attempt.given_up, attempt.final) == (False, True, True)
    assert attempt.error == "the search was given up after 1 steps, as kube-scheduler gives up after 10 s"


def test_only_what_depends_on_a_change_is_made_anew():
    made = setting("taken")
    freed = made.changed(holders=())
    assert freed.allocator is made.allocator
    assert freed.allocated is not made.allocated
    assert freed.attempt(made.nodes[0]).fits
    more = made.changed(slices=(*made.slices, gpus("n3")))
    assert more.inventory is not made.inventory
    assert more.selectors is made.selectors
    assert more.attempt(plain_node("n3")).fits


def test_users():
    made = setting("taken")
    device = DeviceId("gpu.nvidia.com", "n2", "gpu-0")
    assert [key_of(each)[1] for each in made.users[device]] == ["o"]
    admin = given(situations.claim("a", situations.exactly("x", "y")), ("x", *device), adminAccess=True)
    assert device not in made.changed(holders=(admin,)).users
