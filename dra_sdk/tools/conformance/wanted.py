"""What the user says claims should ask for: from a file with a ResourceClaim and its DeviceClass.

Without it any device is taken, and no configuration is given. From the file come the selectors, the capacity and the
configuration; how many requests there are is up to each check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dra_sdk.cel import DeviceView, Selector, compile  # noqa: A004 (the word for it)
from dra_sdk.errors import SettingsError
from dra_sdk.model import JSON
from dra_sdk.wire.documents import read_documents
from dra_sdk.wire.validation import check

CLASS = "dra-conformance"


@dataclass(frozen=True)
class Wanted:
    """Which devices, how much of each, and the allocation's configuration entries."""

    selectors: Sequence[Selector] = ()
    capacity: dict[str, str] = field(default_factory=dict)
    config: Sequence[JSON] = ()
    class_name: str = CLASS

    @property
    def claim_config(self) -> list[JSON]:
        """The entries that stand in the claim, as they stand in its spec."""
        return [{"opaque": each["opaque"]} for each in self.config if each["source"] == "FromClaim"]

    def fits(self, device: JSON, driver: str) -> bool:
        """Whether every selector chooses the device."""
        if not self.selectors:
            return True
        view = DeviceView.from_json(device, driver)
        return all(selector.matches(view) for selector in self.selectors)


def read_wanted(path: Path) -> Wanted:
    """From a file; SettingsError where it holds no claim, InvalidObjectError where an object is not valid."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    objects = [document.value for document in read_documents(content, str(path)) if isinstance(document.value, dict)]
    for each in objects:
        check(each if each.get("kind") == "DeviceClass" else _in_a_namespace(each))
    claims = [_claim_spec(each) for each in objects if each["kind"] in {"ResourceClaim", "ResourceClaimTemplate"}]
    if not claims:
        raise SettingsError(f"{path} has no ResourceClaim")
    classes = {each["metadata"]["name"]: each.get("spec") or {} for each in objects if each["kind"] == "DeviceClass"}
    return _wanted(claims[0], classes)


def _wanted(claim: JSON, classes: dict[str, JSON]) -> Wanted:
    devices = claim.get("devices") or {}
    request = (devices.get("requests") or [{}])[0]
    exact = request.get("exactly") or (request.get("firstAvailable") or [{}])[0]
    name = exact.get("deviceClassName", CLASS)
    device_class = classes.get(name, {})
    selectors = [*(device_class.get("selectors") or ()), *(exact.get("selectors") or ())]
    config = [{"source": "FromClass", **each} for each in device_class.get("config") or ()]
    config += [{"source": "FromClaim", "opaque": each["opaque"]} for each in devices.get("config") or ()]
    capacity = (exact.get("capacity") or {}).get("requests") or {}
    return Wanted(
        [compile(each["cel"]["expression"]) for each in selectors],
        {key: str(value) for key, value in capacity.items()},
        config,
        name,
    )


def _claim_spec(each: JSON) -> JSON:
    spec: JSON = each["spec"]
    return dict(spec["spec"]) if each["kind"] == "ResourceClaimTemplate" else spec


def _in_a_namespace(each: JSON) -> JSON:
    return {**each, "metadata": {"namespace": "default", **each.get("metadata", {})}}
