"""Trouble with the API server while the kubelet waits: ridden out if it is short, a clear error if it is not."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from dra_sdk.kube import client
from dra_sdk.kube.transport import ApiTimeouts
from dra_sdk.node.runtime import claims_api
from dra_sdk.node.runtime.sockets import SERVICE_THREADS
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import CATALOG, Delay, FaultRule, Reject, Reset, StatusError, statuses
from dra_sdk.tools.simulator.faults import Effect
from dra_sdk.tools.simulator.kubelet.records import ResponseError
from dra_sdk.tools.simulator.request import RequestRecord
from tests.faults.site import Inside
from tests.faults.trickling import Trickling

CLAIMS = CATALOG["resourceclaims"]
SHORT: dict[str, tuple[Effect, int]] = {
    "500": (Reject(statuses.internal_error("etcdserver: leader changed")), 2),
    "503": (Reject(statuses.unavailable()), 2),
    "504": (Reject(StatusError(504, "Timeout", "the server was unable to return a response in time")), 1),
    "429": (Reject(StatusError(429, "TooManyRequests", "later")), 2),
    "reset": (Reset(), 3),
    "reset after serving": (Reset(after_serving=True), 3),
    "slow": (Delay(0.3), 1),
}
FINAL: dict[str, tuple[StatusError, str]] = {
    "400": (statuses.bad_request("no"), "answered 400 BadRequest: no"),
    "401": (statuses.unauthorized(), "answered 401 Unauthorized: Unauthorized .logged in with kubeconfig "),
    "403": (statuses.forbidden(CLAIMS, "x", "no rule"), "answered 403 Forbidden: .* no rule .logged in with "),
    "404": (statuses.not_found(CLAIMS, "x"), 'answered 404 NotFound: resourceclaims.resource.k8s.io "x" not found'),
    "409": (statuses.conflict(CLAIMS, "x"), "answered 409 Conflict: Operation cannot be fulfilled"),
    "410": (statuses.expired("too old"), "answered 410 Expired: too old"),
    "429 for longer than we wait": (statuses.too_many_requests(3600), "answered 429 TooManyRequests: Too many"),
}


@pytest.mark.parametrize("trouble", SHORT)
def test_short_trouble_is_ridden_out(site: Inside, trouble: str) -> None:
    effect, times = SHORT[trouble]
    ref = site.claim("lamp-0")
    rule = site.cluster.server.faults.add(FaultRule(effect, "get", "resourceclaims", name=ref.name, times=times))
    site.prepare(ref)
    assert rule.hits == times
    site.assert_held(ref)
    site.unprepare(ref)


def test_it_comes_back_no_sooner_than_it_was_asked_to(site: Inside) -> None:
    ref = site.claim("lamp-0")
    site.cluster.server.faults.add(FaultRule(Reject(statuses.too_many_requests(1)), name=ref.name, times=1))
    site.prepare(ref)

    def records() -> list[RequestRecord]:
        return [each for each in site.cluster.server.log.records() if each.request.name == ref.name]

    wait(lambda: len(records()) >= 2)  # the server logs a request after it has answered
    refused, served = records()
    assert (refused.code, served.code) == (429, 200)
    assert served.started - refused.started >= 1.0
    site.unprepare(ref)


@pytest.mark.parametrize("trouble", FINAL)
def test_what_waiting_does_not_cure_is_told_at_once(site: Inside, trouble: str) -> None:
    error, said = FINAL[trouble]
    ref = site.claim("lamp-0")
    rule = site.cluster.server.faults.add(FaultRule(Reject(error), "get", "resourceclaims"))
    with pytest.raises(ResponseError, match=f"get resourceclaims default/{ref.name}: the API server {said}"):
        site.prepare(ref)
    assert rule.hits <= 2, "at most once more, after a new login"
    site.assert_held()


class Pauses(Event):
    """The event that a client waits for between its tries: it never waits, and `after` sees each pause in seconds."""

    after: Callable[[float], object]

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.after(timeout)
        return self.is_set()


@pytest.mark.parametrize("effect", [Reject(statuses.unavailable()), Reset(), Reset(after_serving=True)])
def test_trouble_that_lasts_is_told(fresh: Inside, effect: Effect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's time goes on only while it waits for its next try."""
    waited: list[float] = []
    monkeypatch.setattr(Pauses, "after", staticmethod(waited.append), raising=False)
    monkeypatch.setattr(client, "Event", Pauses)
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: sum(waited)))
    ref = fresh.claim("lamp-0")
    rule = fresh.cluster.server.faults.add(FaultRule(effect, "get", "resourceclaims"))
    said = "answered 503 ServiceUnavailable" if isinstance(effect, Reject) else "no answer from http://127.0.0.1"
    with fresh.running():
        fresh.wait_registered()
        with pytest.raises(ResponseError, match=said):
            fresh.prepare(ref)
        assert claims_api.FETCH_SECONDS - 2.5 < sum(waited) <= claims_api.FETCH_SECONDS  # the last pauses are of 2 s
        assert rule.hits > len(waited) > 5
        fresh.assert_held()


