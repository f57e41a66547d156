"""Registration as the kubelet performs it, over a real socket."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dra_sdk.node.kubelet.draplugin import VERSIONS
from dra_sdk.node.kubelet.registration import SERVICE, Registration
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
