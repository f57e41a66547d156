"""Build the CDI spec of a claim from the container edits of its devices.

These are plain functions over the author's dataclasses: three devices take some tens of microseconds. Only
fields that are set are written, so that the spec declares the oldest CDI version that can hold them. The built spec
passes the same checks as a spec of another program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

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
        if problems := list(_class_problems(edits)):
            raise InvalidObjectError(subject, [f"device {name}: {problem}" for problem in problems])
        listed.append({"name": name, "containerEdits": schema.EDITS.read(edits_to_json(edits), problems)})
        wrong_types += [f"device {name}: {problem.lstrip('.')}" for problem in problems]
    if wrong_types:
        raise InvalidObjectError(subject, wrong_types)
    spec: JSON = {"cdiVersion": EARLIEST, "kind": kind, "devices": listed}
    spec["cdiVersion"] = minimum_version(spec)
    problems = [f"device {name}: {problem}" for name, edits in devices.items() for problem in env_problems(edits)]
    problems.extend(content_problems(spec))
    if problems:
        raise InvalidObjectError(subject, problems)
    return spec


def _class_problems(edits: Any) -> Iterator[str]:
    """Yield a problem for each part of edits that is of no class that the functions below read."""
    if not isinstance(edits.env, Mapping):
        yield f"env: must be a mapping of names to texts, is {edits.env!r:.80}"
    else:
        for name, text in edits.env.items():
            if not isinstance(text, str):
                yield f"env: the value of {name} must be text, is {text!r}"
    for index, hook in enumerate(edits.hooks):
        if not isinstance(hook, OciHook):
            yield f"hooks[{index}]: must be an OciHook, is {hook!r:.80}"


def is_empty(edits: ContainerEdits) -> bool:
    """Return whether these edits change nothing. CDI refuses such a device, so the kubelet must get no CDI ID."""
    return not any(getattr(edits, attribute) for _, attribute in _NAMES[ContainerEdits])


def edits_to_json(edits: ContainerEdits) -> JSON:
    """Return the `containerEdits` object, unchecked."""
    return _object(edits, _NAMES[ContainerEdits])


def env_problems(edits: ContainerEdits) -> Iterator[str]:
    """Yield a problem for each variable name that cannot be part of NAME=VALUE."""
    yield from _name_problems(edits.env, "env")
    for index, hook in enumerate(edits.hooks):
        yield from _name_problems(hook.env, f"hooks[{index}].env")


def _name_problems(env: Mapping[str, str], path: str) -> Iterator[str]:
    for name in env:
        if not name or "=" in name:
            yield f"{path}: the name of a variable must not be empty or contain '=', is {name!r}"


def _object(value: object, names: Sequence[tuple[str, str]]) -> JSON:
    """Return the fields of an object that are set. Variables become NAME=VALUE."""
    fields: JSON = {}
    for name, attribute in names:
        field = getattr(value, attribute)
        if type(field) in _PLAIN:
            fields[name] = field
        elif field and name == "env":
            fields[name] = [f"{key}={text}" for key, text in field.items()]
        elif field or (isinstance(field, int | float) and name != "enableMonitoring"):  # 0 of an enumeration is set
            fields[name] = _json(field)
    return fields


def _json(value: Any) -> Any:
    """Return a value as JSON. A plain string stays in place of a list: the schema refuses it."""
    for kind in type(value).__mro__:
        if names := _NAMES.get(kind):
            return _object(value, names)
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    return [item if type(item) in _PLAIN else _json(item) for item in value]


_PLAIN: Final = frozenset({str, int})
_STRUCTS: Final = {
    ContainerEdits: schema.EDITS,
    DeviceNode: schema.DEVICE_NODE,
    NetDevice: schema.NET_DEVICE,
    OciHook: schema.HOOK,
    Mount: schema.MOUNT,
    IntelRdt: schema.INTEL_RDT,
}
_NAMES: Final = {
    kind: [(name, re.sub("(?<=[a-z0-9])[A-Z]+", r"_\g<0>", name).lower()) for name in struct.fields]
    for kind, struct in _STRUCTS.items()
}
"""The names of an object's fields in CDI and in the author's class, such as `closID` and `clos_id`."""
