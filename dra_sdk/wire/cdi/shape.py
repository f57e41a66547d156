"""The fields of a CDI spec and their JSON types.

Runtimes refuse unknown fields and numbers that do not fit, so both are refused here. A small table rather than
pydantic models: one prepare call checks a handful of values, and importing pydantic alone would cost more than
thousands of such checks. As for the library that runtimes use, null stands for an absent field; unlike there, field
names count in their own case only, and an item of a list may not be null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

_NAMES: Final[Mapping[type, str]] = {
    str: "a string", bool: "a boolean", int: "a number", float: "a fraction", dict: "an object", list: "a list",
}  # fmt: skip


class Shape(Protocol):
    """How a JSON value must look."""

    def read(self, value: Any, problems: list[str]) -> Any:
        """The value without nulls; appends `path: sentence` to `problems` for what misfits, the path from here."""


def type_name(value: object) -> str:
    """A JSON type in words."""
    return "null" if value is None else _NAMES.get(type(value), f"a {type(value).__name__}")


def _below(part: str, problems: list[str], first: int) -> None:
    """Put `part` before the paths of the problems from `first` on; so good values cost no paths."""
    problems[first:] = [part + problem for problem in problems[first:]]


@dataclass(frozen=True, slots=True)
class Text:
    """A string. Runtimes take a number or a boolean for one too: in YAML, `name: 0` needs no quotes."""

    def read(self, value: Any, problems: list[str]) -> Any:
        """See Shape."""
        if isinstance(value, str):
            return value
        if isinstance(value, (bool, int, float)):
            return json.dumps(value)
        problems.append(f": must be a string, is {type_name(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean."""

    def read(self, value: Any, problems: list[str]) -> Any:
        """See Shape."""
        if not isinstance(value, bool):
            problems.append(f": must be a boolean, is {type_name(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def read(self, value: Any, problems: list[str]) -> Any:
        """See Shape."""
        if not isinstance(value, int) or isinstance(value, bool):
            problems.append(f": must be a whole number, is {type_name(value)}")
        elif not self.low <= value <= self.high:
            problems.append(f": must be from {self.low} to {self.high}, is {value}")
        return value


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of equal shapes."""

    item: Shape

    def read(self, value: Any, problems: list[str]) -> Any:
        """See Shape."""
        if not isinstance(value, list):
            problems.append(f": must be a list, is {type_name(value)}")
            return value
        found = []
        for index, item in enumerate(value):
            before = len(problems)
            found.append(self.item.read(item, problems))
            if len(problems) > before:
                _below(f"[{index}]", problems, before)
        return found


@dataclass(frozen=True, slots=True)
class TextList(ListOf):
    """A list of strings, by far the most frequent list, so it has a short way."""

    item: Shape = Text()

    def read(self, value: Any, problems: list[str]) -> Any:
        """See Shape."""
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        return ListOf.read(self, value, problems)


@dataclass(frozen=True, slots=True)
class Texts:
    """An object of any keys with strings as values."""

    def read(self, value: Any, problems: list[str]) -> Any:
        """See Shape."""
        if not isinstance(value, dict):
            problems.append(f": must be an object, is {type_name(value)}")
            return value
        found = {}
        for key, item in value.items():
            before = len(problems)
            found[key] = TEXT.read("" if item is None else item, problems)
            _below(f"[{key}]", problems, before)
        return found


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with known fields."""

    fields: Mapping[str, Shape]

    def read(self, value: Any, problems: list[str]) -> Any:
        """See Shape."""
        if not isinstance(value, dict):
            problems.append(f": must be an object, is {type_name(value)}")
            return value
        found = {}
        for key, item in value.items():
            shape = self.fields.get(key)
            if shape is None:
                problems.append(f".{key}: unknown field")
            elif item is not None:
                before = len(problems)
                found[key] = shape.read(item, problems)
                if len(problems) > before:
                    _below(f".{key}", problems, before)
        return found


TEXT: Final = Text()
FLAG: Final = Flag()
UINT32: Final = Number(0, 2**32 - 1)
INT64: Final = Number(-(2**63), 2**63 - 1)

DEVICE_NODE: Final = Fields(
    {
        "path": TEXT, "hostPath": TEXT, "type": TEXT, "major": INT64, "minor": INT64, "fileMode": UINT32,
        "permissions": TEXT, "uid": UINT32, "gid": UINT32,
    }
)  # fmt: skip
NET_DEVICE: Final = Fields({"hostInterfaceName": TEXT, "name": TEXT})
HOOK: Final = Fields({"hookName": TEXT, "path": TEXT, "args": TextList(), "env": TextList(), "timeout": INT64})
MOUNT: Final = Fields({"hostPath": TEXT, "containerPath": TEXT, "options": TextList(), "type": TEXT})
INTEL_RDT: Final = Fields(
    {
        "closID": TEXT, "l3CacheSchema": TEXT, "memBwSchema": TEXT, "schemata": TextList(),
        "enableMonitoring": FLAG,
    }
)  # fmt: skip
EDITS: Final = Fields(
    {
        "env": TextList(), "deviceNodes": ListOf(DEVICE_NODE), "netDevices": ListOf(NET_DEVICE),
        "hooks": ListOf(HOOK), "mounts": ListOf(MOUNT), "intelRdt": INTEL_RDT, "additionalGids": ListOf(UINT32),
    }
)  # fmt: skip
DEVICE: Final = Fields({"name": TEXT, "annotations": Texts(), "containerEdits": EDITS})
SPEC: Final = Fields(
    {"cdiVersion": TEXT, "kind": TEXT, "annotations": Texts(), "devices": ListOf(DEVICE), "containerEdits": EDITS}
)
