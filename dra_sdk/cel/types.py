"""The static types of CEL, and which type may be used where another one is wanted.

A value of type `dyn` is checked when the expression runs. `any`, the type of an attribute while the cluster has no list
attributes, is like `dyn` but cannot be iterated. Source: the CEL language definition (cel-spec), section "Gradual Type
Checking"; cel-go, checker/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class TypeKind(Enum):
    """The families of types that the checker distinguishes."""

    SIMPLE = "simple"
    DYN = "dyn"
    ANY = "any"
    ERROR = "error"
    NULL = "null"
    LIST = "list"
    MAP = "map"
    OPAQUE = "opaque"
    TIME = "time"
    STRUCT = "struct"
    TYPE = "type"
    PARAM = "param"

    # The hash of Enum is computed in Python, and types are looked up in tables all the time.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Type:
    """A type.

    kind: its family.
    name: its name, as `type(x)` gives it.
    params: the element type of a list, the key and value types of a map, and so on.
    """

    kind: TypeKind
    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


BOOL: Final = Type(TypeKind.SIMPLE, "bool")
INT: Final = Type(TypeKind.SIMPLE, "int")
UINT: Final = Type(TypeKind.SIMPLE, "uint")
DOUBLE: Final = Type(TypeKind.SIMPLE, "double")
STRING: Final = Type(TypeKind.SIMPLE, "string")
BYTES: Final = Type(TypeKind.SIMPLE, "bytes")
NULL: Final = Type(TypeKind.NULL, "null_type")
DYN: Final = Type(TypeKind.DYN, "dyn")
ANY: Final = Type(TypeKind.ANY, "any")
ERROR: Final = Type(TypeKind.ERROR, "!error!")
QUANTITY: Final = Type(TypeKind.STRUCT, "kubernetes.Quantity")
SEMVER: Final = Type(TypeKind.STRUCT, "kubernetes.Semver")
DEVICE: Final = Type(TypeKind.STRUCT, "kubernetes.DRADevice")
IP: Final = Type(TypeKind.OPAQUE, "net.IP")
CIDR: Final = Type(TypeKind.OPAQUE, "net.CIDR")
TIMESTAMP: Final = Type(TypeKind.TIME, "google.protobuf.Timestamp")
DURATION: Final = Type(TypeKind.TIME, "google.protobuf.Duration")
URL: Final = Type(TypeKind.STRUCT, "kubernetes.URL")
FORMAT: Final = Type(TypeKind.STRUCT, "kubernetes.NamedFormat")
_DYNAMIC: Final = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.ERROR})
_NULLABLE: Final = frozenset({TypeKind.NULL, TypeKind.OPAQUE, TypeKind.STRUCT, TypeKind.TIME})
_UNKNOWN: Final = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.PARAM})
SCALARS: Final = frozenset({BOOL, INT, UINT, DOUBLE, TIMESTAMP, DURATION})
"""Types whose values all have size 1."""


def list_of(element: Type) -> Type:
    """Return `list(element)`."""
    return Type(TypeKind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return `map(key, value)`."""
    return Type(TypeKind.MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    """Return `optional_type(value)`."""
    return Type(TypeKind.OPAQUE, "optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of a type, which is the type of `type(1)`."""
    return Type(TypeKind.TYPE, "type", (value,))


def param(name: str) -> Type:
    """Return a type variable."""
    return Type(TypeKind.PARAM, name)


def is_dyn(kind: Type) -> bool:
    """Return whether the evaluation, not the checker, decides about this type."""
    return kind.kind in _DYNAMIC


def is_optional(kind: Type) -> bool:
    """Return whether a type is an optional."""
    return kind.name == "optional_type"


class Unifier:
    """The types that the type variables of one expression stand for so far."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._count = 0

    def fresh(self) -> Type:
        """Return a type variable that nothing else uses."""
        self._count += 1
        return param(f"_{self._count}")

    def instantiate(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """Return the same types with fresh variables in place of their own."""
        renamed: dict[Type, Type] = {}
        return tuple(self._rename(kind, renamed) for kind in types)

    def fit(self, given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        """Return whether each given type may be used where the other is wanted; bind variables only if all may."""
        before = dict(self._bound)
        if len(given) == len(wanted) and all(map(self._fits, given, wanted)):
            return True
        self._bound = before
        return False

    def resolve(self, kind: Type, *, final: bool = False) -> Type:
        """Return the type with its bound variables replaced; with `final`, unbound variables become dyn."""
        if kind.kind is TypeKind.PARAM:
            if kind in self._bound:
                return self.resolve(self._bound[kind], final=final)
            return DYN if final else kind
        if not kind.params:
            return kind
        return Type(kind.kind, kind.name, tuple(self.resolve(inner, final=final) for inner in kind.params))

    def join(self, previous: Type, current: Type) -> Type | None:
        """Return the more general of two types, or None if neither fits the other."""
        if not self.fit((previous,), (current,)):
            return None
        return previous if _less_specific(previous, current) else current

    def _rename(self, kind: Type, renamed: dict[Type, Type]) -> Type:
        if kind.kind is TypeKind.PARAM:
            if kind not in renamed:
                renamed[kind] = self.fresh()
            return renamed[kind]
        if not kind.params:
            return kind
        return Type(kind.kind, kind.name, tuple(self._rename(inner, renamed) for inner in kind.params))

    def _fits(self, given: Type, wanted: Type) -> bool:
        if wanted.kind is TypeKind.PARAM:
            fits = self._bind(wanted, given)
            if fits or wanted in self._bound:
                return fits
        if given.kind is TypeKind.PARAM:
            return self._bind(given, wanted)
        if is_dyn(given) or is_dyn(wanted):
            return True
        if TypeKind.NULL in {given.kind, wanted.kind}:
            other = wanted if given.kind is TypeKind.NULL else given
            return other.kind in _NULLABLE
        if given.kind is TypeKind.TYPE:
            return wanted.kind is TypeKind.TYPE
        same = given.kind is wanted.kind and given.name == wanted.name and len(given.params) == len(wanted.params)
        return same and all(map(self._fits, given.params, wanted.params))

    def _bind(self, variable: Type, kind: Type) -> bool:
        if variable == kind:
            return True
        bound = self._bound.get(variable)
        if bound is None:
            if self._occurs(variable, kind):
                return False
            self._bound[variable] = kind
            return True
        if kind == bound:
            return True
        if not self._fits(kind, bound):
            return False
        general = kind if _less_specific(kind, bound) else bound
        if not self._occurs(variable, general):
            self._bound[variable] = general
        return True

    def _occurs(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return True
        if within.kind is TypeKind.PARAM:
            return within in self._bound and self._occurs(variable, self._bound[within])
        return any(self._occurs(variable, inner) for inner in within.params)


def _less_specific(left: Type, right: Type) -> bool:
    if left.kind in _UNKNOWN:
        return True
    if right.kind in _UNKNOWN or left.kind is not right.kind:
        return False
    if left.kind is TypeKind.TYPE:
        return True
    if left.params and left.name == right.name and len(left.params) == len(right.params):
        return all(map(_less_specific, left.params, right.params))
    return left == right
