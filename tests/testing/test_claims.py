from __future__ import annotations

import pytest

from dra_sdk.testing import claim, devices, first_of, request
from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate
from tests.lamps import NAME, LampConfig

PROFILE = ServerProfile.of("1.37")


def encoded(*requests, **options):
    return claim(*requests, **options).encoded(NAME, NAME)["spec"]["devices"]


def test_a_name_asks_for_one_device_of_the_drivers_class():
    assert encoded() == {"requests": [{"name": "device", "exactly": {"deviceClassName": NAME}}]}
    assert [requested["name"] for requested in encoded("a", "b")["requests"]] == ["a", "b"]


def test_each_claim_has_its_own_uid_and_name():
    first, second = claim(), claim()
    assert first.uid != second.uid
    assert first.name != second.name
    assert claim(name="mine", namespace="ns").encoded(NAME, NAME)["metadata"]["name"] == "mine"


def test_a_request_has_every_option():
    toleration = {"key": "a", "operator": "Exists"}
    exactly = devices(
        ["true", "false"], count=2, capacity={"m": "1Gi"}, tolerations=[toleration], admin_access=True, device_class="c"
    )
    assert exactly == {
        "deviceClassName": "c",
        "selectors": [{"cel": {"expression": "true"}}, {"cel": {"expression": "false"}}],
        "count": 2,
        "capacity": {"requests": {"m": "1Gi"}},
        "tolerations": [toleration],
        "adminAccess": True,
    }
    assert devices(every=True) == {"allocationMode": "All"}


def test_alternatives_are_subrequests():
    devices = encoded(first_of("lamp", request("bright", where="true"), request("any", count=2)))
    (alternatives,) = (requested["firstAvailable"] for requested in devices["requests"])
    assert [
        (alternative["name"], alternative["deviceClassName"], alternative.get("count")) for alternative in alternatives
    ] == [
        ("bright", NAME, None),
        ("any", NAME, 2),
    ]


def test_a_claim_has_constraints_and_configuration():
    made = claim("a", "b", match="x.com/y", distinct="x.com/z", config=LampConfig(brightness=1))
    devices = made.configured({"kind": "Wrong"}, "b").encoded(NAME, NAME)["spec"]["devices"]
    assert devices["constraints"] == [{"matchAttribute": "x.com/y"}, {"distinctAttribute": "x.com/z"}]
    parameters = {"apiVersion": "lamps.example.com/v1", "kind": "LampConfig", "brightness": 1, "why": ""}
    assert devices["config"] == [
        {"opaque": {"driver": NAME, "parameters": parameters}},
        {"requests": ["b"], "opaque": {"driver": NAME, "parameters": {"kind": "Wrong"}}},
    ]


@pytest.mark.parametrize(
    "made",
    [
        claim(),
        claim("a", "b", match="x.com/y"),
        claim(request("a", where="device.driver == 'x'", count=3), request("b", every=True)),
        claim(first_of("a", request("b"), request("c"))).configured(LampConfig(), "a/b"),
    ],
)
def test_an_api_server_accepts_the_claims(made):
    assert validate(made.encoded(NAME, NAME), profile=PROFILE, compile_cel=cel_compiler(PROFILE)) == []
