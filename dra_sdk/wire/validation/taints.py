"""Taints of devices, and tolerations of requests. Source: DeviceTaint, DeviceToleration, KEP-5055."""

from __future__ import annotations

from typing import Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.device import DeviceTaint, DeviceToleration
from dra_sdk.wire.validation.names import label_key, label_value
from dra_sdk.wire.validation.problems import Problems, invalid, not_supported, required, show

OPERATORS: Final = ("Equal", "Exists")


def taint(value: DeviceTaint, field: str, profile: ServerProfile, *, keeps_effect: bool = False) -> Problems:
    """One taint; an effect that was stored before may stay, even if this release does not know it."""
    yield from label_key(value.key, f"{field}.key")
    yield from label_value(value.value, f"{field}.value")
    if keeps_effect:
        return
    if not value.effect:
        yield required(f"{field}.effect", f"must be one of {', '.join(profile.taint_effects)}")
    else:
        yield from _effect(value.effect, f"{field}.effect", profile)


def toleration(value: DeviceToleration, field: str, profile: ServerProfile) -> Problems:
    """One toleration; without a key it tolerates every taint, without an effect every effect."""
    if value.key:
        yield from label_key(value.key, f"{field}.key")
    if value.operator == "Exists" and value.value:
        yield invalid(f"{field}.value", f"must be empty for operator Exists, is {show(value.value)}")
    elif value.operator == "Equal":
        yield from label_value(value.value, f"{field}.value")
    elif value.operator not in OPERATORS:
        yield not_supported(f"{field}.operator", value.operator, OPERATORS)
    if value.effect:
        yield from _effect(value.effect, f"{field}.effect", profile)


def _effect(effect: str, field: str, profile: ServerProfile) -> Problems:
    if effect not in profile.taint_effects:
        yield not_supported(field, effect, profile.taint_effects)
