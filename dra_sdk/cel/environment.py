"""What an expression may refer to: the variable `device`, the functions, and the names of types.

Source: k8s.io/dynamic-resource-allocation, cel/compile.go (1.36). Features of the cluster change the declarations, so
that an expression can compile on one cluster and not on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from dra_sdk.cel import types
from dra_sdk.cel.library import conversions, kubernetes, lists, operators, strings
from dra_sdk.cel.library.functions import Library, gathered
from dra_sdk.cel.types import Type

#: Kubernetes' base environment has these, this one has not: no device has a time, a URL or a name to validate.
NOT_OFFERED: Final = frozenset(
    {"timestamp", "duration", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"}
    | {"getHours", "getMinutes", "getSeconds", "getMilliseconds"}
    | {"url", "isURL", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery"}
    | {"format", "strings.quote", "validate", "format.named", "authorizer"}
)

TYPE_NAMES: Final[Mapping[str, Type]] = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "int": types.INT,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "null_type": types.NULL,
    "string": types.STRING,
    "type": types.type_of(types.DYN),
    "uint": types.UINT,
    "optional_type": types.optional_of(types.DYN),
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
}


@dataclass(frozen=True, slots=True)
class Features:
    """Feature gates of the cluster that change what an expression may say; all on by default.

    `consumable_capacity` (DRAConsumableCapacity) adds `device.allowMultipleAllocations`; `list_type_attributes`
    (DRAListTypeAttributes) adds `includes()`, and lets an expression iterate over an attribute. `since_1_37` takes the
    functions and prices of 1.37; by default they are those of 1.36 and before.
    """

    consumable_capacity: bool = True
    list_type_attributes: bool = True
    since_1_37: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a part of `device` can be at most; what estimates start from."""

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
    """Everything that is declared."""

    attribute: Type
    fields: Mapping[str, Type]
    functions: Library


@lru_cache(maxsize=8)
def environment(features: Features) -> Environment:
    """The environment of a cluster with these features."""
    attribute = types.DYN if features.list_type_attributes else types.ANY
    fields = {
        "driver": types.STRING,
        "attributes": types.map_of(types.STRING, types.map_of(types.STRING, attribute)),
        "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = types.BOOL
    newer = features.since_1_37
    groups = [each.declared() for each in (operators, conversions, kubernetes)]
    groups[2:2] = [each.declared(since_1_37=newer) for each in (strings, lists)]
    extra = [lists.includes(since_1_37=newer)] if features.list_type_attributes else []
    return Environment(attribute, fields, gathered(*groups, extra))
