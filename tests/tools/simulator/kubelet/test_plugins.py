from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.model.claim import ClaimRef
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.plugins import choose_service
from dra_sdk.tools.simulator.kubelet.records import (
    PREPARE,
    UNPREPARE,
    AnsweredDevice,
    DriverCallError,
    NotRegisteredError,
    ResponseError,
)
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import LocalClient
from tests.tools.simulator.fakes import Answer, FakeDriver, one_device
from tests.tools.simulator.kubelet.conftest import NODE

DRIVER = "gpu.example.com"
CLAIM = ClaimRef("default", "claim-1", "uid-1")


def connections(path: Path) -> set[str]:
    """The inodes of the connected sockets that the server behind `path` has accepted."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {line[6] for line in lines if line[-1] == str(path) and line[5] == "03"}


def test_a_driver_that_is_not_registered_cannot_be_called(kubelet: KubeletEmulator) -> None:
    with pytest.raises(NotRegisteredError, match=r"DRA driver gpu\.example\.com is not registered"):
        kubelet.prepare(DRIVER, [CLAIM])


def test_one_connection_serves_all_calls(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        first = connections(driver.service)
        for _ in range(3):
            kubelet.prepare(DRIVER, [CLAIM])
            kubelet.unprepare(DRIVER, [CLAIM])
        driver.report(("node-1", "dev", 1, ""))
        assert kubelet.wait_for_health(DRIVER, "node-1", "dev", "Healthy")
        assert connections(driver.service) == first
    assert len(first) == 1


def test_the_newest_connected_plugin_is_called(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, instance="old") as old:
        kubelet.wait_for_driver(DRIVER)
        with FakeDriver(kubelet_dir, instance="new") as new:
            kubelet.wait_for_driver(DRIVER, instances=2)
            kubelet.prepare(DRIVER, [CLAIM])
            assert (len(old.prepared), len(new.prepared)) == (0, 1)
            new.stop_service()
            assert kubelet.wait_for_plugins(lambda infos: [i.connected for i in infos] == [True, False], LONG)
            kubelet.prepare(DRIVER, [CLAIM])
            assert (len(old.prepared), len(new.prepared)) == (1, 1)


def test_a_plugin_that_comes_back_is_connected_again(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        driver.stop_service()
        assert kubelet.wait_for_no_driver(DRIVER)
        with pytest.raises(DriverCallError) as caught:
            kubelet.prepare(DRIVER, [CLAIM])
        assert caught.value.code == "UNAVAILABLE"
        driver.start_service()
        kubelet.wait_for_driver(DRIVER)
        kubelet.prepare(DRIVER, [CLAIM])
    assert driver.notified == [(True, "")]


def test_the_service_may_start_after_registration(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    driver = FakeDriver(kubelet_dir)
    driver.start_registration()
    (early,) = kubelet.wait_for_driver(DRIVER, connected=False)
    assert not early.connected
    driver.start_service()
    kubelet.wait_for_driver(DRIVER)
    assert kubelet.prepare(DRIVER, [CLAIM])[CLAIM.uid]
    driver.stop()


def test_two_drivers_live_side_by_side(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, "a.example.com") as a, FakeDriver(kubelet_dir, "b.example.com") as b:
        kubelet.wait_for_driver("a.example.com")
        kubelet.wait_for_driver("b.example.com")
        kubelet.prepare("b.example.com", [CLAIM])
    assert (a.prepared, len(b.prepared)) == ([], 1)


def test_the_first_known_service_is_chosen() -> None:
    assert choose_service("s", "d", ("v2.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin")) == "v1beta1.DRAPlugin"


ONE, TWO = ClaimRef("default", "one", "uid-1"), ClaimRef("default", "two", "uid-2")


@pytest.fixture
def driver(kubelet: KubeletEmulator, kubelet_dir: Path) -> Iterator[FakeDriver]:
    with FakeDriver(kubelet_dir) as running:
        kubelet.wait_for_driver(DRIVER)
        yield running


def test_prepare_returns_devices_by_claim(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    shared = AnsweredDevice(DRIVER, "node-1", "dev", ("r1", "r2"), ("a/b=c", "a/b=d"), "share-1")
    driver.on_prepare = lambda claims: {ONE.uid: [shared], TWO.uid: []}
    assert kubelet.prepare(DRIVER, [ONE, TWO]) == {ONE.uid: (shared,), TWO.uid: ()}
    assert driver.prepared == [("v1", [ONE, TWO])]
    (call,) = kubelet.records.calls(PREPARE)
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
    assert why in kubelet.records.calls(PREPARE)[0].error


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


def test_a_call_ends_at_its_deadline_and_the_next_one_works(
    api: LocalClient, kubelet_dir: Path, timing: KubeletTiming
) -> None:
    hasty = replace(timing, call=0.5)
    release = threading.Event()

    def slow(claims: list[ClaimRef]) -> Answer:
        release.wait(LONG)
        return one_device(claims)

    with KubeletEmulator(NODE, api, kubelet_dir, timing=hasty) as kubelet, FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        driver.on_prepare = slow
        with pytest.raises(DriverCallError) as caught:
            kubelet.prepare(DRIVER, [ONE])
        assert caught.value.code == "DEADLINE_EXCEEDED"
        release.set()
        # On a busy machine half a second may be too short for the next call too.
        assert kubelet.retry(lambda: kubelet.prepare(DRIVER, [ONE]), LONG)


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


def test_calls_are_recorded_in_order(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    kubelet.prepare(DRIVER, [ONE])
    kubelet.unprepare(DRIVER, [ONE])
    calls = [call for call in kubelet.records.calls(driver=DRIVER) if call.kind in {PREPARE, UNPREPARE}]
    assert [call.kind for call in calls] == [PREPARE, UNPREPARE]
    assert calls[0].started + calls[0].seconds <= calls[1].started


def test_a_failed_attempt_is_repeated_as_a_pod_worker_does(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    failures = ["not yet", "still not"]
    driver.on_prepare = lambda claims: {ONE.uid: failures.pop()} if failures else one_device(claims)
    assert kubelet.retry(lambda: kubelet.prepare(DRIVER, [ONE]), LONG)[ONE.uid]
    assert len(kubelet.records.calls(PREPARE)) == 3


def test_the_last_error_of_repeated_attempts_is_raised(kubelet: KubeletEmulator, driver: FakeDriver) -> None:
    driver.on_prepare = lambda claims: {ONE.uid: "never"}
    with pytest.raises(ResponseError, match="never"):
        kubelet.retry(lambda: kubelet.prepare(DRIVER, [ONE]), timeout=0)
