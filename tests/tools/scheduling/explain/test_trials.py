from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import value_at
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem
from dra_sdk.tools.scheduling.explain.claim_changes import constraint_changes
from dra_sdk.tools.scheduling.explain.trials import (
    REMOVED,
    ChangeSize,
    ChangeTrials,
    ProposedChange,
    constraint_path,
    path_text,
    request_path,
    with_value,
)
from tests.tools.scheduling.clusters import GPU, ROOT, claim, device, exactly, pool_slice
from tests.tools.scheduling.explain.situations import problem_of

CLAIM = claim(
    "c",
    exactly("a", "x"),
    {"name": "b", "firstAvailable": [{"name": "one"}, {"name": "two"}]},
    constraints=[{"matchAttribute": ROOT}],
)


def test_changes_leave_the_original_alone():
    before = deepcopy(CLAIM)
    path = (*request_path(CLAIM, "a"), "count")
    made = with_value(CLAIM, path, 3)
    assert value_at(made, path) == 3
    assert made["metadata"] is CLAIM["metadata"], "what did not change is shared"
    assert "constraints" in value_at(made, ("spec", "devices"))
    assert value_at(with_value(CLAIM, constraint_path(0), REMOVED), constraint_path(0)) is None
    deep = with_value(CLAIM, ("status", "new", "field"), REMOVED)
    assert deep["status"] == {"new": {}}
    assert before == CLAIM


def test_paths():
    path = request_path(CLAIM, "b/two")
    assert path_text(path) == "spec.devices.requests[1].firstAvailable[1]"
    assert value_at(CLAIM, path) == {"name": "two"}
    assert path_text((*path, "capacity", "requests", "dra.cpu/cpu")).endswith("[1].capacity.requests[dra.cpu/cpu]")
    assert value_at(CLAIM, ("spec", "nothing", 3)) is None


def free(problem: AllocationProblem) -> AllocationProblem:
    return problem.with_changes(allocated_claims=())


def nothing(problem: AllocationProblem) -> AllocationProblem:
    return problem


def texts(trials: ChangeTrials, *proposals: ProposedChange) -> list[str]:
    return [change.text for change in trials.helpful(proposals)]


def test_only_what_helps_and_the_smallest_first():
    problem = problem_of("taken")
    trials = ChangeTrials(problem)
    helpful = texts(
        trials,
        ProposedChange(ChangeSize.NODE, "large", free, problem.nodes),
        ProposedChange(ChangeSize.COUNT, "useless", nothing, problem.nodes),
        ProposedChange(ChangeSize.COUNT, "second", free, problem.nodes, extent=2),
        ProposedChange(ChangeSize.COUNT, "first", free, problem.nodes, extent=1),
        ProposedChange(ChangeSize.COUNT, "first", free, problem.nodes),
    )
    assert helpful == ["first", "second", "large"]
    assert trials.tried == 4, "the same text is tried once"


def test_alternatives_of_one_family():
    problem = problem_of("taken")
    helpful = ChangeTrials(problem).helpful(
        ProposedChange(
            ChangeSize.CLAIM_FREED,
            f"free {name}",
            free if name != "b" else nothing,
            problem.nodes,
            family="f",
            name=name,
        )
        for name in "abc"
    )
    assert [(change.text, change.others) for change in helpful] == [("free a", ("c",))]
    assert helpful[0].kind == "claim-freed"


def test_pairs_are_tried_if_nothing_helps_alone():
    taken = problem_of("taken")
    first, second = (holder for holder in taken.allocated_claims if holder["metadata"]["name"].startswith("old"))

    def without(freed: JSON) -> Callable[[AllocationProblem], AllocationProblem]:
        return lambda problem: problem.with_changes(
            allocated_claims=tuple(holder for holder in problem.allocated_claims if holder is not freed)
        )

    helpful = texts(
        ChangeTrials(taken),
        ProposedChange(ChangeSize.CLAIM_FREED, "one", without(first), taken.nodes[:1]),
        ProposedChange(ChangeSize.CLAIM_FREED, "two", without(second), taken.nodes[:1]),
        ProposedChange(ChangeSize.NODE, "no pair", nothing, taken.nodes[:1]),
    )
    assert helpful == ["one; and two"]


def test_larger_changes_to_the_same_conjuncts_are_not_tried():
    problem = problem_of("taken")
    one, two = frozenset({("selector", 0)}), frozenset({("selector", 0), ("selector", 9)})
    trials = ChangeTrials(problem)
    helpful = texts(
        trials,
        ProposedChange(ChangeSize.CONSTANT, "small", free, problem.nodes, parts=one),
        ProposedChange(ChangeSize.CONJUNCT, "larger", free, problem.nodes, parts=two),
        ProposedChange(ChangeSize.CONJUNCT, "other", free, problem.nodes, parts=frozenset({("selector", 5)})),
    )
    assert helpful == ["small", "other"]


def test_a_change_must_remove_errors_on_other_nodes():
    problem = problem_of("partly_error")
    leave = ProposedChange(ChangeSize.CONJUNCT, "look at n2 only", nothing, problem.nodes[1:])
    assert texts(ChangeTrials(problem), leave) == ["look at n2 only"]
    assert texts(ChangeTrials(problem, problem.nodes[:1]), leave) == []


@pytest.mark.parametrize(("first", "second", "left"), [(0, 2, "b"), (1, 2, "a"), (2, 0, "b")])
def test_of_two_fields_the_later_one_is_changed_first(first: int, second: int, left: str):
    """Removing an item of a list moves the items after it. Only the constraint that is `left` can be met."""
    constraints = [{"matchAttribute": f"{name}.example.com/x"} for name in "abc"]
    wanted = claim("c", exactly("gpu", GPU), constraints=constraints)
    gpu = pool_slice("n1", GPU, [device("gpu-0", {"type": "gpu", f"{left}.example.com/x": "y"})])
    problem = problem_of("taken").with_changes(claims=(wanted,), slices=(gpu,), allocated_claims=())
    removals = list(constraint_changes(wanted, problem.nodes))
    helpful = texts(ChangeTrials(problem), removals[first], removals[second])
    assert helpful == [f"{removals[first].text}; and {removals[second].text}"]
