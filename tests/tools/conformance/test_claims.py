from __future__ import annotations

import pytest

from dra_sdk.errors import NotFoundError
from dra_sdk.kube import paths
from dra_sdk.tools.conformance.check import NotApplicable
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.tools.conformance.conftest import Opener
from tests.tools.conformance.mutants.faults import faults


def test_slots_of_each_kind(open_run: Opener) -> None:
    with open_run() as run:
        assert [slot.device for slot in run.claims.slots(6)] == [*(f"dev-{n}" for n in range(4)), "shared-0", "part-0"]
        assert {slot.device for slot in run.claims.slots(4, shared=True)} == {"shared-0"}
        assert [slot.device for slot in run.claims.slots(2, shared=False)] == ["dev-0", "dev-1"]
        assert len(run.claims.every_slot(3)) == 3
        assert len(run.claims.every_slot(100)) == 9
        with pytest.raises(NotApplicable, match=r"needs 10 device\(s\) .*, the slices have 9"):
            run.claims.slots(10)
        with pytest.raises(NotApplicable, match=r"needs 5 share\(s\) of one device"):
            run.claims.slots(5, shared=True)


def test_a_claim_is_as_the_scheduler_leaves_it(open_run: Opener, cluster: EmbeddedCluster) -> None:
    with open_run() as run:
        first, second = run.claims.slots(2, shared=True)
        claim = run.claims.make([first, second], requests=["both", "both"])
        stored = cluster.api.get("resourceclaims", claim.ref.name, claim.ref.namespace)
        (request,) = stored["spec"]["devices"]["requests"]
        assert request["name"] == "both"
        assert request["exactly"]["count"] == 2
        results = stored["status"]["allocation"]["devices"]["results"]
        assert results == list(claim.results)
        assert len({each["shareID"] for each in results}) == 2
        assert results[0]["consumedCapacity"] == {"seats": "1"}
        assert claim.requests == {"both"}
        assert claim.devices == {(cluster.node_name, "shared-0")}


def test_subrequests_admin_access_and_other_devices(open_run: Opener, cluster: EmbeddedCluster) -> None:
    with open_run() as run:
        claim = run.claims.one(requests=["either/first"], device="elsewhere")
        assert claim.requests == {"either"}
        assert claim.devices == {(cluster.node_name, "elsewhere")}
        stored = cluster.api.get("resourceclaims", claim.ref.name, claim.ref.namespace)
        assert stored["spec"]["devices"]["requests"][0]["firstAvailable"][0]["name"] == "first"


def test_tidying_up_unprepares_and_deletes(open_run: Opener, cluster: EmbeddedCluster) -> None:
    with open_run() as run:
        claim = run.claims.one()
        run.prepared(claim)
        assert run.cdi.paths()
        run.claims.tidy()
        assert not run.cdi.paths()
        client = run.api._client
        with pytest.raises(NotFoundError):
            client.get(paths.resource_claim(claim.ref.namespace, claim.ref.name))
        run.claims.tidy()


def test_a_driver_that_never_publishes_is_waited_for_once(open_run: Opener) -> None:
    with open_run(faults("no-slices"), slices=0.2) as run:
        assert run.claims.slices() == []
        assert run.claims._awaited
        with pytest.raises(NotApplicable, match="the slices have 0"):
            run.claims.slots()


def test_devices_of_others_claims_are_kept_clear_of(open_run: Opener, cluster: EmbeddedCluster) -> None:
    with open_run() as run:
        run.start()
        name = run.subject.name
        result = {"request": "r", "driver": name, "pool": cluster.node_name, "device": "dev-0"}
        cluster.create_claim("others", {"r": "any"})
        stored = cluster.api.get("resourceclaims", "others", "default")
        cluster.api.update_status(
            "resourceclaims", {**stored, "status": {"allocation": {"devices": {"results": [result]}}}}
        )
        run.claims._sharing = True
        assert run.claims.slots()[0].device == "dev-1"
        assert run.claims.scheduled().devices == {(cluster.node_name, "dev-1")}
        cluster.api.delete("resourceclaims", "others", "default")
