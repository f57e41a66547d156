from __future__ import annotations

import pytest
from pydantic import ValidationError

from dra_sdk import Version
from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.status import NetworkData
from dra_sdk.node.metadata.document import DeviceMetadata, device_entry, encode
from tests.node.metadata.devices import prepared


def test_null_is_an_absent_field_and_unknown_fields_are_ignored():
    document = DeviceMetadata.model_validate(
        {
            "metadata": {"name": "c", "uid": None, "labels": {"a": "b"}},
            "podClaimName": None,
            "requests": [{"name": "r", "devices": None, "new": 1}],
        },
        extra="ignore",
    )
    assert document.metadata.uid == ""
    assert document.requests[0].devices == []


@pytest.mark.parametrize(
    "fields",
    [
        {"requests": "r"},
        {"requests": [{}]},
        {"requests": [{"name": "r", "devices": [{"driver": "d", "pool": "p"}]}]},
        {"metadata": {"generation": "1"}},
        {"podClaimName": 7},
    ],
)
def test_wrong_types_and_missing_names_are_errors(fields):
    with pytest.raises(ValidationError):
        DeviceMetadata.model_validate(fields)


DRIVER = "gpu.example.com"


def device(attributes=None, network=None, pool="node-a", name="gpu-0"):
    return prepared("gpu", pool, name, attributes or {}, network)


def test_a_device_is_written_as_in_a_resource_slice():
    written = device_entry(
        DRIVER,
        device(
            {
                "model": "A100",
                "cores": 7,
                "ok": True,
                "firmware": Version("1.2.3"),
                f"{DRIVER}/own": "x",
                "resource.kubernetes.io/numaNode": [0, 1],
            },
            NetworkData(interface_name="eth0", ips=["10.0.0.5/24", "fd00::1/64"], hardware_address="0a:00"),
            pool="rack/7",
        ),
    )
    assert written == {
        "driver": DRIVER,
        "pool": "rack/7",
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "A100"},
            "cores": {"int": 7},
            "ok": {"bool": True},
            "firmware": {"version": "1.2.3"},
            "own": {"string": "x"},
            "resource.kubernetes.io/numaNode": {"ints": [0, 1]},
        },
        "networkData": {"interfaceName": "eth0", "ips": ["10.0.0.5/24", "fd00::1/64"], "hardwareAddress": "0a:00"},
    }


def test_what_is_not_known_is_left_out():
    assert device_entry(DRIVER, device()) == {"driver": DRIVER, "pool": "node-a", "name": "gpu-0"}
    assert device_entry(DRIVER, device(network=NetworkData(interface_name="eth0")))["networkData"] == {
        "interfaceName": "eth0"
    }


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (device(name="GPU"), "device GPU of driver gpu.example.com: name: must be a DNS label"),
        (device(pool="a//b"), "metadata of device a//b/gpu-0: pool: must be"),
        (device({f"a{n}": n for n in range(33)}), "at most 32 attributes"),
        (device({"model": "x" * 65}), "attribute model: string: must be at most 64 bytes, has 65"),
        (device({"no-dash": 1}), "must be a C identifier"),
        (device({"v": Version("v1")}), "semantic version"),
        (device({"f": 1.5}), "attribute f: 1.5 is not a bool"),
        (device({"list": []}), "attribute list: [] is not a non-empty list"),
        (device(network=NetworkData(interface_name="x" * 257)), "networkData.interfaceName: must be at most 256 bytes"),
        (device(network=NetworkData(interface_name=5)), "networkData.interfaceName: must be a string, is 5"),
        (device(network=NetworkData(ips=[5])), "networkData.ips[0]: must be a string, is 5"),
        (device(network=NetworkData(hardware_address="x" * 129)), "networkData.hardwareAddress: must be at most 128"),
        (
            device(network=NetworkData(ips=[f"10.0.0.{n}/24" for n in range(17)])),
            "ips: must have at most 16 items, has 17",
        ),
        (device(network=NetworkData(ips=["10.0.0.1/24"] * 2)), "networkData.ips[1]: '10.0.0.1/24' was given before"),
    ],
)
def test_a_broken_limit_names_the_device_and_the_field(bad, message):
    with pytest.raises(InvalidObjectError) as error:
        device_entry(DRIVER, bad)
    assert message in str(error.value)
    assert bad.name in str(error.value)


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "10.0.0.1/33", "10.0.0.01/24", "fd00::0001/64", "FD00::1/64", "::ffff:10.0.0.1/96", "fe80::1%eth0/64",
     "10.0.0.1/255.255.255.0", "x", ""],
)  # fmt: skip
def test_an_address_must_be_in_its_usual_form_with_a_prefix(address):
    refusal = r"networkData\.ips\[0\]: must be (an address with prefix length|in canonical form)"
    with pytest.raises(InvalidObjectError, match=refusal):
        device_entry(DRIVER, device(network=NetworkData(ips=[address])))


def test_every_version_holds_the_same_document_newest_first():
    text = encode({"metadata": {"name": "c", "generation": 1}, "podClaimName": "gpu"})
    first, second = text.splitlines()
    assert second == first.replace("v1beta1", "v1alpha1")
    assert text.startswith('{"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v1beta1"')
