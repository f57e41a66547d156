"""The format of an overlay file (`dra-sdk.dev/v1alpha1`, DeviceOverlay), and reading one.

A file is checked completely when it is read, so nothing in it can be found wrong while a driver runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk import cel
from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.input_files import MIB, read_limited
from dra_sdk.model.device import AttributeValue, Device, DeviceTaint, Version
from dra_sdk.node.overlay.apply import Overlay, OverlayRule
from dra_sdk.wire.documents import Document, read_documents
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.slices import DeviceAttribute
from dra_sdk.wire.resource.slices import DeviceTaint as WireTaint
from dra_sdk.wire.slice import device_json
from dra_sdk.wire.validation import devices, names

FieldPath = tuple[str | int, ...]
Problems = Iterator[tuple[FieldPath, str]]
FILE_LIMIT: Final = 4 * MIB
"""Bytes of an overlay file."""


class OverlayError(SettingsError):
    """An overlay file cannot be read or used.

    source: the path of the file.
    problems: one sentence for each problem, with file, line and field.
    """

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__(*(f"overlay {source}: {problem}" for problem in problems))


class _Model(BaseModel):
    """A part of the file. An unknown field is an error, and so is a number instead of a string."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def _attribute(value: Any) -> AttributeValue:
    if isinstance(value, dict) and set(value) == {"version"} and isinstance(value["version"], str):
        return Version(value["version"])
    if isinstance(value, dict) and set(value) == {"versions"} and _all(value["versions"], str):
        return [Version(text) for text in value["versions"]]
    if isinstance(value, bool | int | str) or any(_all(value, kind) for kind in (bool, int, str)):
        return value  # type: ignore[no-any-return]  # mypy cannot follow `any`
    raise ValueError("want a bool, an int, a string, a list of one of these, {version: 1.2.3} or {versions: [1.2.3]}")


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is kind for item in value)


class _TaintModel(_Model):
    """A taint in the file; its fields are those of the API."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute", "None"]


class _RuleModel(_Model):
    """A rule in the file.

    match: a CEL expression that selects devices.
    nodes: patterns of node names.
    attributes: the attributes to add, by name.
    taints: the taints to add.
    override: whether the rule replaces what a device already has.
    publish: whether these devices are published; None if the rule does not say.
    """

    match: str | None = None
    nodes: list[str] | None = Field(default=None, min_length=1)
    attributes: dict[str, Annotated[Any, PlainValidator(_attribute)]] = Field(default_factory=dict)
    taints: list[_TaintModel] = Field(default_factory=list)
    override: bool = False
    publish: bool | None = None

    @model_validator(mode="after")
    def _does_something(self) -> _RuleModel:
        if not self.attributes and not self.taints and self.publish is None:
            raise ValueError("has neither attributes nor taints nor publish")
        return self


class _OverlayModel(_Model):
    """The whole file.

    api_version: the version of the format.
    kind: the kind of the document.
    rules: the rules in their order.
    """

    api_version: Literal["dra-sdk.dev/v1alpha1"]
    kind: Literal["DeviceOverlay"]
    rules: list[_RuleModel]


def load(path: Path) -> Overlay:
    """Read an overlay file; OverlayError names the file, and every line and field that is wrong."""
    try:
        documents = read_documents(read_limited(path, FILE_LIMIT), str(path))
    except OSError as error:
        raise OverlayError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except InvalidObjectError as error:
        raise OverlayError(str(path), error.problems) from error
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise OverlayError(str(path), [f"want one document of kind DeviceOverlay, found {len(documents)}"])
    return _OverlayReader(path, documents[0]).overlay()


class _OverlayReader:
    def __init__(self, path: Path, document: Document) -> None:
        self._path, self._document = str(path), document
        self._problems: list[str] = []
        self._profile = ServerProfile.of()

    def overlay(self) -> Overlay:
        """Return the overlay; OverlayError with all problems."""
        try:
            source = _OverlayModel.model_validate(self._document.value)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False):
                self._note(problem["loc"], _sentence(problem))
            raise OverlayError(self._path, self._problems) from error
        rules = tuple(self._rule(index, rule) for index, rule in enumerate(source.rules))
        if self._problems:
            raise OverlayError(self._path, self._problems)
        return Overlay(self._path, rules)

    def _note(self, place: FieldPath, problem: str) -> None:
        self._problems.append(f"line {self._document.line(place)}: {_field(place)}: {problem}")

    def _rule(self, index: int, source: _RuleModel) -> OverlayRule:
        place: FieldPath = ("rules", index)
        for field, problem in (*self._attributes(source), *self._taints(source)):
            self._note((*place, *field), problem)
        added = tuple(DeviceTaint(key=taint.key, value=taint.value, effect=taint.effect) for taint in source.taints)
        selector = self._selector(source, place)
        nodes = tuple(source.nodes or ())
        return OverlayRule(_field(place), selector, nodes, source.attributes, added, source.override, source.publish)

    def _selector(self, source: _RuleModel, place: FieldPath) -> cel.Selector | None:
        if source.match is None:
            return None
        try:
            selector = cel.compile(source.match)
            selector.check_cost()
        except cel.CelError as error:
            self._note((*place, "match"), str(error))
            return None
        return selector

    def _attributes(self, source: _RuleModel) -> Problems:
        for name, value in source.attributes.items():
            place: FieldPath = ("attributes", name)
            for problem in names.qualified_name(name, "name", self._profile):
                yield place, problem.detail
            yield from ((place, problem) for problem in self._value(name, value))

    def _value(self, name: str, value: AttributeValue) -> Iterator[str]:
        try:
            plain = device_json(Device("device", {name: value}), driver="")["attributes"]
        except InvalidObjectError as error:
            yield from error.problems
            return
        for attribute in plain.values():
            checked = devices.attribute(DeviceAttribute.model_validate(attribute), "value", self._profile)
            yield from (problem.detail for problem in checked)

    def _taints(self, source: _RuleModel) -> Problems:
        seen = set()
        for index, taint in enumerate(source.taints):
            place: FieldPath = ("taints", index)
            checked = WireTaint(key=taint.key, value=taint.value, effect=taint.effect)
            for problem in devices.taint(checked, "", self._profile):
                yield (*place, problem.field.removeprefix(".")), problem.detail
            if (taint.key, taint.effect) in seen:
                yield place, f"key {taint.key} with effect {taint.effect} is given twice"
            seen.add((taint.key, taint.effect))


def _field(place: FieldPath) -> str:
    """Return the path of a field as Kubernetes writes it, such as `rules[1].attributes[example.com/rail]`."""
    text, before = "", None
    for part in place:
        is_field = isinstance(part, str) and before != "attributes"
        text += f".{part}" if is_field else f"[{part}]"
        before = part
    return text.removeprefix(".") or "the document"


def _sentence(problem: Any) -> str:
    if problem["type"] == "extra_forbidden":
        return "unknown field"
    if problem["type"] == "missing":
        return "is required"
    if problem["type"] == "string_type":
        return f"want a string in quotes (got {problem['input']!r})"
    message = problem["msg"].removeprefix("Value error, ")
    shown = problem["input"]
    return f"{message} (got {shown!r})" if isinstance(shown, str | int | float) else message
