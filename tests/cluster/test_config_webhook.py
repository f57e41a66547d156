"""The webhook for configuration, asked by a real API server: what it refuses, and what happens while it is away."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from dra_sdk.tools.config_webhook import Certificate, ConfigReviewer, WebhookServer
from dra_sdk.tools.manifests import Chart
from tests.cluster.features import VERSION
from tests.cluster.harness.control_plane import ControlPlane, ControlPlaneSettings, control_plane
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import poll
from tests.cluster.test_config_policy import COLLECTIONS, GROUP, made, refusal
from tests.tools.config_policies import NAME, RIGHT, WRONG, ShapeDriver, entry

JSON = dict[str, Any]
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
BOTH_WRONG = entry({**RIGHT[1], "small": 10, "ratio": 7})


def configuration(port: int, authority: bytes, **webhook: Any) -> JSON:
    """Returns the object of the chart, with the webhook on this machine in place of the service."""
    values = {
        "drivers": {"shapes": {"driverName": NAME}},
        "webhook": {"create": True, "caBundle": base64.b64encode(authority).decode(), **webhook},
    }
    rendered = (each.object for each in Chart().render(values))
    (found,) = (each for each in rendered if each["kind"] == "ValidatingWebhookConfiguration")
    client = found["webhooks"][0]["clientConfig"]
    del client["service"]
    client["url"] = f"https://127.0.0.1:{port}/validate"
    return found


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server; no node is needed."""
    with control_plane(
        "hooked", tmp_path_factory.mktemp("plane"), ControlPlaneSettings(VERSION), Progress()
    ) as running:
        running.authority.issue("webhook", "webhook", hosts=["127.0.0.1"])
        yield running


@pytest.fixture(scope="module")
def certificate(plane: ControlPlane) -> Certificate:
    return Certificate(plane.authority.certificate("webhook"), plane.authority.key("webhook"))


@pytest.fixture
def webhook(plane: ControlPlane, certificate: Certificate) -> Iterator[WebhookServer]:
    """The webhook, once the server asks it."""
    with WebhookServer("127.0.0.1:0", certificate, ConfigReviewer([ShapeDriver().dra_driver_info()])) as server:
        plane.api.create(CONFIGURATIONS, configuration(server.port, plane.authority.certificate("ca").read_bytes()))
        probe = made("ResourceClaim", [BOTH_WRONG])
        assert poll(lambda: refusal(plane, probe) != ""), "the server never asks the webhook"
        yield server
    plane.api.delete(f"{CONFIGURATIONS}/dra-sdk-configuration")
    assert poll(lambda: refusal(plane, probe) == "")


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_the_server_refuses_what_the_driver_would_refuse(plane: ControlPlane, kind: str) -> None:
    assert {refusal(plane, made(kind, [entry(each)])) for each in RIGHT} == {""}
    place = {"ResourceClaim": "spec.devices.", "ResourceClaimTemplate": "spec.spec.devices.", "DeviceClass": "spec."}[
        kind
    ]
    for _, parameters in WRONG:
        said = refusal(plane, made(kind, [entry(RIGHT[0]), entry(parameters)]))
        assert "422" in said
        assert "denied the request" in said
        if isinstance(parameters, dict):
            assert f"{place}config[1].opaque.parameters" in said


@pytest.mark.usefixtures("webhook")
def test_every_version_of_the_api_is_checked(plane: ControlPlane) -> None:
    served = {each["version"] for each in plane.api.get(GROUP)["versions"]} & {"v1", "v1beta2", "v1beta1"}
    assert "v1" in served
    for version, kind in itertools.product(sorted(served), COLLECTIONS):
        said = refusal(plane, made(kind, [BOTH_WRONG], version))
        assert "parameters.small: must be less than or equal to 9 (got 10)" in said
        assert "parameters.ratio: must be less than 1 (got 7)" in said
        assert refusal(plane, made(kind, [entry(RIGHT[1])], version)) == ""


@pytest.mark.usefixtures("webhook")
def test_another_driver_is_not_asked_about(plane: ControlPlane) -> None:
    others = [entry({"any": "thing"}, "other.example.com")]
    assert {refusal(plane, made(kind, others)) for kind in COLLECTIONS} == {""}
    assert {refusal(plane, made(kind, [])) for kind in COLLECTIONS} == {""}


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_while_it_is_away_only_its_drivers_depend_on_the_failure_policy(
    plane: ControlPlane, certificate: Certificate, policy: str
) -> None:
    """Nobody listens on its port. A claim of another driver, or without configuration, is never stopped by that."""
    with WebhookServer("127.0.0.1:0", certificate, ConfigReviewer([])) as server:
        port = server.port
    authority = plane.authority.certificate("ca").read_bytes()
    plane.api.create(CONFIGURATIONS, configuration(port, authority, failurePolicy=policy))
    mine = made("ResourceClaim", [entry(RIGHT[0])])
    if policy == "Fail":
        assert poll(lambda: "failed calling webhook" in refusal(plane, mine))
    else:
        assert refusal(plane, mine) == ""
    others = made("ResourceClaim", [entry({"any": "thing"}, "other.example.com")])
    assert refusal(plane, others) == refusal(plane, made("ResourceClaim", [])) == ""
    plane.api.delete(f"{CONFIGURATIONS}/dra-sdk-configuration")
    assert poll(lambda: refusal(plane, mine) == "")
