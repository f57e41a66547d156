from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.protobuf import MAGIC, MEDIA_TYPE, decode

# Objects as Go's encoding/json writes them, and as the Go client's protobuf serializer 0.36.3 does.
CASES = json.loads((Path(__file__).parent / "protobuf_cases.json").read_text())


def without_empty(value: Any) -> Any:
    """Go writes what is unset in one of the two formats and not in the other."""
    if isinstance(value, dict):
        inner = {key: without_empty(member) for key, member in value.items()}
        return {key: member for key, member in inner.items() if member not in (None, "", [], {})}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["json"]["kind"])
def test_an_object_is_the_same_in_both_formats(case: dict[str, Any]) -> None:
    wanted = without_empty(case["json"])
    wanted.get("metadata", {}).pop("generation", None)
    assert without_empty(decode(base64.b64decode(case["protobuf"]))) == wanted


def test_values_that_are_zero_but_set_are_kept() -> None:
    resource_slice = decode(
        base64.b64decode(next(case["protobuf"] for case in CASES if case["json"]["kind"] == "ResourceSlice"))
    )
    attributes = resource_slice["spec"]["devices"][0]["attributes"]
    assert attributes["z"] == {"int": 0}
    assert attributes["b"] == {"bool": False}
    assert attributes["i"] == {"int": -5}
    assert attributes["lb"] == {"bools": [True, False]}
    assert resource_slice["spec"]["pool"]["generation"] == 0


def test_an_attribute_that_is_an_empty_string_is_kept() -> None:
    entry = part(1, b"alias") + part(2, part(4, b""))
    spec = part(6, part(1, b"nic0") + part(2, entry) + part(5, b""))
    resource_slice = decode(MAGIC + part(1, part(2, b"ResourceSlice")) + part(2, part(2, spec)))
    assert resource_slice["spec"]["devices"] == [{"name": "nic0", "attributes": {"alias": {"string": ""}}}]


def part(number: int, content: bytes) -> bytes:
    """A field of a message, whose content is shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "does not begin"),
        (MAGIC, "kind '' is supported as JSON only"),
        (MAGIC + bytes([0x0A, 0x05, 0x12, 0x03]) + b"Pod", "kind 'Pod' is supported as JSON only"),
        (MAGIC + b"\x0a\xff", "ends too early"),
        (MAGIC + b"\x0a\x05ab", "ends too early"),
        (MAGIC + b"\x0d\x00\x00\x00\x00", "wire type 5 is not supported"),
        (MAGIC + b"\x08\x01", "expected bytes, found a number"),
        (MAGIC + b"\xff" * 20, "ends too early"),
        (MAGIC + b"\x12\x01\xff", "supported as JSON only"),
    ],
)
def test_bodies_that_are_not_objects(body: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(body)


def send(cluster: EmbeddedCluster, body: bytes) -> int:
    url = f"{cluster.server.url}/apis/resource.k8s.io/v1/resourceslices"
    request = urllib.request.Request(url, data=body, headers={"Content-Type": MEDIA_TYPE})
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_api_server_takes_protobuf(cluster: EmbeddedCluster) -> None:
    spec = b"\x0a\x0d" + b"d.example.com" + b"\x12\x07\x0a\x01p\x10\x01\x18\x01" + b"\x1a\x06node-1"
    raw = b"\x0a\x03\x0a\x01s" + b"\x12" + bytes([len(spec)]) + spec
    meta = b"\x0a\x12resource.k8s.io/v1" + b"\x12\x0dResourceSlice"
    body = MAGIC + b"\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(raw)]) + raw
    assert send(cluster, body) == 201
    assert cluster.api.get("resourceslices", "s")["spec"]["nodeName"] == "node-1"
    assert send(cluster, b"no protobuf") == 400
