"""What an API server stores of an object it is sent: decoded, with defaults, without what its feature gates drop.

Source: the defaulting functions of resource.k8s.io and the registry strategies of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource import DeviceTaintRule, ResourceSlice
from dra_sdk.wire.resource.device import DeviceTaint
from dra_sdk.wire.validation.availability import drop_disabled
from dra_sdk.wire.validation.defaults import set_defaults
from dra_sdk.wire.validation.problems import Problem
from dra_sdk.wire.validation.structure import read_object


def decoded(obj: Mapping[str, Any], profile: ServerProfile, now: str) -> tuple[JSON | None, list[Problem]]:
    """The object as a server reads it: unknown fields gone, defaults filled in, quantities in canonical form.

    Taints without a time get `now` (RFC 3339, whole seconds). None where a value has a wrong type. The problems are
    those of structure only, unknown fields among them.
    """
    value, problems = read_object(obj, profile)
    if value is None:
        return None, problems
    set_defaults(value)
    for taint in _taints(value):
        taint.time_added = taint.time_added or now
    return value.to_json(), problems


def without_disabled(obj: Mapping[str, Any], old: Mapping[str, Any] | None, profile: ServerProfile) -> JSON:
    """A decoded object without the fields whose feature gates are off, unless `old`, what is stored, uses them."""
    value, _ = read_object(obj, profile)
    before = read_object(old, profile)[0] if old is not None else None
    if value is None or not drop_disabled(value, before, profile):
        return dict(obj)
    return value.to_json()


def _taints(value: object) -> list[DeviceTaint]:
    if isinstance(value, ResourceSlice):
        return [taint for device in value.spec.devices or () for taint in device.taints or ()]
    return [value.spec.taint] if isinstance(value, DeviceTaintRule) else []
