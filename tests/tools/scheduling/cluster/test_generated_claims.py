from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.claim_controller import claim_key, used_claims
from dra_sdk.tools.scheduling.cluster.generated_claims import with_generated_claims
from tests.tools.scheduling.cluster.objects import claim, cluster, parsed, pod, request, template


def test_a_claim_is_generated_for_each_use_of_a_template():
    given = template("one", request("a"), labels={"team": "x"}, annotations={"note": "y"})
    snapshot = with_generated_claims(cluster(given, pod("p", templates=["one"])))
    (made,) = snapshot.claims
    metadata = made["metadata"]
    assert metadata["name"].startswith("p-one-")
    assert metadata["labels"] == {"team": "x"}
    assert metadata["annotations"] == {"note": "y", "resource.kubernetes.io/pod-claim-name": "one"}
    assert metadata["ownerReferences"][0]["uid"] == "p-uid"
    assert made["spec"] == given["spec"]["spec"]
    (changed,) = snapshot.pods
    assert changed["status"]["resourceClaimStatuses"] == [{"name": "one", "resourceClaimName": metadata["name"]}]
    assert with_generated_claims(snapshot) is snapshot


def test_a_claim_that_was_generated_before_is_found():
    mine = claim("p-one-abcde")
    mine["metadata"] |= {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "one"},
        "ownerReferences": [{"uid": "p-uid", "controller": True}],
    }
    snapshot = with_generated_claims(cluster(template("one"), mine, pod("p", templates=["one"])))
    assert len(snapshot.claims) == 1
    assert list(used_claims(parsed(snapshot.pods[0]))) == [("default", "p-one-abcde")]


def test_no_claim_for_a_missing_template_or_a_finished_pod():
    done = pod("done", templates=["one"]) | {"status": {"phase": "Succeeded"}}
    snapshot = with_generated_claims(cluster(template("one"), pod("p", templates=["other"]), done))
    assert snapshot.claims == ()
    entry = parsed(snapshot.pods[0]).spec.resource_claims[0]
    with pytest.raises(LookupError, match="template other does not exist"):
        claim_key(parsed(snapshot.pods[0]), entry)


def test_a_template_may_have_no_requests():
    empty = template("one") | {"spec": {}}
    (made,) = with_generated_claims(cluster(empty, pod("p", templates=["one"]))).claims
    assert made["spec"] == {}
