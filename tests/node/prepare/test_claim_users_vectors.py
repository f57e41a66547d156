"""Whether a claim is reserved for a pod, as upstream's table says."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.errors import ClaimError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.prepare.claim_users import ClaimUsers
from dra_sdk.nri import PodSandbox
from tests.vectors import cases

TABLE = "dra-lib-cases/resourceclaim.TestIsReservedForPod"
WITHOUT_GATE = {"podgroup-disabled"}  # a server without the gate reserves nothing for a PodGroup


@pytest.mark.parametrize("case", [case for case in cases(TABLE) if case.id not in WITHOUT_GATE])
def test_a_claim_is_reserved_for_a_pod_or_its_group(case: dict[str, Any]) -> None:
    metadata, pod = case["claim"]["metadata"], case["pod"]["metadata"]
    for consumer in case["claim"]["status"].get("reservedFor") or ():
        consumer["resource"] = consumer["resource"] or "pods"  # the table leaves out what every server demands
    ref = ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
    users = ClaimUsers(lambda *_arguments: case["claim"], lambda *_arguments: case["pod"])
    sandbox = PodSandbox("s", pod["namespace"], pod["name"], pod["uid"])
    if case["expectedResult"]:
        assert pod["uid"] in users.read(ref, sandbox)
    else:
        with pytest.raises(ClaimError, match="is not reserved for"):
            users.read(ref, sandbox)
