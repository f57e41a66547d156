from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.explain.reports import Seen, grouped, merged, see
from dra_sdk.tools.scheduling.explain.subject import subject_of_claim
from tests.tools.scheduling.explain.situations import BIG
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import GPU, claim, device, exactly, given, gpus, plain_node, pool_slice, world


def groups(*objects: object) -> list[list[str]]:
    subject = subject_of_claim(schedule(world(*objects)), ("default", "c"))  # type: ignore[arg-type]
    return names(grouped(see(subject.setting(subject.claims, subject.snapshot.nodes), {})))


def names(found: list[list[Seen]]) -> list[list[str]]:
    return [[each.report.example for each in group] for group in found]


def test_nodes_that_are_alike():
    made = setting("memory")
    found = grouped(see(made, {}))
    assert names(found) == [["a0", "a1", "a2", "a3", "a4"], ["l0", "l1"]], "that a0 has NICs too is of no interest"
    assert merged(found[1]).nodes == ("l0", "l1")


def test_the_node_with_most_devices_left_comes_first():
    old = [given(claim(f"o{node}{gpu}", exactly("x", GPU)), ("x", GPU, f"n{node}", f"gpu-{gpu}"))
           for node, count in enumerate((3, 1, 2)) for gpu in range(count)]  # fmt: skip
    fleet = [gpus(f"n{index}", 4) for index in range(3)]
    assert groups(fleet, old, claim("c", exactly("gpu", GPU, count=4))) == [["n1", "n2", "n0"]]


def test_coarser_groups_where_there_would_be_many():
    fleet = [gpus(f"n{index}", memory=f"{index + 1}Gi") for index in range(9)]
    assert groups(fleet, claim("c", exactly("gpu", GPU, BIG))) == [[f"n{index}" for index in range(9)]]
    few = [gpus(f"n{index}", memory=f"{index + 1}Gi") for index in range(3)]
    assert groups(few, claim("c", exactly("gpu", GPU, BIG))) == [["n0"], ["n1"], ["n2"]]


def test_errors_come_first_and_obstacles_last():
    good = pool_slice("n2", GPU, [device("gpu-0", {"type": "gpu", "fast": True})])
    wanted = claim("c", exactly("gpu", GPU, 'device.attributes["gpu.nvidia.com"].fast', count=2))
    subject = subject_of_claim(schedule(world(gpus("n0"), good, gpus("n1"), wanted)), ("default", "c"))
    found = see(subject.setting(subject.claims, subject.snapshot.nodes), {"n0": "cordoned"})
    assert names(grouped(found)) == [["n0"], ["n1"], ["n2"]] or names(grouped(found))[0] == ["n1"]
    assert next(each for each in found if each.report.example == "n0").report.obstacle == "cordoned"


def test_a_search_that_is_given_up_has_a_reason_all_the_same():
    wanted = claim("c", exactly("a", GPU, count=2), exactly("b", GPU, count=3))
    made = setting("taken").changed(claims=(wanted,), holders=(), slices=(gpus("n1", 4),), steps=3)
    report = see(made, {})[0].report
    assert report.error == "the search was given up after 3 steps, as kube-scheduler gives up after 10 s"
    assert report.conflicts[0].text == "requests a, b need 5 devices together, 4 are left for them"


def test_after_three_nodes_that_are_given_up_no_more_are_looked_at():
    wanted = claim("c", exactly("a", GPU, count=2), exactly("b", GPU, count=3))
    slices = tuple(gpus(f"n{number}", 4) for number in range(6))
    nodes = tuple(plain_node(f"n{number}") for number in range(6))
    made = setting("taken").changed(claims=(wanted,), holders=(), slices=slices, nodes=nodes)
    assert len(see(made, {})) == 6
    found = see(made.changed(steps=3), {})
    assert [each.given_up for each in found] == [True, True, True]


def test_what_other_claims_of_the_pod_take_is_in_use():
    made = setting("taken").changed(holders=())
    both = made.changed(claims=(claim("other", exactly("gpu", GPU)), *made.claims))
    (first, _) = see(both, {})
    assert first.report.requests[0].left == 1
    greedy = made.changed(claims=(claim("other", exactly("gpu", GPU, count=3)), *made.claims))
    (first, _) = see(greedy, {})
    assert first.report.obstacle == "no devices for claim other"
