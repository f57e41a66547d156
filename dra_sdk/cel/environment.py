"""What an expression may refer to: one variable such as `device`, the functions, and the names of types.

Features of the cluster change the declarations about `device`, so that an expression can compile on one cluster and not
on another.
Source: k8s.io/dynamic-resource-allocation, cel/compile.go (1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from dra_sdk.cel import library, types
from dra_sdk.cel.library.overloads import Functions
from dra_sdk.cel.types import Type
from dra_sdk.cel.values import PYTHON_TYPES

_WITHOUT_NAMES: Final = {types.QUANTITY, types.SEMVER, types.URL, types.FORMAT}
TYPE_NAMES: Final = {kind.name: kind for _, kind in PYTHON_TYPES if kind not in _WITHOUT_NAMES}
"""The types that an expression may name."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster that change what an expression may say.

    consumable_capacity: the gate DRAConsumableCapacity, which adds `device.allowMultipleAllocations`.
    list_type_attributes: the gate DRAListTypeAttributes, which adds `includes()` and iteration over attributes.
    since_1_37: the syntax, functions and costs of 1.37 instead of those of 1.36 and before.
    """

    consumable_capacity: bool = True
    list_type_attributes: bool = True
    since_1_37: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a part of the variable can be; estimates start from it.

    size: the greatest number of characters, items or entries.
    fields: the shapes of its fields.
    key: the shape of its keys, None if it is no map.
    value: the shape of its values, None if it is no map.
    any_field: the shape of a field that `fields` does not name.
    """

    size: int
    fields: Mapping[str, Shape] = field(default_factory=dict)
    key: Shape | None = None
    value: Shape | None = None
    any_field: Shape | None = None


_MAX_ENTRIES: Final = 32  # attributes and capacities of a device
_NAME, _DOMAIN, _DRIVER = Shape(32), Shape(63), Shape(63)
_ATTRIBUTE: Final = Shape(64)
_ATTRIBUTES: Final = Shape(_MAX_ENTRIES, key=_NAME, value=_ATTRIBUTE, any_field=_ATTRIBUTE)
_CAPACITIES: Final = Shape(_MAX_ENTRIES, key=_NAME, value=Shape(0))
DEVICE_SHAPE: Final = Shape(
    0,
    {
        "driver": _DRIVER,
        "attributes": Shape(_MAX_ENTRIES, key=_DOMAIN, value=_ATTRIBUTES),
        "capacity": Shape(_MAX_ENTRIES, key=_DOMAIN, value=_CAPACITIES),
        "allowMultipleAllocations": Shape(1),
    },
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that is declared.

    variable: the name of the variable.
    kind: its type.
    shape: how large it can be.
    structs: the types of the fields of each type that has fields.
    unknown: the type of what only the evaluation knows; a condition may have it too.
    functions: the overloads of each function.
    since_1_37: whether syntax and names are those of 1.37.
    """

    variable: str
    kind: Type
    shape: Shape
    structs: Mapping[Type, Mapping[str, Type]]
    unknown: Type
    functions: Functions
    since_1_37: bool = False


@lru_cache(maxsize=8)
def environment(features: Features) -> Environment:
    """Return the environment of an expression about a device, on a cluster with these features."""
    attribute = types.DYN if features.list_type_attributes else types.ANY
    fields = {
        "driver": types.STRING,
        "attributes": types.map_of(types.STRING, types.map_of(types.STRING, attribute)),
        "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = types.BOOL
    functions = library.functions(since_1_37=features.since_1_37, includes=features.list_type_attributes)
    structs = {types.DEVICE: fields}
    return Environment("device", types.DEVICE, DEVICE_SHAPE, structs, attribute, functions, features.since_1_37)


def object_environment(
    variable: str, kind: Type, shape: Shape, structs: Mapping[Type, Mapping[str, Type]]
) -> Environment:
    """Return the environment of an expression about an object, as in an admission policy."""
    functions = library.functions(since_1_37=False, includes=False)
    return Environment(variable, kind, shape, structs, types.DYN, functions)
