from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.tools.conformance.claim_template import ClaimTemplate, read_claim_template

FILE = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]
  config: [{opaque: {driver: gpu.example.com, parameters: {mode: class}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: claim}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu
        selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "big"'}}]
        capacity: {requests: {memory: 8Gi}}
    config: [{opaque: {driver: gpu.example.com, parameters: {mode: claim}}}]
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_claim_and_its_class_are_read(tmp_path: Path) -> None:
    template = read_claim_template(write(tmp_path / "f.yaml", FILE))
    assert template.device_class_name == "gpu"
    assert template.capacity == {"memory": "8Gi"}
    assert [(entry["source"], entry["opaque"]["parameters"]) for entry in template.config] == [
        ("FromClass", {"mode": "class"}),
        ("FromClaim", {"mode": "claim"}),
    ]
    assert [entry["opaque"]["parameters"] for entry in template.claim_config] == [{"mode": "claim"}]
    big = {"name": "a", "attributes": {"model": {"string": "big"}}}
    small = {"name": "b", "attributes": {"model": {"string": "small"}}}
    assert template.fits(big, "gpu.example.com")
    assert not template.fits(small, "gpu.example.com")
    assert not template.fits(big, "other.example.com")
    device_class = template.device_class("gpu.example.com")
    assert device_class["metadata"]["name"] == "gpu"
    assert device_class["spec"]["config"][0]["opaque"]["parameters"] == {"mode": "class"}
    assert len(device_class["spec"]["selectors"]) == 3


def test_a_resource_claim_template_is_read(tmp_path: Path) -> None:
    text = FILE.partition("---")[2].replace("kind: ResourceClaim", "kind: ResourceClaimTemplate")
    head, _, spec = text.partition("spec:\n")
    nested = "spec:\n  spec:\n" + "\n".join(f"  {line}" for line in spec.splitlines()) + "\n"
    template = read_claim_template(write(tmp_path / "f.yaml", head + nested))
    assert template.device_class_name == "gpu"
    assert [entry["source"] for entry in template.config] == ["FromClaim"]


def test_without_a_file_every_device_fits() -> None:
    assert ClaimTemplate().fits({"name": "any"}, "d")
    assert not ClaimTemplate().config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.partition("---")[0], "has no ResourceClaim"),
        (FILE.replace("name: gpu\n      exactly", "name: GPU\n      exactly"), "request GPU: name"),
        ("a: [", "f.yaml"),
    ],
)
def test_an_invalid_file_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DraError, match=message):
        read_claim_template(write(tmp_path / "f.yaml", text))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="absent: No such file"):
        read_claim_template(tmp_path / "absent")
