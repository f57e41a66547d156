from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.tools.conformance.wanted import Wanted, read_wanted

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


def test_a_claim_and_its_class(tmp_path: Path) -> None:
    wanted = read_wanted(write(tmp_path / "f.yaml", FILE))
    assert wanted.class_name == "gpu"
    assert wanted.capacity == {"memory": "8Gi"}
    assert [(each["source"], each["opaque"]["parameters"]) for each in wanted.config] == [
        ("FromClass", {"mode": "class"}),
        ("FromClaim", {"mode": "claim"}),
    ]
    assert [each["opaque"]["parameters"] for each in wanted.claim_config] == [{"mode": "claim"}]
    big = {"name": "a", "attributes": {"model": {"string": "big"}}}
    small = {"name": "b", "attributes": {"model": {"string": "small"}}}
    assert wanted.fits(big, "gpu.example.com")
    assert not wanted.fits(small, "gpu.example.com")
    assert not wanted.fits(big, "other.example.com")


def test_a_template_does_as_well(tmp_path: Path) -> None:
    text = FILE.partition("---")[2].replace("kind: ResourceClaim", "kind: ResourceClaimTemplate")
    head, _, spec = text.partition("spec:\n")
    nested = "spec:\n  spec:\n" + "\n".join(f"  {line}" for line in spec.splitlines()) + "\n"
    wanted = read_wanted(write(tmp_path / "f.yaml", head + nested))
    assert wanted.class_name == "gpu"
    assert [each["source"] for each in wanted.config] == ["FromClaim"]


def test_without_a_file_everything_fits() -> None:
    assert Wanted().fits({"name": "any"}, "d")
    assert not Wanted().config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.partition("---")[0], "has no ResourceClaim"),
        (FILE.replace("name: gpu\n      exactly", "name: GPU\n      exactly"), "request GPU: name"),
        ("a: [", "f.yaml"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DraError, match=message):
        read_wanted(write(tmp_path / "f.yaml", text))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="absent: No such file"):
        read_wanted(tmp_path / "absent")
