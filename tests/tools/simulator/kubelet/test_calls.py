from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk.tools.simulator.kubelet import (
    ClaimRef,
    DriverCallError,
    KubeletEmulator,
    PreparedDevice,
    ResponseError,
)
from dra_sdk.tools.simulator.kubelet.records import PREPARE, UNPREPARE
from tests.tools.simulator.fakes import Answer, FakeDriver, one_device
from tests.waiting import LONG

DRIVER = "gpu.example.com"
ONE, TWO = ClaimRef("default", "one", "uid-1"), ClaimRef("default", "two", "uid-2")


@pytest.fixture
def driver(kubelet: KubeletEmulator, kubelet_dir: Path) -> Iterator[FakeDriver]:
    with FakeDriver(kubelet_dir) as running:
        kubelet.wait_for_driver(DRIVER)
        yield running


def test_prepare_returns_devices_by_claim(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    shared = PreparedDevice(DRIVER, "node-1", "dev", ("r1", "r2"), ("a/b=c", "a/b=d"), "share-1")
    driver.on_prepare = lambda claims: {ONE.uid: [shared], TWO.uid: []}
    assert kubelet.prepare(DRIVER, [ONE, TWO]) == {ONE.uid: (shared,), TWO.uid: ()}
    assert driver.prepared == [("v1", [ONE, TWO])]
    (call,) = kubelet.calls(PREPARE)
    assert (call.claims, call.error, call.devices[ONE.uid]) == ((ONE, TWO), "", (shared,))


def test_v1beta1_has_no_share_id(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, versions=("v1beta1.DRAPlugin",)) as driver:
        kubelet.wait_for_driver(DRIVER)
        (device,) = kubelet.prepare(DRIVER, [ONE])[ONE.uid]
        kubelet.unprepare(DRIVER, [ONE])
    assert device.share_id is None
    assert [version for version, _ in driver.prepared + driver.unprepared] == ["v1beta1", "v1beta1"]


PREPARE_ANSWERS: list[tuple[Answer, str, str]] = [
    ({ONE.uid: [], TWO.uid: [], "uid-9": []}, "unknown-claim", "result for unknown claim UID uid-9"),
    ({ONE.uid: []}, "missing-claim", "skipped 1 ResourceClaims"),
    ({}, "missing-claim", "skipped 2 ResourceClaims"),
    ({ONE.uid: [], TWO.uid: "no such device"}, "claim-error", "failed for ResourceClaim two: no such device"),
]


@pytest.mark.parametrize(("answer", "rule", "why"), PREPARE_ANSWERS)
def test_a_prepare_answer_that_breaks_a_rule(
    kubelet: KubeletEmulator, driver: FakeDriver, answer: Answer, rule: str, why: str
) -> None:
    driver.on_prepare = lambda claims: answer
    with pytest.raises(ResponseError, match=why) as caught:
        kubelet.prepare(DRIVER, [ONE, TWO])
    assert caught.value.rule == rule
    assert (caught.value.driver, caught.value.socket) == (DRIVER, str(driver.service))
    assert caught.value.claim
    assert why in kubelet.calls(PREPARE)[0].error


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ({ONE.uid: "", "uid-9": ""}, "unknown-claim"),
        ({}, "missing-claim"),
        ({ONE.uid: "busy"}, "claim-error"),
    ],
)
def test_an_unprepare_answer_that_breaks_a_rule(
    kubelet: KubeletEmulator, driver: FakeDriver, answer: Answer, rule: str
) -> None:
    driver.on_unprepare = lambda claims: answer
    with pytest.raises(ResponseError) as caught:
        kubelet.unprepare(DRIVER, [ONE])
    assert caught.value.rule == rule


def test_a_call_that_fails_as_a_whole(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    def fail(claims: list[ClaimRef]) -> Answer:
        raise ValueError("broken driver")

    driver.on_prepare = fail
    with pytest.raises(DriverCallError, match="broken driver") as caught:
        kubelet.prepare(DRIVER, [ONE])
    assert (caught.value.rule, caught.value.code) == ("call", "UNKNOWN")


def test_a_call_ends_at_its_deadline_and_the_next_one_works(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    release = threading.Event()

    def slow(claims: list[ClaimRef]) -> Answer:
        release.wait(LONG)
        return one_device(claims)

    driver.on_prepare = slow
    patient = kubelet.timing.call
    object.__setattr__(kubelet.timing, "call", 0.5)
    with pytest.raises(DriverCallError) as caught:
        kubelet.prepare(DRIVER, [ONE])
    assert caught.value.code == "DEADLINE_EXCEEDED"
    object.__setattr__(kubelet.timing, "call", patient)
    release.set()
    assert kubelet.prepare(DRIVER, [ONE])


def test_stopping_the_kubelet_cuts_a_call_off(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    began, release = threading.Event(), threading.Event()
    caught: list[DriverCallError] = []

    def slow(claims: list[ClaimRef]) -> Answer:
        began.set()
        release.wait(LONG)
        return one_device(claims)

    def prepare() -> None:
        try:
            kubelet.prepare(DRIVER, [ONE])
        except DriverCallError as error:
            caught.append(error)

    driver.on_prepare = slow
    caller = threading.Thread(target=prepare)
    caller.start()
    assert began.wait(LONG)
    kubelet.stop()
    caller.join()
    release.set()
    assert [error.code for error in caught] == ["CANCELLED"]


def test_calls_are_journalled_in_order(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    kubelet.prepare(DRIVER, [ONE])
    kubelet.unprepare(DRIVER, [ONE])
    calls = [call for call in kubelet.calls(driver=DRIVER) if call.kind in {PREPARE, UNPREPARE}]
    assert [call.kind for call in calls] == [PREPARE, UNPREPARE]
    assert calls[0].started + calls[0].seconds <= calls[1].started


def test_a_failed_attempt_is_repeated_as_a_pod_worker_does(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    failures = ["not yet", "still not"]
    driver.on_prepare = lambda claims: {ONE.uid: failures.pop()} if failures else one_device(claims)
    assert kubelet.retry(lambda: kubelet.prepare(DRIVER, [ONE]), LONG)[ONE.uid]
    assert len(kubelet.calls(PREPARE)) == 3


def test_the_last_error_of_repeated_attempts_is_raised(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    driver.on_prepare = lambda claims: {ONE.uid: "never"}
    with pytest.raises(ResponseError, match="never"):
        kubelet.retry(lambda: kubelet.prepare(DRIVER, [ONE]), timeout=0)
