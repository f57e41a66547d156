"""Requests with any strings in them, over the real sockets: one answer for each UID, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.node.kubelet.draplugin import NAME_LIMIT, VERSIONS
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import ClaimRef, EmbeddedCluster
from tests.faults.site import Inside
from tests.fuzz.strategies import ODD_TEXTS, fuzz

names = st.one_of(st.text(max_size=20), st.sampled_from([each for each in ODD_TEXTS if each != "\ud800"]))
refs = st.lists(st.builds(ClaimRef, names, names, names), max_size=4)


def fits(ref: ClaimRef) -> bool:
    return max(len(ref.namespace), len(ref.name), len(ref.uid)) <= NAME_LIMIT


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    with EmbeddedCluster() as cluster:
        site = Inside(cluster, tmp_path_factory.mktemp("lamps"))
        with site.running():
            site.wait_registered()
            yield site
            site.assert_sound()


def test_requests(site: Inside) -> None:
    good = site.claim("lamp-0")

    with site.calls() as calls:

        @fuzz(150)
        @given(st.sampled_from(list(VERSIONS)), refs, st.booleans())
        def run(service: str, claims: list[ClaimRef], with_good: bool) -> None:
            if with_good:
                claims = [*claims, good]
            prepared = calls.prepare(claims, service, 20).claims
            assert prepared.keys() == {ref.uid for ref in claims}
            assert {uid for uid, (error, _) in prepared.items() if not error} == ({good.uid} if with_good else set())
            assert not any("internal error" in error for error, _ in prepared.values())
            unprepared = calls.unprepare(claims, service, 20).claims
            assert unprepared.keys() == {ref.uid for ref in claims}
            refused = {uid for uid, (error, _) in unprepared.items() if error}
            too_long = {ref.uid for ref in claims if not fits(ref)}
            assert too_long - {ref.uid for ref in claims if fits(ref)} <= refused <= too_long

        run()


@pytest.mark.parametrize("method", ["NodePrepareResources", "NodeUnprepareResources"])
def test_bytes(site: Inside, method: str) -> None:
    """Whatever parses is answered; what does not is refused as a whole, and the next call is served."""
    with site.calls() as calls:
        call = calls.channel.unary_unary(f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}")

        @fuzz(150)
        @given(st.binary(max_size=40))
        def run(content: bytes) -> None:
            error = call.future(content, timeout=LONG).exception()
            assert error is None or error.code().name == "INTERNAL"

        run()
