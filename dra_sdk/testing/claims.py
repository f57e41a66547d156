"""Claims in a few words, for `DriverHarness`.

    claim("port")                                            # one request, for any device of the driver
    claim("port", config=SerialConfig(speed=9600))
    claim(request("big", where='device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'))
    claim("gpu", "nic", match="resource.kubernetes.io/pcieRoot").configured(NicConfig(mtu=9000), "nic")
    claim(first_of("gpu", request("large", where=…), request("small", count=2)))

Requests are JSON objects, so everything else can be written as in the API.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dra_sdk.model import JSON
from dra_sdk.model.config import OpaqueConfig

Config = OpaqueConfig | Mapping[str, Any]
"""A driver's configuration, or the parameters that a user wrote, valid or not."""


class ClaimFactory(Protocol):
    """The type of the fixture `dra_claim`: the function `claim`."""

    def __call__(
        self,
        *requests: str | JSON,
        name: str = "",
        namespace: str = "default",
        config: Config | None = None,
        match: str = "",
        distinct: str = "",
    ) -> FakeClaim:
        """Return a claim with these requests."""


@dataclass(frozen=True)
class FakeClaim:
    """A claim before it is created in an API server.

    requests: as in the API; a request without a class gets the class of the driver.
    uid: the claim's UID.
    name: the claim's name.
    namespace: the claim's namespace.
    constraints: as in the API.
    configs: configuration, each with the names of its requests; no names mean all requests.
    """

    requests: tuple[JSON, ...]
    uid: str
    name: str
    namespace: str = "default"
    constraints: tuple[JSON, ...] = ()
    configs: tuple[tuple[Config, tuple[str, ...]], ...] = ()

    def configured(self, config: Config, *requests: str) -> FakeClaim:
        """Return the claim with configuration for these requests, or for all; the last one for a request wins."""
        return replace(self, configs=(*self.configs, (config, requests)))

    def encoded(self, driver: str, default_class: str) -> JSON:
        """Return the ResourceClaim."""
        devices: JSON = {"requests": [_with_class(requested, default_class) for requested in self.requests]}
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
    """Return a claim with these requests, by default one called `device`. A string requests one device under this name.

    `match` is an attribute, with its domain, whose value all devices must share; `distinct` is one whose values must
    differ.
    """
    constraints = [{key: value} for key, value in (("matchAttribute", match), ("distinctAttribute", distinct)) if value]
    uid = str(uuid.uuid4())
    requested = tuple(request(asked) if isinstance(asked, str) else asked for asked in requests or ("device",))
    made = FakeClaim(requested, uid, name or f"claim-{uid[:8]}", namespace, tuple(constraints))
    return made if config is None else made.configured(config)


def request(name: str = "device", **options: Any) -> JSON:
    """Return one request; see `devices` for the options."""
    return {"name": name, "exactly": devices(**options)}


def first_of(name: str, *alternatives: JSON) -> JSON:
    """Return a request for the first of these alternatives that can be allocated."""
    requests = [{"name": alternative["name"], **alternative["exactly"]} for alternative in alternatives]
    return {"name": name, "firstAvailable": requests}


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
    """Return what a request asks for.

    where: CEL expressions that a device must match.
    count: number of devices; None for one.
    every: whether it asks for all matching devices.
    capacity: amounts of consumable capacity by name.
    tolerations: tolerated taints, as in the API.
    admin_access: whether the devices may be in use by others.
    device_class: name of the DeviceClass; empty for the driver's class.
    """
    expressions = [where] if isinstance(where, str) else where
    exactly: JSON = {
        "deviceClassName": device_class,
        "selectors": [{"cel": {"expression": expression}} for expression in expressions],
        "allocationMode": "All" if every else "",
        "count": count,
        "capacity": {"requests": dict(capacity)} if capacity else None,
        "tolerations": list(tolerations),
        "adminAccess": admin_access or None,
    }
    return {key: value for key, value in exactly.items() if value}


def _with_class(request: JSON, default_class: str) -> JSON:
    if "exactly" in request:
        return {**request, "exactly": {"deviceClassName": default_class, **request["exactly"]}}
    alternatives = [
        {"deviceClassName": default_class, **alternative} for alternative in request.get("firstAvailable", [])
    ]
    return {**request, "firstAvailable": alternatives}


def _entry(config: Config, requests: tuple[str, ...], driver: str) -> JSON:
    parameters = config.encode() if isinstance(config, OpaqueConfig) else dict(config)
    entry: JSON = {"requests": list(requests)} if requests else {}
    return {**entry, "opaque": {"driver": driver, "parameters": parameters}}
