from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.explain.advice import advice
from dra_sdk.tools.scheduling.explain.reports import grouped, see
from dra_sdk.tools.scheduling.explain.subject import subject_of_claim
from tests.tools.scheduling.explain import situations


def kinds(name: str, obstacles: dict[str, str] | None = None) -> tuple[list[str], int]:
    subject = subject_of_claim(schedule(situations.FAILING[name]()), ("default", "c"))
    setting = subject.setting(subject.claims, subject.snapshot.nodes)
    changes, tried = advice(subject.snapshot, setting, grouped(see(setting, obstacles or {})), "p")
    return [each.kind for each in changes], tried


def test_kinds_in_the_order_of_their_size():
    assert kinds("taken") == (["count", "claim-freed", "node"], 3)
    assert kinds("tainted")[0] == ["toleration", "taint-removed"]
    assert kinds("two_things")[0] == ["pair"]


def test_nodes_that_are_closed_may_be_opened_and_are_not_used_otherwise():
    assert kinds("tainted", {"n1": "cordoned"}) == ([], 1), "a pod on n1 would not get the tainted devices either"
    assert kinds("cordoned", {"n1": "cordoned"})[0] == ["node-opened"]


def test_nothing_helps():
    found, tried = kinds("incomplete")
    assert (found, tried) == (["pool-completed"], 2)
