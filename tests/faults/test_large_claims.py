"""Claims that are as large as the API allows, and configuration that is as large and wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dra_sdk.tools.simulator import StatusError
from dra_sdk.tools.simulator.kubelet.records import ResponseError
from dra_sdk.wire.profile import NEWEST
from dra_sdk.wire.validation import ServerProfile, validate
from tests.faults.site import Inside
from tests.lamps import NAME

RESULTS = 32
OPAQUE = 10 * 1024  # bytes of JSON
CONFIGS = 32


def config(**parameters: Any) -> dict[str, Any]:
    body = {"apiVersion": "lamps.example.com/v1", "kind": "LampConfig", **parameters}
    return {"opaque": {"driver": NAME, "parameters": body}}


def filled(size: int, **parameters: Any) -> dict[str, Any]:
    """A configuration of exactly so many bytes."""
    empty = config(**parameters, why="")
    left = size - len(json.dumps(empty["opaque"]["parameters"], separators=(",", ":")))
    return config(**parameters, why="x" * left)


def problems(site: Inside, name: str) -> list[str]:
    claim = site.cluster.api.get("resourceclaims", name, "default")
    return [str(each) for each in validate(claim, profile=ServerProfile.of(f"1.{NEWEST}"))]


def test_as_many_devices_as_a_claim_can_have(site: Inside) -> None:
    lamps = [f"lamp-{number}" for number in range(RESULTS)]
    site.claim(*lamps, name="large")
    pod = site.cluster.run_pod("large", ["large"])
    assert [device.device for device in pod.devices["large"]] == lamps
    assert len(set(pod.container_cdi_ids("main"))) == RESULTS
    site.cluster.container_spec(pod)
    assert len(site.shining()) == RESULTS
    site.cluster.stop_pod("large")


def test_configuration_as_large_as_it_can_be(site: Inside) -> None:
    entries = [filled(OPAQUE, brightness=number) for number in range(CONFIGS)]
    ref = site.claim("lamp-0", config=entries)
    assert problems(site, ref.name) == []
    site.prepare(ref)
    seen = site.driver.claims[ref.uid].devices[0].configs
    assert [each.brightness for each in seen] == list(range(CONFIGS))
    assert len(seen[-1].why) > OPAQUE - 200
    site.unprepare(ref)


def test_a_byte_more_is_refused_before_it_gets_here(site: Inside) -> None:
    with pytest.raises(StatusError, match="must be at most 10240 bytes of JSON, has 10241"):
        site.claim("lamp-0", config=[filled(OPAQUE + 1)])


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"brightness": "x" * (OPAQUE - 100)},
            r"config\[0\] of the claim: LampConfig: brightness: must be a valid int",
        ),
        ({"brightness": 1e308}, "brightness: "),
        ({"brightness": 10**400}, "brightness: "),
        ({"x" * (OPAQUE - 100): 1}, "unknown field"),
        ({"why": [[[[]]]] * 100}, "why: must be a valid string"),
        ({"why": {}, "brightness": None}, "brightness: .*; why: "),
        ({f"f{number}": number for number in range(500)}, "f499: unknown field|f0: unknown field"),
        (
            {"kind": "\n" * (OPAQUE // 2 - 50)},
            "driver lamps.example.com does not know apiVersion 'lamps.example.com/v1' kind ",
        ),
        ({"apiVersion": {"a": [1]}}, "does not know apiVersion {'a': .1.} kind 'LampConfig'"),
    ],
)
def test_configuration_that_is_large_and_wrong(site: Inside, parameters: dict[str, Any], said: str) -> None:
    ref = site.claim("lamp-0", config=[config(**parameters)])
    with pytest.raises(ResponseError, match=said) as caught:
        site.prepare(ref)
    assert len(str(caught.value)) < 5000
    assert "\n" not in str(caught.value)
    site.unprepare(ref)
