from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.tolerations import tolerates, untolerated

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "k", "value": "w"}, False),
        ({"key": "l", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Near", "value": "v"}, False),
        ({"key": "k"}, False),
    ],
)
def test_what_a_toleration_covers(toleration: dict[str, Any], expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_a_taint_without_value_equals_a_toleration_without() -> None:
    assert tolerates({"key": "k"}, {"key": "k", "effect": "NoSchedule"})


def test_only_effects_that_prevent_allocation_count() -> None:
    taints = [TAINT, {"key": "k", "effect": "None"}, {"key": "e", "effect": "NoExecute"}, {"key": "f", "effect": "New"}]
    assert untolerated(taints, [{"key": "k", "operator": "Exists"}]) == [taints[2]]
    assert untolerated(taints, []) == [taints[0], taints[2]]
