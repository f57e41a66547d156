"""Fields that a release of the server does not know, and fields that it drops because a feature gate is off.

A server does not report the fields that it drops. This module names them before an object is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.base import Available, Object
from dra_sdk.wire.validation.problems import Problem, ProblemType

_NESTED: Final = (Object, list, dict)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A field that the server accepts but does not store.

    field: path of the field.
    gates: feature gates that are off and must be on for the server to store it.
    """

    field: str
    gates: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.field}: dropped by the server, whose feature gate {' and '.join(self.gates)} is off"


def remove_unknown(value: Object, profile: ServerProfile) -> list[Problem]:
    """Unset the fields that this release does not have, as the server does. Return a problem for each."""
    problems = []
    for owner, name, path, available in list(_limited(value)):
        field = path.lstrip(".")
        if profile.minor < available.since:
            detail = f"unknown field before Kubernetes 1.{available.since}"
        elif available.until is not None and profile.minor > available.until:
            detail = f"unknown field after Kubernetes 1.{available.until}"
        else:
            continue
        problems.append(Problem(field, ProblemType.UNKNOWN, detail))
        _unset(owner, name)
    return problems


def dropped_fields(value: Object, profile: ServerProfile) -> Iterator[Dropped]:
    """Yield each field that is set and that this release drops."""
    for _, _, path, available in _limited(value):
        missing = _missing(available, profile)
        if missing and available.since <= profile.minor <= (available.until or profile.minor):
            yield Dropped(path.lstrip("."), missing)


def drop_disabled(value: Object, old: Object | None, profile: ServerProfile) -> bool:
    """Unset the fields that this release drops, as the server does. Return whether there were any.

    Fields of a feature that the stored object `old` uses are kept.
    """
    used = {available.gates for _, _, _, available in _limited(old)}
    disabled = [
        (owner, name)
        for owner, name, _, available in _limited(value)
        if _missing(available, profile) and available.gates not in used
    ]
    for owner, name in disabled:
        _unset(owner, name)
    return bool(disabled)


def _missing(available: Available, profile: ServerProfile) -> tuple[str, ...]:
    return tuple(gate for gate in available.gates if not profile.enabled(gate))


def _unset(owner: Object, name: str) -> None:
    setattr(owner, name, type(owner).model_fields[name].get_default(call_default_factory=True))


def _limited(value: Any) -> Iterator[tuple[Object, str, str, Available]]:
    """Yield owner, name, path and availability of each set field that some servers lack, outermost first."""
    if isinstance(value, Object):
        for name, (alias, available) in _fields(type(value)).items():
            item = getattr(value, name) if name in value.model_fields_set else None
            if item is None:
                continue
            if available is not None:
                yield value, name, f".{alias}", available
            if isinstance(item, _NESTED):
                yield from _below(f".{alias}", item)
    elif isinstance(value, (list, dict)):
        for key, item in enumerate(value) if isinstance(value, list) else value.items():
            if isinstance(item, _NESTED):
                yield from _below(f"[{key}]", item)


def _below(part: str, value: Any) -> Iterator[tuple[Object, str, str, Available]]:
    for owner, name, path, available in _limited(value):
        yield owner, name, part + path, available


@cache
def _fields(model: type[Object]) -> Mapping[str, tuple[str, Available | None]]:
    """Return the JSON name of each field and its availability, None if it is always available."""
    return {
        name: (str(info.alias), next((item for item in info.metadata if isinstance(item, Available)), None))
        for name, info in model.model_fields.items()
    }
