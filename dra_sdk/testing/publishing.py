"""A driver's ResourceSlices as API servers of different releases take and store them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.device import ResourcePool
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.wire.profile import NEWEST, OLDEST, ServerProfile
from dra_sdk.wire.validation import CompileCel, Problem, sentence, title, validate
from dra_sdk.wire.validation.decoding import decoded, without_disabled
from dra_sdk.wire.validation.problems import ProblemType

RELEASES = tuple(f"1.{minor}" for minor in range(OLDEST, NEWEST + 1))
_NOW = "2000-01-01T00:00:00Z"


def stored(obj: Mapping[str, Any], profile: ServerProfile, compile_cel: CompileCel | None = None) -> JSON:
    """An object as a server stores it: with defaults, without what the server drops.

    InvalidObjectError with one sentence per problem where the server would refuse it, or does not know a field.
    """
    found, problems = decoded(obj, profile, _NOW)
    kept = without_disabled(found or obj, None, profile)
    problems += validate(kept, profile=profile, compile_cel=compile_cel) if found else []
    if problems:
        raise InvalidObjectError(title(obj), [sentence(each, obj) for each in problems])
    return kept


def fresh_slices(pools: Iterable[ResourcePool], driver: str, node: str, profile: ServerProfile) -> list[JSON]:
    """The slices as a driver sends them to such a server the first time; InvalidObjectError where it cannot."""
    made = resource_slices(pools, driver=driver, node_name=node, minor=profile.minor)
    return [_named(each, number) for number, each in enumerate(made)]


def refusals(slices: Iterable[JSON], version: str) -> list[str]:
    """What a server of a release, with its default feature gates, refuses: one sentence each.

    A field that the release does not know is no problem, as the server drops it.
    """
    profile = ServerProfile.of(version)
    found = []
    for each in slices:
        known, problems = decoded(each, profile, _NOW)
        if known is not None:
            problems = validate(without_disabled(known, None, profile), profile=profile)
        found += [f"Kubernetes {version}: {sentence(problem, each)}" for problem in problems if _counts(problem)]
    return found


def _counts(problem: Problem) -> bool:
    return problem.type is not ProblemType.UNKNOWN


def _named(made: JSON, number: int) -> JSON:
    metadata = {key: value for key, value in made["metadata"].items() if key != "generateName"}
    return {**made, "metadata": {**metadata, "name": f"{made['metadata']['generateName']}{number}"}}
