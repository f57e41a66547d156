"""Build the CDI spec of a claim from the container edits of its devices.

These are plain functions over the author's dataclasses: three devices take some tens of microseconds. Only
fields that are set are written, so that the spec declares the oldest CDI version that can hold them. Each value must
have the type that its class declares, because hooks may be untyped. The built spec passes the same checks as a spec of
another program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.edits import ContainerEdits, DeviceNode, IntelRdt, Mount, NetDevice, OciHook
from dra_sdk.wire.cdi import schema
from dra_sdk.wire.cdi.validation import EARLIEST, content_problems, minimum_version


def claim_spec(kind: str, devices: Mapping[str, ContainerEdits]) -> JSON:
    """Return the CDI spec of a kind (`vendor/class`) with these devices, by name. Its version is the lowest possible.

    Raises InvalidObjectError with a sentence for each broken rule. It names the CDI device and the field. Runtimes
    refuse a device with empty edits, so this does too: leave it out and give the kubelet no CDI ID (`is_empty`).
    """
    subject, wrong_types, listed = f"CDI spec {kind}", list[str](), list[JSON]()
    for name, edits in devices.items():
        problems: list[str] = []
        written = edits_to_json(edits, problems)
        listed.append({"name": name, "containerEdits": written if problems else schema.EDITS.read(written, problems)})
        wrong_types += [f"device {name}: {problem.lstrip('.')}" for problem in problems]
    if wrong_types:
        raise InvalidObjectError(subject, wrong_types)
    spec: JSON = {"cdiVersion": EARLIEST, "kind": kind, "devices": listed}
    spec["cdiVersion"] = minimum_version(spec)
    if problems := list(content_problems(spec)):
        raise InvalidObjectError(subject, problems)
    return spec


def is_empty(edits: ContainerEdits) -> bool:
    """Return whether these edits change nothing. CDI refuses such a device, so the kubelet must get no CDI ID.

    Edits with a value of a wrong type, such as an empty text in place of a list, are not empty: `claim_spec` refuses
    them.
    """
    if any(getattr(edits, field.attribute) for field in _FIELDS[ContainerEdits]):
        return False
    problems: list[str] = []
    return not edits_to_json(edits, problems) and not problems


def edits_to_json(edits: ContainerEdits, problems: list[str]) -> JSON:
    """Return the `containerEdits` object. Append `.path: sentence` to `problems` for each value of a wrong type."""
    lists: Any = edits.env_lists
    if not isinstance(lists, Mapping):
        problems.append(f".env_lists: must be a mapping of names to lists of texts, is {lists!r:.80}")
    return _object(edits, ContainerEdits, problems)


def _object(value: object, kind: type, problems: list[str]) -> JSON:
    """Return the fields of an object that are set. Variables become NAME=VALUE."""
    written: JSON = {}
    for name, attribute, unset, declared, item in _FIELDS[kind]:
        field = getattr(value, attribute)
        if field is unset:
            continue
        if type(field) is declared and declared in _PLAIN:
            written[name] = field
            continue
        before = len(problems)
        made = _list(field, item, problems) if declared is list else _json(field, declared, problems)
        if made or declared in _PLAIN or declared in _FIELDS:  # 0 of an enumeration is set, an empty list is not
            written[name] = made
        if len(problems) > before:
            schema.prefix(f".{name}", problems, before)
    return written


def _list(value: Any, item: type, problems: list[str]) -> list[Any]:
    is_plain = type(value) in _LISTS  # asking the abstract classes takes longer than the rest
    if not is_plain and (isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)):
        problems.append(f": must be a list, is {schema.type_name(value)}")
        return []
    made = []
    for index, member in enumerate(value):
        before = len(problems)
        made.append(member if item in _PLAIN and type(member) is item else _json(member, item, problems))
        if len(problems) > before:
            schema.prefix(f"[{index}]", problems, before)
    return made


def _json(value: Any, declared: type, problems: list[str]) -> Any:
    """Return a value as JSON. Append a problem if it has not the declared type."""
    if declared is Mapping:
        return _variables(value, problems)
    if isinstance(value, declared) and not (declared is int and isinstance(value, bool)):
        return _object(value, declared, problems) if declared in _FIELDS else value
    if declared in _FIELDS:
        problems.append(f": must be of type {declared.__name__}, is {value!r:.80}")
    else:
        problems.append(f": must be {_WANTED[declared]}, is {schema.type_name(value)}")
    return None


def _variables(value: Any, problems: list[str]) -> list[str]:
    """Return variables as NAME=VALUE. A name must not change what is the value."""
    if not isinstance(value, Mapping):
        problems.append(f": must be a mapping of names to texts, is {value!r:.80}")
        return []
    for name, text in value.items():
        if not isinstance(name, str) or not name or "=" in name:
            problems.append(f": the name of a variable must be text, not empty and without '=', is {name!r}")
        if not isinstance(text, str):
            problems.append(f": the value of {name} must be text, is {text!r}")
    return [f"{name}={text}" for name, text in value.items()]


class _SpecField(NamedTuple):
    """A field of a class of edits.

    name: in CDI, such as `closID`.
    attribute: in the class, such as `clos_id`.
    unset: the value by which it is left out, such as None; MISSING without one.
    declared: `str`, `int`, `bool`, `list`, `Mapping` or a class of edits.
    item: the same for the items of a list; else equal to `declared`.
    """

    name: str
    attribute: str
    unset: object
    declared: type
    item: type


def _fields(kind: type, struct: schema.Struct) -> list[_SpecField]:
    """Return the fields that a class shares with CDI."""
    defaults, types = {field.name: field.default for field in fields(kind)}, get_type_hints(kind)
    shared = []
    for name in struct.fields:
        attribute = re.sub("(?<=[a-z0-9])[A-Z]+", r"_\g<0>", name).lower()
        default = defaults[attribute]
        shared.append(_SpecField(name, attribute, MISSING if default else default, *_declared(types[attribute])))
    return shared


def _declared(annotation: Any) -> tuple[type, type]:
    """Return the type and that of the items; a Literal is text."""
    kind, *others = get_args(annotation) or (annotation,)
    if NoneType in others:
        return _declared(kind)
    origin = get_origin(annotation)
    if origin is Sequence:
        return list, kind
    declared = str if origin is Literal else origin or annotation
    return declared, declared


_PLAIN: Final = frozenset({str, int})
_LISTS: Final = frozenset({list, tuple})
_WANTED: Final = {str: "a string", int: "a whole number", bool: "a boolean"}
_FIELDS: Final[Mapping[type, Sequence[_SpecField]]] = {
    kind: _fields(kind, struct)
    for kind, struct in (
        (ContainerEdits, schema.EDITS),
        (DeviceNode, schema.DEVICE_NODE),
        (NetDevice, schema.NET_DEVICE),
        (OciHook, schema.HOOK),
        (Mount, schema.MOUNT),
        (IntelRdt, schema.INTEL_RDT),
    )
}
