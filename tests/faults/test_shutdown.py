"""SIGTERM while hooks hang: the process ends all the same, says so, and its successor puts everything right."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import sleep

import pytest

from dra_sdk.kube import client, login_calls
from dra_sdk.kube.transport import ApiTimeouts
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, Deadline, HeldDevice
from dra_sdk.node.prepare.engine import Preparer
from dra_sdk.node.runtime import claims_api, sockets
from dra_sdk.node.runtime import process as runtime
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import Delay, EmbeddedCluster, FaultRule
from dra_sdk.tools.simulator.kubelet.calls import V1, V1BETA1
from tests.faults.hanging import HangingDriver, calling, hang, wait_hanging
from tests.faults.outside import Outside
from tests.faults.trickling import Trickling
from tests.kube.scripted import kubeconfig

FOREVER = 600.0  # seconds; a test ends long before
FETCHING = "fetching"
"""A file beside the lamps, which a `PatientDriver` makes when a prepare has begun to read its claim."""
ABANDONED = "ending although still busy: a call of the kubelet; the next start continues from the state files"


class HastyDriver(HangingDriver):
    """In a process that has little patience with its own threads."""

    def __init__(self) -> None:
        super().__init__()
        runtime.STOP_SECONDS = 1.0


class BelatedDriver(HangingDriver):
    """In a process that takes its time after the work on each claim of a call, as on a busy node."""

    def __init__(self) -> None:
        super().__init__()
        prepare = Preparer.prepare

        def prepare_and_dawdle(preparer: Preparer, ref: ClaimRef, deadline: Deadline) -> Sequence[HeldDevice]:
            answer = prepare(preparer, ref, deadline)
            sleep(2 * sockets.LAST_SECONDS)
            return answer

        setattr(Preparer, "prepare", prepare_and_dawdle)  # noqa: B010 (mypy: a method)


class PatientDriver(HastyDriver):
    """In a process that waits for the API server, and for whoever has its credentials, as if for ever."""

    def __init__(self) -> None:
        super().__init__()
        for module, name, value in (
            (claims_api, "FETCH_SECONDS", FOREVER),
            (client, "ApiTimeouts", partial(ApiTimeouts, answer=FOREVER)),
            (login_calls, "PLUGIN_SECONDS", FOREVER),
        ):
            setattr(module, name, value)
        fetch = claims_api.ApiConnection.fetch

        def noticed(connection: claims_api.ApiConnection, ref: ClaimRef, deadline: Deadline) -> JSON:
            (self.lamps.parent / FETCHING).touch()
            return fetch(connection, ref, deadline)

        setattr(claims_api.ApiConnection, "fetch", noticed)  # noqa: B010 (mypy: a method)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Outside]:
    with EmbeddedCluster() as cluster:
        yield Outside(cluster, tmp_path, "tests.faults.test_shutdown:HastyDriver")


@pytest.mark.parametrize("step", ["prepare: on", "unprepare: begin"])
def test_a_hook_that_hangs_is_left_behind(driver: Outside, step: str) -> None:
    ref = driver.claim("lamp-0", "lamp-1")
    with ThreadPoolExecutor(1) as pool:
        with driver.running("--drain-seconds", "0.3"):
            if "unprepare" in step:
                driver.prepare(ref)
            call = calling(pool, driver, step, ref)
            assert driver.terminate() == 1
        assert "failed as a whole" in call.result(LONG)
    log = driver.log.read_text()
    assert "calls are still in flight after 0 s; their claims are undone at the next start" in log
    assert ABANDONED in log
    assert not list(driver.cluster.registry_dir.iterdir()), "the kubelet must not call a driver that has ended"
    assert driver.shining(), "the test is about a claim that was left half-way"
    (driver.lamps.parent / step).unlink()
    with driver.running():
        driver.prepare(ref)
        driver.assert_held(ref)
        driver.unprepare(ref)
        driver.assert_sound()
        driver.wait_watching()
        assert driver.terminate() == 0


@pytest.mark.parametrize("version", [V1, V1BETA1])
@pytest.mark.parametrize("kind", [HangingDriver, BelatedDriver])
def test_a_call_that_ends_within_the_drain_time_is_answered(
    tmp_path: Path, kind: type[HangingDriver], version: str
) -> None:
    with EmbeddedCluster() as cluster:
        assert end_within_the_drain_time(Outside(cluster, tmp_path, f"{kind.__module__}:{kind.__name__}"), version) == 0


def end_within_the_drain_time(driver: Outside, version: str) -> int:
    """SIGTERM while a call for two claims hangs, which then goes on; the exit status."""
    refs = driver.claim("lamp-0"), driver.claim("lamp-1")
    with driver.running("--drain-seconds", str(LONG)), ThreadPoolExecutor(1) as pool:
        call = calling(pool, driver, "prepare: on", *refs, by=version)
        driver.process.send_signal(signal.SIGTERM)
        driver.wait_logged("SIGTERM: stopping")
        with pytest.raises(TimeoutError):
            call.result(0.3)
        assert list(driver.cluster.registry_dir.iterdir()), "a kubelet that loses the registration ends the call"
        (driver.lamps.parent / "prepare: on").unlink()
        assert call.result(LONG) == ""
        status = driver.process.wait(LONG)
        assert not list(driver.cluster.registry_dir.iterdir())
    driver.assert_held(*refs)
    return status


@pytest.mark.parametrize("step", ["discover", "watch"])
def test_a_hook_in_a_thread_of_its_own_is_not_waited_for(driver: Outside, step: str) -> None:
    knob = hang(driver, step)
    with driver.running():
        wait_hanging(knob)
        driver.wait_watching()
        assert driver.terminate() == 0


def test_an_api_server_that_does_not_answer_is_not_waited_for(driver: Outside) -> None:
    slow = driver.cluster.server.faults.add(FaultRule(Delay(30), resource="resourceslices"))
    with driver.running():
        driver.wait(lambda: slow.hits)
        assert driver.terminate() == 1
    assert "ending although still busy: slices" in driver.log.read_text()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Outside]:
    with EmbeddedCluster() as cluster:
        yield Outside(cluster, tmp_path, "tests.faults.test_shutdown:PatientDriver")


def end_while_it_reads(driver: Outside, kubeconfig: Path, refs: Sequence[ClaimRef], reads: Callable[[], bool]) -> int:
    """SIGTERM while a prepare of each claim reads; the exit status, though no read ever ends."""
    with (
        driver.running("--drain-seconds", "0.3", "--kubeconfig", str(kubeconfig)),
        driver.calls() as calls,
        ThreadPoolExecutor(len(refs)) as pool,
    ):
        pending = [pool.submit(calls.prepare, [ref], timeout=FOREVER) for ref in refs]
        driver.wait(reads)
        status = driver.terminate()
        assert not any(call.result().ok for call in pending)
    log = driver.log.read_text()
    assert "calls are still in flight after 0 s" in log
    assert "a call of the kubelet; the next start continues from the state files" in log
    assert not list(driver.cluster.registry_dir.iterdir())
    with driver.running():
        driver.prepare(*refs)
        driver.assert_held(*refs)
        driver.unprepare(*refs)
        driver.assert_sound()
    return status


def test_answers_that_trickle_are_not_waited_for(patient: Outside, tmp_path: Path) -> None:
    refs = [patient.claim(f"lamp-{number}") for number in range(sockets.SERVICE_THREADS + 2)]
    with Trickling(patient.cluster, refs, tmp_path) as server:
        status = end_while_it_reads(patient, server.kubeconfig, refs, lambda: len(server.asked) >= len(refs) - 2)
    assert status == 1


def test_an_exec_plugin_that_hangs_is_not_waited_for(patient: Outside, tmp_path: Path) -> None:
    plugin, gate, hangs, fetching = (tmp_path / name for name in ("plugin", "gate", "hangs", FETCHING))
    os.mkfifo(gate)
    plugin.write_text(f"#!/bin/sh\ntouch {hangs}\nexec cat {gate}\n")
    plugin.chmod(0o755)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    config = tmp_path / "exec.kubeconfig"
    config.write_text(kubeconfig(patient.cluster.server.url, {"exec": command}))
    try:
        status = end_while_it_reads(
            patient, config, [patient.claim("lamp-0")], lambda: hangs.exists() and fetching.exists()
        )
        assert status == 1
    finally:
        if hangs.exists():
            gate.write_text("go on")  # it reads to the end, and ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(driver: Outside, number: signal.Signals) -> None:
    ref = driver.claim("lamp-0")
    with driver.running("--drain-seconds", "60"), ThreadPoolExecutor(1) as pool:
        calling(pool, driver, "prepare: on", ref)
        driver.process.send_signal(number)
        driver.wait_logged(f"{number.name}: stopping")
        driver.process.send_signal(number)
        assert driver.process.wait(LONG) == 128 + number


def test_a_signal_while_it_waits_for_another_instance(driver: Outside) -> None:
    with driver.running():
        first = driver.process
        driver.start()
        driver.wait_logged("waiting for another instance of this driver to end")
        assert driver.terminate() == 128 + signal.SIGTERM
        driver.process = first
        driver.assert_sound()
