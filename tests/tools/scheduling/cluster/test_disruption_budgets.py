from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.disruption_budgets import DisruptionBudgets
from tests.tools.scheduling.cluster.objects import cluster, obj, parsed, pod


def labelled(name, namespace="default", on="", **labels):
    made = pod(name, namespace=namespace, **({"nodeName": on} if on else {}))
    made["metadata"]["labels"] = labels
    return made


def budget(selector, *, allowed=None, disrupted=(), **spec):
    made = obj("PodDisruptionBudget", "b", {"selector": selector, **spec}, "default")
    status = {"disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")}
    return made | {"status": status | ({} if allowed is None else {"disruptionsAllowed": allowed})}


def violating(budgets, *pods):
    return sorted(
        name for _, name in DisruptionBudgets(cluster(*budgets, *pods)).violating([parsed(pod) for pod in pods])
    )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "x"}}, ["p"]),
        ({"matchLabels": {"app": "y"}}, []),
        ({}, []),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "z"]}]}, ["p"]),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, []),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, ["p"]),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, ["p"]),
        ({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, []),
    ],
)
def test_the_selector_decides(selector, expected):
    assert violating([budget(selector, allowed=0)], labelled("p", app="x")) == expected


def test_other_namespaces_and_pods_without_labels_have_no_budget():
    every = budget({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, allowed=0)
    assert violating([every], labelled("p", namespace="other", app="x"), labelled("q")) == []


def test_a_budget_is_used_up_in_order():
    pods = [labelled(name, app="x") for name in "pqr"]
    selector = {"matchLabels": {"app": "x"}}
    assert violating([budget(selector, allowed=1)], *pods) == ["q", "r"]
    assert violating([budget(selector, allowed=1, disrupted="p")], *pods) == ["r"]
    budgets = DisruptionBudgets(cluster(budget(selector, allowed=1), *pods))
    budgets.evict([parsed(pods[0])])
    assert sorted(name for _, name in budgets.violating([parsed(pods[1])])) == ["q"]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 1),
        ({"minAvailable": 3}, 0),
        ({"minAvailable": 5}, 0),
        ({"minAvailable": "50%"}, 1),
        ({"maxUnavailable": 1}, 0),
        ({"maxUnavailable": 2}, 1),
        ({"maxUnavailable": "100%"}, 3),
        ({}, 3),
    ],
)
def test_a_budget_without_status_is_counted(spec, allowed):
    """Four pods are expected, and three of them run."""
    pods = [labelled(name, on="a" if name != "s" else "", app="x") for name in "pqrs"]
    blocked = violating([budget({"matchLabels": {"app": "x"}}, **spec)], *pods)
    assert len(blocked) == 4 - allowed
