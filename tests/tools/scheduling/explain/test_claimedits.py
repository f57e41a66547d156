from __future__ import annotations

from dra_sdk.tools.scheduling.explain import claimedits
from dra_sdk.tools.scheduling.explain.setting import Setting
from dra_sdk.tools.scheduling.explain.trials import Proposal
from tests.tools.scheduling.explain.test_requests import looked
from tests.tools.scheduling.explain.test_setting import setting


def proposals(made: Setting) -> list[Proposal]:
    return [each for one in looked(made) for each in claimedits.of_request(made.claim, one, made.nodes)]


def test_tolerations():
    (found,) = proposals(setting("tainted"))
    toleration = {"key": "gpu.nvidia.com/xid", "operator": "Equal", "value": "79", "effect": "NoExecute"}
    assert (found.field, found.before, found.after) == (
        "spec.devices.requests[0].exactly.tolerations", None, [toleration],
    )  # fmt: skip
    assert found.object == "ResourceClaim c"


def test_amounts_are_what_is_left_somewhere():
    assert [(each.before, each.after) for each in proposals(setting("shared"))] == [("16", "12"), ("16", "8")]


def test_counts():
    made = setting("taken")
    assert [each.text for each in proposals(made)] == ["request gpu: ask for 1 device instead of 2"]
    changed = proposals(made)[0].apply(made)
    assert changed.claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert made.claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2


def test_not_all():
    (found,) = proposals(setting("everything"))
    assert found.after["count"] == 3
    assert proposals(setting("too_many"))[0].after["count"] == 32


def test_constraints():
    made = setting("aligned")
    (found,) = claimedits.of_constraints(made.claim, made.nodes)
    assert (found.field, found.after) == ("spec.devices.constraints[0]", None)
    assert found.apply(made).plan.constraints == []
