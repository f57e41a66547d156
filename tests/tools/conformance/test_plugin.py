from __future__ import annotations

import pytest

from dra_sdk.tools.conformance.plugin import ClaimsAnswer, Entry, method_path
from dra_sdk.tools.simulator.kubelet.records import ClaimRef, PreparedDevice

CLAIM = ClaimRef("ns", "claim", "uid-1")
DEVICE = PreparedDevice("gpu.example.com", "pool", "gpu-0", ("gpu",), ("a/b=c", "a/b=d"))


def answer(entries: dict[str, Entry], *, ok: bool = True) -> ClaimsAnswer:
    return ClaimsAnswer("NodePrepareResources", "OK" if ok else "INTERNAL: broken", ok, entries, 0.0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (answer({"uid-1": Entry("", (DEVICE,))}), ""),
        (answer({"uid-1": Entry("")}), ""),
        (answer({}, ok=False), "NodePrepareResources failed as a whole: INTERNAL: broken"),
        (answer({}), "NodePrepareResources has no entry for claim ns/claim (UID uid-1)"),
        (
            answer({"uid-1": Entry(""), "uid-2": Entry("")}),
            "NodePrepareResources has an entry for the claim UID 'uid-2', which was not asked for",
        ),
        (answer({"uid-1": Entry("no luck")}), "NodePrepareResources failed for claim ns/claim: no luck"),
    ],
)
def test_what_the_kubelet_makes_of_an_answer(given: ClaimsAnswer, problem: str) -> None:
    assert given.problem([CLAIM]) == problem


def test_a_refusal_is_said_for_the_claim_or_for_all() -> None:
    assert answer({}, ok=False).refuses(CLAIM)
    assert answer({"uid-1": Entry("no luck")}).refuses(CLAIM)
    assert not answer({"uid-1": Entry("", (DEVICE,))}).refuses(CLAIM)
    assert not answer({}).refuses(CLAIM)


def test_the_cdi_ids_of_an_entry() -> None:
    assert Entry("", (DEVICE, DEVICE)).cdi_ids == ("a/b=c", "a/b=d", "a/b=c", "a/b=d")


def test_names_on_the_wire_are_longer_than_those_advertised() -> None:
    wanted = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert method_path("v1.DRAPlugin", "NodePrepareResources") == wanted
