"""What an API server would refuse in planned slices, known before anything is sent.

Releases and their feature gates differ, and which server will answer is not known here: only what none of them takes
is a problem.
"""

from __future__ import annotations

from collections.abc import Sequence

from dra_sdk.model import JSON
from dra_sdk.node.slices.names import generate_name
from dra_sdk.wire.profile import GATES, NEWEST, OLDEST, ServerProfile


def refusals(slices: Sequence[JSON], driver: str, pool: str) -> list[str]:
    """One sentence for each rule of the newest release that the slices break; none if any release takes them all.

    `slices` are ResourceSliceSpecs without `driver` and `pool`.
    """
    from dra_sdk.wire.validation import sentence, validate  # noqa: PLC0415 (costs a tenth of a second of each start)

    objects = [_object(slices, index, driver, pool) for index in range(len(slices))]
    found: list[str] = []
    releases = [ServerProfile.of(f"1.{minor}") for minor in range(NEWEST, OLDEST - 1, -1)]
    for profile in [*releases, ServerProfile.of(f"1.{NEWEST}", dict.fromkeys(GATES, True))]:
        problems = [sentence(each, item) for item in objects for each in validate(item, profile=profile)]
        if not problems:
            return []
        found = found or problems
    return found


def _object(slices: Sequence[JSON], index: int, driver: str, pool: str) -> JSON:
    identity = {"name": pool, "generation": 1, "resourceSliceCount": len(slices)}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": generate_name(index, len(slices), driver, None)},
        "spec": {"driver": driver, "pool": identity, **slices[index]},
    }
