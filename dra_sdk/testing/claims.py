"""Claims in a few words, for `DriverHarness`.

    claim("port")                                            # one request, for any device of the driver
    claim("port", config=SerialConfig(speed=9600))
    claim(request("big", where='device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'))
    claim("gpu", "nic", match="resource.kubernetes.io/pcieRoot").configured(NicConfig(mtu=9000), "nic")
    claim(first_of("gpu", request("large", where=…), request("small", count=2)))

Whatever has no name for it here can be written as in the API: requests are plain JSON objects.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.model.config import OpaqueConfig

Config = OpaqueConfig | Mapping[str, Any]
"""A driver's configuration, or its parameters as a user may have written them, right or wrong."""


@dataclass(frozen=True)
class FakeClaim:
    """A claim that is not yet in any API; `uid` is its own. Where a request names no class, it is the driver's."""

    requests: tuple[JSON, ...]
    uid: str
    name: str
    namespace: str = "default"
    constraints: tuple[JSON, ...] = ()
    configs: tuple[tuple[Config, tuple[str, ...]], ...] = ()

    def configured(self, config: Config, *requests: str) -> FakeClaim:
        """With configuration for some requests, or for all; of several that apply the last one wins."""
        return replace(self, configs=(*self.configs, (config, requests)))

    def encoded(self, driver: str, default_class: str) -> JSON:
        """The ResourceClaim."""
        devices: JSON = {"requests": [_with_class(each, default_class) for each in self.requests]}
        if self.constraints:
            devices["constraints"] = list(self.constraints)
        if self.configs:
            devices["config"] = [_entry(config, requests, driver) for config, requests in self.configs]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": self.name, "namespace": self.namespace, "uid": self.uid},
            "spec": {"devices": devices},
        }


def claim(
    *requests: str | JSON,
    name: str = "",
    namespace: str = "default",
    config: Config | None = None,
    match: str = "",
    distinct: str = "",
) -> FakeClaim:
    """A claim with these requests (a text is the name of one for a single device), by default with one, `device`.

    `match` and `distinct` name an attribute (with its domain) that all devices must share, or must not.
    """
    constraints = [{key: value} for key, value in (("matchAttribute", match), ("distinctAttribute", distinct)) if value]
    uid = str(uuid.uuid4())
    asked = tuple(request(each) if isinstance(each, str) else each for each in requests or ("device",))
    made = FakeClaim(asked, uid, name or f"claim-{uid[:8]}", namespace, tuple(constraints))
    return made if config is None else made.configured(config)


def request(name: str = "device", **wanted: Any) -> JSON:
    """One request; see `devices` for what may be wanted."""
    return {"name": name, "exactly": devices(**wanted)}


def first_of(name: str, *alternatives: JSON) -> JSON:
    """A request for the first of these requests that can be had."""
    return {"name": name, "firstAvailable": [{"name": each["name"], **each["exactly"]} for each in alternatives]}


def devices(
    where: str | Sequence[str] = (),
    *,
    count: int | None = None,
    every: bool = False,
    capacity: Mapping[str, str] | None = None,
    tolerations: Sequence[JSON] = (),
    admin_access: bool = False,
    device_class: str = "",
) -> JSON:
    """What a request wants: CEL expressions, so many devices (or `every` one), amounts of consumable capacity, …"""
    expressions = [where] if isinstance(where, str) else where
    wanted: JSON = {
        "deviceClassName": device_class,
        "selectors": [{"cel": {"expression": expression}} for expression in expressions],
        "allocationMode": "All" if every else "",
        "count": count,
        "capacity": {"requests": dict(capacity)} if capacity else None,
        "tolerations": list(tolerations),
        "adminAccess": admin_access or None,
    }
    return {key: value for key, value in wanted.items() if value}


def _with_class(wanted: JSON, default_class: str) -> JSON:
    if "exactly" in wanted:
        return {**wanted, "exactly": {"deviceClassName": default_class, **wanted["exactly"]}}
    alternatives = [{"deviceClassName": default_class, **each} for each in wanted.get("firstAvailable", [])]
    return {**wanted, "firstAvailable": alternatives}


def _entry(config: Config, requests: tuple[str, ...], driver: str) -> JSON:
    parameters = config.encode() if isinstance(config, OpaqueConfig) else dict(config)
    entry: JSON = {"requests": list(requests)} if requests else {}
    return {**entry, "opaque": {"driver": driver, "parameters": parameters}}
