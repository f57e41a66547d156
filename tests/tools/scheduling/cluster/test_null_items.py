"""Items of lists that are null are read as items with no fields."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.cluster.disruption_budgets import matches_labels
from dra_sdk.tools.scheduling.cluster.simulation_notes import _NOT_SIMULATED


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [None]},
        {"topologySpreadConstraints": [None]},
        {"containers": [None]},
        {"containers": [{"name": "c", "ports": [None]}]},
    ],
)
def test_a_null_item_of_a_pod_is_worth_no_note(spec: dict[str, Any]) -> None:
    assert not any(is_used(spec) for is_used in _NOT_SIMULATED.values())


def test_a_null_expression_of_a_budget_matches_nothing() -> None:
    assert not matches_labels({"matchExpressions": [None]}, {"a": "b"})
