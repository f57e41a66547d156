"""Tables of upstream's resourceclaim and resourceslice/tracker packages."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.model.claim import base_request
from dra_sdk.tools.scheduling.allocator.allocation_result import config_for_result
from dra_sdk.tools.scheduling.claim_ownership import (
    ClaimOwnershipError,
    check_owner,
    claim_name,
    consumer_reference,
    is_reserved_for,
    same_claim_statuses,
    same_extended_status,
)
from dra_sdk.tools.scheduling.device_taints import SliceEvent, SliceTracker, tolerates
from tests import vectors


def cases(table: str) -> list[Any]:
    return vectors.cases(f"dra-lib-cases/{table}")


@pytest.mark.parametrize("case", cases("resourceclaim.TestTolerationToleratesTaint"))
def test_toleration(case: dict[str, Any]) -> None:
    assert tolerates(case["toleration"], case["taint"]) is case["expectTolerated"]


@pytest.mark.parametrize("case", cases("resourceclaim.TestBaseRequestRef"))
def test_base_request(case: dict[str, Any]) -> None:
    assert base_request(case["requestRef"]) == case["expectedBaseRequestRef"]


@pytest.mark.parametrize("case", cases("resourceclaim.TestConfigForResult"))
def test_config_for_result(case: dict[str, Any]) -> None:
    found = config_for_result(case["deviceConfigurations"], case["result"])
    assert found == (case["expectedConfigs"] or [])


@pytest.mark.parametrize("case", cases("resourceclaim.TestIsReservedForPod"))
def test_reserved(case: dict[str, Any]) -> None:
    found = is_reserved_for(case["pod"], case["claim"], group_claims=case["acceptPodGroup"])
    assert found is case["expectedResult"]


@pytest.mark.parametrize("case", cases("resourceclaim.TestResourceClaimIsFor"))
def test_owner(case: dict[str, Any]) -> None:
    error = ""
    try:
        check_owner(case["pod"], case["claim"], group_claims=case.get("acceptPodGroup", False))
    except ClaimOwnershipError as caught:
        error = str(caught)
    assert error == case["expectedError"]


@pytest.mark.parametrize("case", cases("resourceclaim.TestBindTo"))
def test_consumer(case: dict[str, Any]) -> None:
    if case["expectedError"]:
        with pytest.raises(ClaimOwnershipError) as caught:
            consumer_reference(case["pod"], case["podClaim"], case["podGroup"])
        assert str(caught.value) == case["expectedError"]
    else:
        assert consumer_reference(case["pod"], case["podClaim"], case["podGroup"]) == case["expected"]


@pytest.mark.parametrize("case", [*cases("resourceclaim.TestName"), *cases("resourceclaim.TestNameFromPodGroup")])
def test_claim_name(case: dict[str, Any]) -> None:
    owner = case.get("pod") or case["podGroup"]
    entry = case.get("podClaim") or case["podGroupClaim"]
    if case["expectedError"]:
        with pytest.raises(ClaimOwnershipError) as caught:
            claim_name(owner, entry)
        assert str(caught.value) == case["expectedError"]
    else:
        assert claim_name(owner, entry) == (case["expectedName"], case["expectedCheck"])


@pytest.mark.parametrize("case", cases("resourceclaim.TestPodStatusEqual"))
def test_claim_statuses(case: dict[str, Any]) -> None:
    assert same_claim_statuses(case["sliceA"], case["sliceB"]) is case["expectEqual"]


@pytest.mark.parametrize("case", cases("resourceclaim.TestPodExtendedStatusEqual"))
def test_extended_status(case: dict[str, Any]) -> None:
    assert same_extended_status(case["statusA"], case["statusB"]) is case["expectEqual"]


def changes(tracker: SliceTracker, old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[SliceEvent]:
    each = new or old
    assert each
    if "selectors" in each["spec"]:
        return []  # a DeviceClass, which no rule of v1 refers to
    name, is_slice = each["metadata"]["name"], "pool" in each["spec"]
    if new is None:
        return tracker.delete_slice(name) if is_slice else tracker.delete_rule(name)
    return tracker.put_slice(new) if is_slice else tracker.put_rule(new)


def events(raw: list[Any]) -> list[Any]:
    """One event is a pair; several may stand together in a list."""
    flat: list[Any] = []
    for each in raw:
        together = all(isinstance(part, list) for part in each)
        flat += each if together else [each]
    return flat


@pytest.mark.parametrize("case", cases("tracker.TestListPatchedResourceSlices"))
def test_tracker(case: dict[str, Any]) -> None:
    tracker = SliceTracker()
    found = [change for old, new in events(case["events"]) for change in changes(tracker, old, new)]
    observed = [{"event": each.event, "oldObj": each.old, "newObj": each.new} for each in found]
    assert observed == case["expectedHandlerEvents"]
    assert sorted(tracker.slices, key=repr) == sorted(case["expectedPatchedSlices"] or [], key=repr)
