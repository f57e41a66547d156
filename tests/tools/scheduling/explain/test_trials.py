from __future__ import annotations

from dra_sdk.tools.scheduling.explain import claimedits
from dra_sdk.tools.scheduling.explain.setting import Setting
from dra_sdk.tools.scheduling.explain.trials import Proposal, Size, Trials
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import GPU, claim, exactly


def free(setting: Setting) -> Setting:
    return setting.changed(holders=())


def nothing(setting: Setting) -> Setting:
    return setting


def texts(trials: Trials, *proposals: Proposal) -> list[str]:
    return [each.text for each in trials.helpful(proposals)]


def test_only_what_helps_and_the_smallest_first():
    made = setting("taken")
    trials = Trials(made)
    found = texts(
        trials,
        Proposal(Size.NODE, "large", free, made.nodes),
        Proposal(Size.COUNT, "useless", nothing, made.nodes),
        Proposal(Size.COUNT, "second", free, made.nodes, extent=2),
        Proposal(Size.COUNT, "first", free, made.nodes, extent=1),
        Proposal(Size.COUNT, "first", free, made.nodes),
    )
    assert found == ["first", "second", "large"]
    assert trials.tried == 4, "the same text is tried once"


def test_alternatives_that_are_as_good():
    made = setting("taken")
    found = Trials(made).helpful(
        Proposal(Size.CLAIM_FREED, f"free {name}", free if name != "b" else nothing, made.nodes, family="f", name=name)
        for name in "abc"
    )
    assert [(each.text, each.others) for each in found] == [("free a", ("c",))]
    assert found[0].kind == "claim-freed"


def test_pairs_where_nothing_helps_alone():
    made = setting("taken")
    first, second = (each for each in made.holders if each["metadata"]["name"].startswith("old"))

    def without(claim: object) -> object:
        return lambda setting: setting.changed(holders=tuple(each for each in setting.holders if each is not claim))

    found = texts(
        Trials(made),
        Proposal(Size.CLAIM_FREED, "one", without(first), made.nodes[:1]),  # type: ignore[arg-type]
        Proposal(Size.CLAIM_FREED, "two", without(second), made.nodes[:1]),  # type: ignore[arg-type]
        Proposal(Size.NODE, "no pair", nothing, made.nodes[:1]),
    )
    assert found == ["one; and two"]


def test_larger_changes_to_the_same_clauses_are_not_tried():
    made = setting("taken")
    one, two = frozenset({("selector", 0)}), frozenset({("selector", 0), ("selector", 9)})
    trials = Trials(made)
    found = texts(
        trials,
        Proposal(Size.CONSTANT, "small", free, made.nodes, parts=one),
        Proposal(Size.CLAUSE, "larger", free, made.nodes, parts=two),
        Proposal(Size.CLAUSE, "other", free, made.nodes, parts=frozenset({("selector", 5)})),
    )
    assert found == ["small", "other"]


def test_errors_elsewhere_have_to_go_too():
    made = setting("partly_error")
    leave = Proposal(Size.CLAUSE, "look at n2 only", nothing, made.nodes[1:])
    assert texts(Trials(made), leave) == ["look at n2 only"]
    assert texts(Trials(made, made.nodes[:1]), leave) == []


def test_of_two_places_the_later_one_is_changed_first():
    """What is removed from a list must not move what the other change is about."""
    constraints = [{"matchAttribute": f"{name}.example.com/x"} for name in "abc"]
    asked = claim("c", exactly("gpu", GPU), constraints=constraints)
    made = setting("taken").changed(claims=(asked,), holders=())
    removals = list(claimedits.of_constraints(asked, made.nodes))
    for first, second, left in ((0, 2, "b"), (1, 2, "a"), (2, 0, "b")):
        (both,) = pairs(removals[first], removals[second])
        assert both.apply(made).plan.constraints == [{"matchAttribute": f"{left}.example.com/x"}]


def pairs(*proposals: Proposal) -> list[Proposal]:
    """What `Trials` tries when nothing helps alone."""
    tried: list[Proposal] = []

    class Recording(Trials):
        def _node_for(self, proposal: Proposal) -> str | None:
            tried.append(proposal)
            return None

    Recording(setting("taken")).helpful(proposals)
    return [each for each in tried if each.size is Size.PAIR]
