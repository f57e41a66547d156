"""The fields of pods, nodes and workloads of Kubernetes, and the names of all built-in kinds, to find misspelt ones.

An API server drops a field that it does not know, and `kubectl` refuses it: a pod with `resourceClaim` instead of
`resourceClaims` would run without devices. The table is made from the OpenAPI specifications of Kubernetes 1.36 and
1.37 by tests/tools/scheduling/cluster/make_builtin_types.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from dra_sdk.texts import did_you_mean
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation.problems import Problem, ProblemType, invalid, required, show

_SCALARS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "string": ((str,), "a string"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "quantity": ((str, int, float), "a quantity such as 4, 500m or 80Gi"),
    "int-or-string": ((int, str), "a whole number or a string"),
}
_INT64: Final = range(-(2**63), 2**63)
_COLLECTIONS: Final[Mapping[str, tuple[type[Any], str]]] = {"[": (list, "a list"), "{": (dict, "an object")}


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((files(__package__) / "builtin_types.json").read_text(encoding="utf-8"))
    return table


def builtin_kinds() -> Mapping[str, list[str]]:
    """Return the kinds of each API version that Kubernetes itself has."""
    kinds: Mapping[str, list[str]] = _table()["kinds"]
    return kinds


def kind_problems(api_version: object, kind: object) -> Iterator[Problem]:
    """Yield what is wrong with kind and version of an object, if they are like those of Kubernetes itself.

    Nothing is known of other API groups, so their kinds are never a problem here.
    """
    kinds = builtin_kinds()
    version = api_version if isinstance(api_version, str) else ""
    if not isinstance(kind, str) or not kind:
        yield required("kind", "must be set; without it this is no object of Kubernetes")
        return
    homes = [group_version for group_version, names in kinds.items() if kind in names]
    if not version:
        hint = f"must be {' or '.join(homes)}" if homes else "must be set"
        yield required("apiVersion", hint + ("" if homes else did_you_mean(kind, _kind_names())))
    elif version in kinds:
        if kind not in kinds[version] and not kind.endswith("List"):
            where = f"; it is in {' and '.join(homes)}" if homes else did_you_mean(kind, _kind_names())
            yield invalid("kind", f"{version} has no kind {show(kind)}{where}")
    elif "." not in version.partition("/")[0] and not version.startswith("extensions/"):
        detail = f"; {kind} is in {' and '.join(homes)}" if homes else did_you_mean(version, kinds)
        yield invalid("apiVersion", f"{show(version)} is not a version of Kubernetes{detail}")


def _kind_names() -> set[str]:
    return {name for names in builtin_kinds().values() for name in names}


def field_problems(type_name: str, value: Any, profile: ServerProfile, path: str = "") -> Iterator[Problem]:
    """Yield unknown fields and wrong types in an object of a built-in type, such as `Pod` or `PodTemplateSpec`.

    path: the path of the object, which begins the path of each problem.
    """
    if value is None:
        return
    if type_name[0] in _COLLECTIONS:
        yield from _item_problems(type_name, value, profile, path)
    elif type_name in _SCALARS:
        types, text = _SCALARS[type_name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            yield _wrong_type(path, text, value)
        elif type_name == "integer" and value not in _INT64:
            yield _wrong_type(path, "a whole number of 64 bits", value)
    elif type_name != "any":
        yield from _object_problems(type_name, value, profile, path)


def _item_problems(type_name: str, value: Any, profile: ServerProfile, path: str) -> Iterator[Problem]:
    expected, text = _COLLECTIONS[type_name[0]]
    if not isinstance(value, expected):
        yield _wrong_type(path, text, value)
        return
    keys: Iterable[Any] = value if expected is dict else range(len(value))
    for key in keys:
        yield from field_problems(type_name[1:], value[key], profile, f"{path}[{key}]")


def _object_problems(type_name: str, value: Any, profile: ServerProfile, path: str) -> Iterator[Problem]:
    fields: Mapping[str, str] = _table()["types"][type_name]
    if not isinstance(value, dict):
        yield _wrong_type(path, "an object", value)
        return
    if not fields:
        return
    since: Mapping[str, int] = _table()["since"]
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        added = since.get(f"{type_name}.{name}", 0)
        if name not in fields:
            yield Problem(where, ProblemType.UNKNOWN, f"unknown field{_similar_field(name, fields)}")
        elif added > profile.minor:
            yield Problem(where, ProblemType.UNKNOWN, f"Kubernetes {profile.version} has no such field, 1.{added} has")
        else:
            yield from field_problems(fields[name], item, profile, where)


def _similar_field(name: str, fields: Mapping[str, str]) -> str:
    """Return a field of the object that is like the name, or one of an object in it that has the name."""
    if similar := did_you_mean(name, fields):
        return similar
    types = _table()["types"]
    inner = next((field for field, kind in fields.items() if name in types.get(kind, ())), None)
    return f"; did you mean {inner}.{name}?" if inner else ""


def _wrong_type(path: str, expected: str, value: Any) -> Problem:
    return Problem(path, ProblemType.TYPE_INVALID, f"must be {expected}, is {show(value)}")
