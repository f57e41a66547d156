"""Opaque configurations of every shape, right and wrong, for the policy that checks them."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk import CelRule, Device, DriverInfo, Node, OpaqueConfig

NAME: Final = "shapes.example.com"
VERSION: Final = f"{NAME}/v1"
PLATES: Final = "plates.example.com"


class Screw(BaseModel):
    """An object within an object."""

    model_config = ConfigDict(extra="forbid")

    head: Literal["flat", "round"] | None = None


class Part(BaseModel):
    """An object within a configuration."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    width: int = Field(ge=1)
    colour_of: Literal["inside", "outside"] = "inside"
    screw: Screw = Screw()


class Shape(OpaqueConfig, api_version=VERSION):
    """Fields of every type."""

    small: int = Field(default=1, ge=1, le=9)
    ratio: float = Field(default=0.5, gt=0, lt=1)
    on: bool = False
    name: str = Field(default="a", pattern="^[a-z]+$", min_length=1, max_length=5)
    mode: Literal["fast", 'ünïque "quoted"', 7] = "fast"
    maybe: int | None = None
    part: Part | None = None
    parts: list[Part] = Field(default=[], max_length=2)
    numbers: dict[str, int] = Field(default={}, max_length=2)
    sides: dict[Literal["left", "right"], int] = Field(default={})
    either: int | Literal["all"] = "all"


class Strict(OpaqueConfig, api_version=VERSION):
    """A kind with a field that is required."""

    size: int


class ShapeDriver:
    """A driver that takes both."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, configs=[Shape, Strict])

    def dra_discover(self, node: Node) -> list[Device]:
        return [Device("shape")]

    def dra_prepare(self, claim: Any) -> list[Any]:
        return [device.prepared() for device in claim.devices]


class Odd(OpaqueConfig, api_version="odd.example.com/v1"):
    """Checks in code: one that refuses, one that has a defect."""

    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def check(self) -> Odd:
        if self.low == self.high:
            raise RuntimeError("a defect")
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class OddDriver(ShapeDriver):
    """A driver whose configuration has checks that are code, and a defect in one."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("odd.example.com", configs=[Odd])