def test_a_server_that_is_gone_and_comes_back(site: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_api, "FETCH_SECONDS", 0.4)
    held, ref = site.claim("lamp-0"), site.claim("lamp-1")
    site.prepare(held)
    site.cluster.server.stop()
    try:
        with pytest.raises(ResponseError, match=r"no answer from http://127.0.0.1:\d+: .*Connection refused"):
            site.prepare(ref)
        site.prepare(held)
        site.assert_held(held)
        site.unprepare(held)
    finally:
        site.cluster.server.start()
    site.prepare(ref)
    site.unprepare(ref)


def test_a_server_that_comes_back_while_we_wait(fresh: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    def restart(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 3:
            fresh.cluster.server.start()

    monkeypatch.setattr(Pauses, "after", staticmethod(restart), raising=False)
    monkeypatch.setattr(client, "Event", Pauses)
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        fresh.cluster.server.stop()
        fresh.prepare(ref)
        assert len(tries) == 3
        fresh.unprepare(ref)


def test_a_server_that_never_answers(fresh: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ApiTimeouts", partial(ApiTimeouts, answer=1.0))
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        rule = fresh.cluster.server.faults.add(FaultRule(Delay(60), "get", "resourceclaims"))
        with monkeypatch.context() as patch:
            patch.setattr(claims_api, "FETCH_SECONDS", 0.5)
            with pytest.raises(ResponseError, match=r"no answer from http://127.0.0.1:\d+: .*not complete in time"):
                fresh.prepare(ref)
        fresh.cluster.server.faults.remove(rule)
        fresh.prepare(ref)
        fresh.unprepare(ref)
        fresh.assert_sound()


def test_answers_that_trickle_keep_nobody_waiting_who_needs_none(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For more claims than there are threads: each read ends in time, however often a byte of its answer comes."""
    monkeypatch.setattr(claims_api, "FETCH_SECONDS", 2.0)
    held, *slow = [fresh.claim(f"lamp-{number}") for number in range(SERVICE_THREADS + 3)]
    with (
        Trickling(fresh.cluster, slow, tmp_path) as server,
        fresh.running(kubeconfig=server.kubeconfig),
        fresh.calls() as calls,
    ):
        fresh.wait_registered()
        fresh.prepare(held)
        with ThreadPoolExecutor(len(slow)) as pool:
            pending = [pool.submit(calls.prepare, [ref], timeout=LONG) for ref in slow]
            wait(lambda: len(server.asked) >= SERVICE_THREADS)
            fresh.prepare(held)
            for ref, call in zip(slow, pending, strict=True):
                (error, devices) = call.result().claims[ref.uid]
                assert f"get resourceclaims default/{ref.name}: no answer from" in error
                assert "the answer was not complete in time" in error
                assert not devices
        assert sorted(server.asked) == sorted(ref.name for ref in slow)
        fresh.assert_held(held)
        fresh.unprepare(held)
        fresh.assert_held()


def test_credentials_that_come_late(fresh: Inside) -> None:
    ref = fresh.claim("lamp-0")
    later = fresh.cluster.kubeconfig.read_bytes()
    fresh.cluster.kubeconfig.unlink()
    with fresh.running():
        fresh.wait_registered()
        with pytest.raises(ResponseError, match=f"kubeconfig.* {fresh.cluster.kubeconfig}"):
            fresh.prepare(ref)
        fresh.cluster.kubeconfig.write_text("{")
        with pytest.raises(ResponseError, match=f"cannot log in with kubeconfig {fresh.cluster.kubeconfig}"):
            fresh.prepare(ref)
        fresh.cluster.kubeconfig.write_bytes(later)
        fresh.prepare(ref)
        fresh.unprepare(ref)
        wait(lambda: fresh.process.publisher.slices.synced)
        fresh.assert_sound()


def test_a_claim_that_went_or_came_again_meanwhile(site: Inside) -> None:
    gone, replaced, freed = site.claim("lamp-0"), site.claim("lamp-1"), site.claim("lamp-2")
    for ref in (gone, replaced):
        site.cluster.api.delete("resourceclaims", ref.name, "default")
    site.claim("lamp-1", name=replaced.name)
    site.cluster.deallocate(freed.name)
    for ref, said in ((gone, "404 NotFound"), (replaced, "the claim was replaced"), (freed, "is not allocated")):
        with pytest.raises(ResponseError, match=said):
            site.prepare(ref)
        site.unprepare(ref)
    site.assert_held()
