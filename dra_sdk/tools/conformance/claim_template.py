"""What claims request, from the user's file with a ResourceClaim and its DeviceClass.

Without a file, claims request any device and have no configuration. The file gives the selectors, the capacity and
the configuration; each check decides how many requests a claim has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dra_sdk.cel import DeviceView, Selector, compile  # noqa: A004 (the function's name in dra_sdk.cel)
from dra_sdk.errors import SettingsError
from dra_sdk.input_files import MIB, read_limited
from dra_sdk.model import JSON
from dra_sdk.wire.documents import read_documents
from dra_sdk.wire.validation import check

DEFAULT_CLASS: Final = "dra-conformance"


@dataclass(frozen=True)
class ClaimTemplate:
    """What each request of a claim asks for.

    selectors: CEL expressions; a device must match all of them.
    capacity: requested amounts of consumable capacity, by name.
    config: entries of `status.allocation.devices.config`.
    device_class_name: name of the DeviceClass.
    """

    selectors: Sequence[Selector] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    config: Sequence[JSON] = ()
    device_class_name: str = DEFAULT_CLASS

    @property
    def claim_config(self) -> list[JSON]:
        """The entries that come from the claim, as they are in its spec."""
        return [{"opaque": entry["opaque"]} for entry in self.config if entry["source"] == "FromClaim"]

    def fits(self, device: JSON, driver: str) -> bool:
        """Return whether a device of a driver matches every selector."""
        if not self.selectors:
            return True
        view = DeviceView.from_json(device, driver)
        return all(selector.matches(view) for selector in self.selectors)

    def device_class(self, driver: str) -> JSON:
        """Return the DeviceClass, restricted to the devices of one driver."""
        expressions = [f'device.driver == "{driver}"', *(selector.expression for selector in self.selectors)]
        selectors = [{"cel": {"expression": expression}} for expression in expressions]
        config = [{"opaque": entry["opaque"]} for entry in self.config if entry["source"] == "FromClass"]
        return {"metadata": {"name": self.device_class_name}, "spec": {"selectors": selectors, "config": config}}


def read_claim_template(path: Path) -> ClaimTemplate:
    """Read a file; errors are those of `read_claim`."""
    claim, classes = read_claim(path)
    return _claim_template(claim, {obj["metadata"]["name"]: obj.get("spec") or {} for obj in classes})


def read_claim(path: Path) -> tuple[JSON, list[JSON]]:
    """Return the spec of the first ResourceClaim (or template) in a file, and its DeviceClasses.

    SettingsError if it has no claim, InvalidObjectError if one of its objects is not valid.
    """
    try:
        content = read_limited(path, 16 * MIB)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    objects = [document.value for document in read_documents(content, str(path)) if isinstance(document.value, dict)]
    for obj in objects:
        check(obj if obj.get("kind") == "DeviceClass" else _with_namespace(obj))
    claims = [_claim_spec(obj) for obj in objects if obj["kind"] in {"ResourceClaim", "ResourceClaimTemplate"}]
    if not claims:
        raise SettingsError(f"{path} has no ResourceClaim")
    return claims[0], [obj for obj in objects if obj["kind"] == "DeviceClass"]


def _claim_template(claim: JSON, classes: dict[str, JSON]) -> ClaimTemplate:
    devices = claim.get("devices") or {}
    request = (devices.get("requests") or [{}])[0]
    exact = request.get("exactly") or (request.get("firstAvailable") or [{}])[0]
    name = exact.get("deviceClassName", DEFAULT_CLASS)
    device_class = classes.get(name, {})
    selectors = [*(device_class.get("selectors") or ()), *(exact.get("selectors") or ())]
    config = [{"source": "FromClass", **entry} for entry in device_class.get("config") or ()]
    config += [{"source": "FromClaim", "opaque": entry["opaque"]} for entry in devices.get("config") or ()]
    capacity = (exact.get("capacity") or {}).get("requests") or {}
    return ClaimTemplate(
        [compile(selector["cel"]["expression"]) for selector in selectors],
        {key: str(value) for key, value in capacity.items()},
        config,
        name,
    )


def _claim_spec(claim: JSON) -> JSON:
    spec: JSON = claim["spec"]
    return dict(spec["spec"]) if claim["kind"] == "ResourceClaimTemplate" else spec


def _with_namespace(claim: JSON) -> JSON:
    return {**claim, "metadata": {"namespace": "default", **claim.get("metadata", {})}}