def shape(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": "Shape", **fields}


RIGHT: Final = [
    shape(),
    shape(small=9, ratio=0.25, on=True, name="abc", mode='ünïque "quoted"', maybe=None),
    shape(mode=7, maybe=5, part=None, parts=[], numbers={}, either=3),
    shape(
        part={"width": 1, "screw": {"head": None}},
        parts=[{"width": 2, "colourOf": "outside"}, {"width": 3}],
        numbers={"a": 1, "b": -2},
    ),
    {"apiVersion": VERSION, "kind": "Strict", "size": 0},
]
WRONG: Final[list[tuple[str, Any]]] = [
    ("apiVersion and kind must be", {"small": 1}),
    ("apiVersion and kind must be", {"apiVersion": VERSION, "kind": "Shap"}),
    ("apiVersion and kind must be", {"apiVersion": "shapes.example.com/v2", "kind": "Shape"}),
    ("Shape: unknown field; known: small, ratio, on,", shape(smal=1)),
    ("Shape: small must be an integer, at least 1, at most 9", shape(small=0)),
    ("Shape: small must be", shape(small=10)),
    ("Shape: small must be", shape(small=1.5)),
    ("Shape: small must be", shape(small="one")),
    ("Shape: small must be", shape(small=None)),
    ("Shape: ratio must be a number, more than 0, less than 1", shape(ratio=1)),
    ("Shape: ratio must be", shape(ratio=0)),
    ("Shape: on must be true or false", shape(on="perhaps")),
    (
        'Shape: name must be text, with at least 1 characters, with at most 5 characters, like "^[a-z]+$"',
        shape(name=""),
    ),
    ("Shape: name must be", shape(name="abcdef")),
    ("Shape: name must be", shape(name="A")),
    ("Shape: name must be", shape(name=3)),
    ('Shape: mode must be "fast" or "ünïque \\"quoted\\"" or 7', shape(mode="slow")),
    ("Shape: mode must be", shape(mode=8)),
    ("Shape: maybe must be an integer", shape(maybe="some")),
    ("Shape: part must be an object", shape(part=3)),
    ("Shape: part.width is required", shape(part={})),
    ("Shape: part.width must be an integer, at least 1", shape(part={"width": 0})),
    ("Shape: part has an unknown field; known: width, colourOf, screw", shape(part={"width": 1, "height": 1})),
    ('Shape: part.colourOf must be "inside" or "outside"', shape(part={"width": 1, "colourOf": "red"})),
    ("Shape: part.screw must be an object", shape(part={"width": 1, "screw": None})),
    ("Shape: part.screw has an unknown field; known: head", shape(part={"width": 1, "screw": {"length": 3}})),
    ('Shape: part.screw.head must be "flat" or "round"', shape(part={"width": 1, "screw": {"head": "square"}})),
    ("Shape: parts must be a list in which each is an object, of at most 2 items", shape(parts={})),
    ("Shape: parts must be", shape(parts=[{"width": 1}] * 3)),
    ("Shape: parts must be", shape(parts=[{"width": 0}])),
    ("Shape: parts must be", shape(parts=[{}])),
    ("Shape: parts must be", shape(parts=[{"width": 1, "screw": {"head": 1}}])),
    ("Shape: parts must be", shape(parts=[{"width": 1, "depth": 2}])),
    ("Shape: numbers must be an object, of at most 2 keys", shape(numbers={"a": "x"})),
    ("Shape: numbers must be", shape(numbers={"a": 1, "b": 2, "c": 3})),
    ('Shape: sides must be an object in which each key is "left" or "right"', shape(sides={"top": 1})),
    ("Shape: sides must be", shape(sides={"left": "x"})),
    ('Shape: either must be an integer or "all"', shape(either="none")),
    ("Strict: size is required", {"apiVersion": VERSION, "kind": "Strict"}),
    ("Strict: unknown field; known: size", {"apiVersion": VERSION, "kind": "Strict", "size": 1, "small": 1}),
]
"""The sentence of the policy that says what is wrong, and the parameters."""


def entry(parameters: Any, driver: str = NAME) -> dict[str, Any]:
    """An entry of `config`."""
    return {"opaque": {"driver": driver, "parameters": parameters}}


class Hole(BaseModel):
    """An object within a configuration whose rules see its default."""

    model_config = ConfigDict(extra="forbid")

    at: int = Field(default=3, ge=0, le=99)
    thread: Literal["fine", "coarse"] | None = None


class Plate(OpaqueConfig, api_version=f"{PLATES}/v1"):
    """A configuration with what a schema cannot say: as code, and as rules."""

    low: int = Field(default=0, ge=0, le=10)
    high: int | None = Field(default=None, ge=0, le=10)
    name: str | None = Field(default=None, max_length=10, examples=["plate", "disc"])
    hole: Hole = Field(default_factory=Hole)
    holes: list[Hole] = Field(default=[], max_length=4)
    named: dict[str, Hole] = Field(default={}, max_length=4)

    cel_rules = (
        CelRule("!has(self.high) || self.low <= self.high", "low must not be above high"),
        CelRule("self.hole.at >= 3 || has(self.name) // the default is 3", "a hole before 3 needs a name"),
        CelRule("self.holes.all(h, h.at != 0) && self.named.all(k, self.named[k].at != 0)", "no hole is at 0"),
    )

    @model_validator(mode="after")
    def check(self) -> Plate:
        if self.high is not None and self.low > self.high:
            raise ValueError("low must not be above high")
        if self.hole.at < 3 and self.name is None:
            raise ValueError("a hole before 3 needs a name")
        if not all(hole.at for hole in [*self.holes, *self.named.values()]):
            raise ValueError("no hole is at 0")
        return self


class PlateDriver(ShapeDriver):
    """A driver whose configuration has rules."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(PLATES, configs=[Plate])


def plate(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"{PLATES}/v1", "kind": "Plate", **fields}


RIGHT_PLATES: Final = [
    plate(),
    plate(low=3),
    plate(low=3, high=3),
    plate(high=None, low=10),
    plate(hole={}, holes=[{}], named={"a": {}}),
    plate(hole={"at": 0, "thread": None}, name="disc"),
    plate(hole={"thread": "fine"}, holes=[{"at": 1}, {"thread": "coarse"}], named={"a": {"at": 9}, "b": {}}),
]
WRONG_PLATES: Final = [
    ("Plate: low must not be above high", plate(low=3, high=2)),
    ("Plate: low must be an integer", plate(low=11, high=2)),
    ("Plate: a hole before 3 needs a name", plate(hole={"at": 2})),
    ("Plate: a hole before 3 needs a name", plate(hole={"at": 2}, name=None)),
    ("Plate: no hole is at 0", plate(holes=[{}, {"at": 0}])),
    ("Plate: no hole is at 0", plate(named={"a": {}, "b": {"at": 0}})),
    ("Plate: unknown field", plate(width=3)),
    ("Plate: hole must be an object", plate(hole=3)),
]
