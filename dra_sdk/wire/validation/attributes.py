"""Attributes of a device: exactly one value, of limited length. Source: DeviceAttribute validation, KEP-5491."""

from __future__ import annotations

from typing import Final

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.device import Device, DeviceAttribute
from dra_sdk.wire.validation.names import semantic_version
from dra_sdk.wire.validation.problems import Problems, invalid, required, too_long

_FIRST_TO_COUNT_ITEMS: Final = 37


def attribute(value: DeviceAttribute, field: str, profile: ServerProfile) -> Problems:
    """One attribute."""
    longest = profile.limits.attribute_value_length
    if value.string is not None:
        yield from too_long(f"{field}.string", value.string, longest)
    if value.version is not None:
        yield from _version(value.version, f"{field}.version", longest)
    for name, items in _lists(value).items():
        if items is not None and not items:
            yield invalid(f"{field}.{name}", "must not be empty")
    for index, item in enumerate(value.strings or ()):
        yield from too_long(f"{field}.strings[{index}]", item, longest)
    for index, item in enumerate(value.versions or ()):
        yield from _version(item, f"{field}.versions[{index}]", longest)
    given = [name for name, item in _given(value).items() if item != [] or profile.minor < _FIRST_TO_COUNT_ITEMS]
    if not given and profile.minor == OLDEST:
        yield required(field, "must have a value")
    elif len(given) != 1 or len(_given(value)) != 1:
        yield invalid(field, f"must have exactly one value, has {' and '.join(_given(value)) or 'none'}")


def has_lists(device: Device) -> bool:
    """Whether an attribute of the device is a list."""
    return any(items is not None for value in (device.attributes or {}).values() for items in _lists(value).values())


def value_count(device: Device) -> int:
    """Values in all attributes of the device; each item of a list counts."""
    counts = (sum(len(items or ()) for items in _lists(value).values()) for value in (device.attributes or {}).values())
    return sum(count or 1 for count in counts)


def _version(text: str, field: str, longest: int) -> Problems:
    yield from semantic_version(text, field)
    yield from too_long(field, text, longest)


def _lists(value: DeviceAttribute) -> dict[str, list[bool] | list[int] | list[str] | None]:
    return {"bools": value.bools, "ints": value.ints, "strings": value.strings, "versions": value.versions}


def _given(value: DeviceAttribute) -> dict[str, object]:
    scalars = {"bool": value.bool_value, "int": value.int_value, "string": value.string, "version": value.version}
    return {name: item for name, item in (scalars | _lists(value)).items() if item is not None}
