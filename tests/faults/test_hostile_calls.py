"""Calls that no kubelet makes, straight to the sockets: names that are paths, UIDs that are paths, no names at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from dra_sdk import DriverInfo
from dra_sdk.node.kubelet.draplugin import NAME_LIMIT
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import ClaimRef, EmbeddedCluster
from dra_sdk.tools.simulator.kubelet.calls import V1, V1BETA1
from tests.faults.lamps import WatchedLamps
from tests.faults.site import Inside, SharedSite
from tests.lamps import NAME

NAMES = [
    "", ".", "..", "/", "../..", "../../../../etc/passwd", "a/b", "a?b=c", "a#b", "%2e%2e%2f", "a b", "a\nb", "a\x00b",
    "\x7f", "x" * 253, "x" * 10_000, "ü" * 253, "🔦", "\u202eevil", "{}", "{0.__class__}", "%s%n", "-", "--help",
    "A", "claim-1.json", ".tmp-x", "*", "$(reboot)", "'; drop table", "\\", "con",
]  # fmt: skip


class TellingDriver(WatchedLamps):
    """Its claims have metadata files, whose paths are made of names."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, configs=super().dra_driver_info().configs, metadata=True)


@pytest.fixture(scope="module", params=[WatchedLamps, TellingDriver])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSite]:
    with SharedSite(request.param, lambda: tmp_path_factory.mktemp("lamps")) as shared:
        yield shared


def files(cluster: EmbeddedCluster) -> set[Path]:
    return {path for path in cluster.root.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("service", [V1, V1BETA1])
@pytest.mark.parametrize("field", ["namespace", "name", "uid", "all"])
def test_hostile_names(site: Inside, service: str, field: str) -> None:
    good = site.claim("lamp-0")
    values = {"namespace": good.namespace, "name": good.name, "uid": good.uid}
    refs = []
    for number, hostile in enumerate(NAMES):
        changed = dict.fromkeys(values, hostile) if field == "all" else {**values, field: hostile}
        if field in {"namespace", "name"}:
            changed["uid"] = f"0000-{number}"
        refs.append(ClaimRef(**changed))
    before = files(site.cluster)
    with site.calls() as calls:
        prepared = calls.prepare([*refs, good], service, LONG).claims
        assert prepared.keys() == {ref.uid for ref in (*refs, good)}
        assert prepared[good.uid][0] == ""
        for ref in refs:
            error, devices = prepared[ref.uid]
            assert error.startswith("prepare claim ")
            assert "internal error" not in error
            assert len(error) < 5000
            assert devices == ()
        unprepared = calls.unprepare([*refs, good], service, LONG).claims
        too_long = {ref.uid for ref in refs if max(len(ref.namespace), len(ref.name), len(ref.uid)) > NAME_LIMIT}
        assert {uid for uid, (error, _) in unprepared.items() if error} == too_long
        assert unprepared.keys() == prepared.keys()
    assert files(site.cluster) == before


def test_one_uid_many_times(site: Inside) -> None:
    good = site.claim("lamp-0")
    others = [ClaimRef("default", f"other-{number}", good.uid) for number in range(10)]
    with site.calls() as calls:
        answers = calls.prepare([*others, good], timeout=LONG).claims
        assert answers.keys() == {good.uid}
        assert answers[good.uid][0] == "", "the last one with this UID is the claim"
        assert calls.unprepare([*others, good], timeout=LONG).claims == {good.uid: ("", ())}


def test_thousands_of_claims_in_a_call(site: Inside) -> None:
    refs = [ClaimRef("default", f"x-{number}", f"uid-{number}") for number in range(2_000)]
    with site.calls() as calls:
        assert len(calls.unprepare(refs, timeout=LONG).claims) == 2_000
        assert calls.prepare([], timeout=LONG).claims == {}


@pytest.mark.parametrize(
    "content",
    [b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x04\x0a\x02\xff\xfe", bytes(1000), b"\xff" * 100_000, b"\x0a\x05hello"],
)
@pytest.mark.parametrize("method", ["NodePrepareResources", "NodeUnprepareResources"])
def test_a_message_that_is_none(site: Inside, method: str, content: bytes) -> None:
    with site.calls() as calls:
        call = calls.channel.unary_unary(f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}")
        with pytest.raises(grpc.RpcError, match="Exception deserializing request") as caught:
            call(content, timeout=LONG)
        assert caught.value.code() is grpc.StatusCode.INTERNAL


def test_a_message_that_is_too_large(site: Inside) -> None:
    with site.calls() as calls:
        refs = [ClaimRef("default", "x" * 1000, f"{number}" * 100) for number in range(4_000)]
        assert calls.prepare(refs, timeout=LONG).code is grpc.StatusCode.RESOURCE_EXHAUSTED
