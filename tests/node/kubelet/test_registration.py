"""Registration as the kubelet performs it, over a real socket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from dra_sdk.node.kubelet import registration as module
from dra_sdk.node.kubelet.draplugin import VERSIONS
from dra_sdk.node.kubelet.registration import SERVICE, Registration
from dra_sdk.testing.waiting import LONG
from dra_sdk.wire.proto import pluginregistration_v1_pb2 as wire
from tests.node.kubelet.conftest import Dial, Serve, call

ENDPOINT = Path("/var/lib/kubelet/plugins/gpu.example.com/dra.sock")
GET_INFO = "/pluginregistration.Registration/GetInfo"
NOTIFY = "/pluginregistration.Registration/NotifyRegistrationStatus"


@pytest.fixture
def registration() -> Registration:
    """What a driver answers with."""
    return Registration("gpu.example.com", ENDPOINT, tuple(VERSIONS))


def test_the_kubelet_learns_who_we_are(registration: Registration, serve: Serve, dial: Dial) -> None:
    channel = dial(serve({SERVICE: registration.methods()}).path)
    for _ in range(2):  # it asks again after every failure
        info = call(channel, GET_INFO, wire.InfoRequest(), wire.PluginInfo)
        assert info == wire.PluginInfo(
            type="DRAPlugin",
            name="gpu.example.com",
            endpoint=str(ENDPOINT),
            supported_versions=["v1.DRAPlugin", "v1beta1.DRAPlugin"],
        )


def test_a_refusal_is_kept_and_logged_until_the_kubelet_accepts(
    registration: Registration, serve: Serve, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    channel = dial(serve({SERVICE: registration.methods()}).path)
    assert (registration.registered.is_set(), registration.error) == (False, "")
    refused = wire.RegistrationStatus(plugin_registered=False, error="endpoint is taken")
    with caplog.at_level(logging.INFO):
        answer = call(channel, NOTIFY, refused, wire.RegistrationStatusResponse)
        assert answer == wire.RegistrationStatusResponse()
        assert (registration.registered.is_set(), registration.error) == (False, "endpoint is taken")
        assert "the kubelet refused to register gpu.example.com: endpoint is taken" in caplog.text
        call(channel, NOTIFY, wire.RegistrationStatus(plugin_registered=True), wire.RegistrationStatusResponse)
    assert (registration.registered.is_set(), registration.error) == (True, "")
    assert "registered with the kubelet as gpu.example.com" in caplog.text


def test_a_refusal_without_a_reason_says_so_and_ends_the_registration(
    registration: Registration, serve: Serve, dial: Dial
) -> None:
    channel = dial(serve({SERVICE: registration.methods()}).path)
    call(channel, NOTIFY, wire.RegistrationStatus(plugin_registered=True), wire.RegistrationStatusResponse)
    call(channel, NOTIFY, wire.RegistrationStatus(plugin_registered=False), wire.RegistrationStatusResponse)
    assert (registration.registered.is_set(), registration.error) == (False, "the kubelet gave no reason")


@pytest.fixture
def accept(registration: Registration, serve: Serve, dial: Dial) -> Callable[[], None]:
    """Registers the driver as the kubelet does."""
    channel = dial(serve({SERVICE: registration.methods()}).path)

    def register() -> None:
        call(channel, NOTIFY, wire.RegistrationStatus(plugin_registered=True), wire.RegistrationStatusResponse)

    return register


def test_the_registration_of_our_own_start_is_no_restart_of_the_kubelet(
    registration: Registration, accept: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS", 0.05)
    assert not registration.wait_for_kubelet_restart()
    accept()
    assert not registration.wait_for_kubelet_restart()


def test_a_kubelet_that_has_registered_the_driver_again_was_restarted_once(
    registration: Registration, accept: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept()
    accept()
    assert [registration.wait_for_kubelet_restart() for _pool in range(3)] == [True] * 3
    monkeypatch.setattr(module, "RESTART_SECONDS", 0.0)  # so that time has passed
    assert not registration.wait_for_kubelet_restart()
    accept()
    assert registration.wait_for_kubelet_restart()


def test_the_registration_after_a_restart_is_awaited(
    registration: Registration, accept: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS", LONG)
    accept()
    with waiting(registration.wait_for_kubelet_restart) as answer:
        accept()
        assert answer.result(LONG)


def test_nobody_waits_in_a_process_that_is_about_to_end(
    registration: Registration, accept: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS", LONG)
    accept()
    with waiting(registration.wait_for_kubelet_restart) as answer:
        registration.end_waits()
        assert not answer.result(LONG / 2)
    registration.registered.clear()
    assert registration.wait_registered(LONG)


def test_the_registration_is_awaited_for_a_while(registration: Registration, accept: Callable[[], None]) -> None:
    assert not registration.wait_registered(0.0)
    with waiting(lambda: registration.wait_registered(LONG)) as answer:
        accept()
        assert answer.result(LONG)
    assert registration.wait_registered(-1.0)


def test_pools_whose_slices_somebody_else_deleted_wait_only_once(
    registration: Registration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS", 0.05)
    assert not registration.wait_for_kubelet_restart()
    monkeypatch.setattr(module, "RESTART_SECONDS", LONG)  # so that little time has passed
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(registration.wait_for_kubelet_restart).result(LONG / 2)


@contextmanager
def waiting(call: Callable[[], bool]) -> Iterator[Future[bool]]:
    """A call in a thread, which has not ended for a while."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        with pytest.raises(TimeoutError):
            answer.result(0.1)
        yield answer
