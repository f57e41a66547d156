"""A thousand calls at once through the socket: each is answered, no lamp shines for two, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

import grpc
import pytest

from dra_sdk.tools.simulator import ClaimRef
from dra_sdk.wire.proto import dra_v1_pb2
from tests.faults.site import Inside

CALLS = 1000
CALL = 250.0  # seconds: the last of so many calls has to wait for all others
OVERTAKEN = " while this call was waiting"  # unprepared, or prepared again
RESPONSES = {"Prepare": dra_v1_pb2.NodePrepareResourcesResponse, "Unprepare": dra_v1_pb2.NodeUnprepareResourcesResponse}


@pytest.fixture
def busy(fresh: Inside) -> Iterator[Inside]:
    fresh.driver.count = CALLS
    with fresh.running():
        fresh.wait_registered()
        yield fresh
        fresh.assert_sound()


def call(channel: grpc.Channel, kind: str, ref: ClaimRef) -> Any:
    stub = channel.unary_unary(
        f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node{kind}Resources",
        request_serializer=dra_v1_pb2.NodePrepareResourcesRequest.SerializeToString,
        response_deserializer=RESPONSES[kind].FromString,
    )
    claim = dra_v1_pb2.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)
    return stub.future(dra_v1_pb2.NodePrepareResourcesRequest(claims=[claim]), timeout=CALL)


def all_at_once(site: Inside, wanted: Iterable[tuple[str, ClaimRef]]) -> list[str]:
    """The errors of the calls, which are all sent before the first is answered; each must be about its own claim."""
    with site.calls() as calls:
        under_way = [(ref, call(calls.channel, kind, ref)) for kind, ref in wanted]
        errors = []
        for ref, future in under_way:
            answers = future.result().claims
            assert list(answers) == [ref.uid]
            errors.append(answers[ref.uid].error)
    return errors


def test_a_thousand_claims(busy: Inside) -> None:
    refs = [busy.claim(f"lamp-{number}") for number in range(CALLS // 2)]
    assert not any(all_at_once(busy, (("Prepare", ref) for ref in refs)))
    busy.assert_held(*refs)
    assert not any(all_at_once(busy, (("Unprepare", ref) for ref in refs)))
    busy.assert_held()


def test_a_thousand_calls_in_any_order_for_few_claims(busy: Inside) -> None:
    refs = [busy.claim(f"lamp-{number}", f"lamp-{number + 1}") for number in range(10)]
    errors = all_at_once(busy, shuffled(refs))
    wrong = [error for error in errors if error and OVERTAKEN not in error and " is held by claim " not in error]
    assert wrong == []
    assert "" in errors
    holders = busy.shining()
    assert len(set(holders.values())) * 2 == len(holders)
    for ref in refs:
        busy.unprepare(ref)
    busy.assert_held()
    assert len(busy.driver.prepared) == len(busy.driver.undone), "each that was begun was undone once"


def shuffled(refs: Sequence[ClaimRef]) -> list[tuple[str, ClaimRef]]:
    calls = [(kind, ref) for ref in refs for kind in ("Prepare", "Unprepare")] * (CALLS // len(refs) // 2)
    Random(1).shuffle(calls)
    return calls
