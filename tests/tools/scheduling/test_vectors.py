"""Tables of upstream's resourceclaim and resourceslice/tracker packages."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.model.claim import base_request
from dra_sdk.tools.scheduling.device_taints import apply_taint_rules, tolerates
from tests import vectors


def cases(table: str) -> list[Any]:
    return vectors.cases(f"dra-lib-cases/{table}")


@pytest.mark.parametrize("case", cases("resourceclaim.TestTolerationToleratesTaint"))
def test_toleration(case: dict[str, Any]) -> None:
    assert tolerates(case["toleration"], case["taint"]) is case["expectTolerated"]


@pytest.mark.parametrize("case", cases("resourceclaim.TestBaseRequestRef"))
def test_base_request(case: dict[str, Any]) -> None:
    assert base_request(case["requestRef"]) == case["expectedBaseRequestRef"]


def events(raw: list[Any]) -> list[Any]:
    """One event is a pair; several may stand together in a list."""
    flat: list[Any] = []
    for entry in raw:
        together = all(isinstance(part, list) for part in entry)
        flat += entry if together else [entry]
    return flat


@pytest.mark.parametrize("case", cases("tracker.TestListPatchedResourceSlices"))
def test_slices_with_the_taints_of_rules(case: dict[str, Any]) -> None:
    objects: dict[str, dict[str, dict[str, Any]]] = {"pool": {}, "taint": {}, "selectors": {}}
    for old, new in events(case["events"]):
        changed = new or old
        known = next(known for field, known in objects.items() if field in changed["spec"])
        known.pop(changed["metadata"]["name"], None)
        if new is not None:
            known[changed["metadata"]["name"]] = new
    tainted = apply_taint_rules(objects["pool"].values(), objects["taint"].values())
    assert sorted(tainted, key=repr) == sorted(case["expectedPatchedSlices"] or [], key=repr)
