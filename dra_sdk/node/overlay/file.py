"""Reading an overlay file: everything that can be wrong with it is found before any device is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dra_sdk import cel
from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.device import AttributeValue, Device, DeviceTaint
from dra_sdk.node.overlay.apply import Overlay
from dra_sdk.node.overlay.errors import OverlayError
from dra_sdk.node.overlay.rules import OverlaySource, Rule, RuleSource
from dra_sdk.wire.documents import Document, read_documents
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.slices import DeviceAttribute
from dra_sdk.wire.resource.slices import DeviceTaint as WireTaint
from dra_sdk.wire.slice import device_json
from dra_sdk.wire.validation import devices, names

Path_ = tuple[str | int, ...]
Found = Iterator[tuple[Path_, str]]


def load(path: Path) -> Overlay:
    """The overlay in a file; OverlayError names the file and every line and field that is wrong."""
    try:
        documents = read_documents(path.read_bytes(), str(path))
    except OSError as error:
        raise OverlayError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except InvalidObjectError as error:
        raise OverlayError(str(path), error.problems) from error
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise OverlayError(str(path), [f"want one document of kind DeviceOverlay, found {len(documents)}"])
    return _Reader(path, documents[0]).overlay()


class _Reader:
    def __init__(self, path: Path, document: Document) -> None:
        self._path, self._document = str(path), document
        self._problems: list[str] = []
        self._profile = ServerProfile.of()

    def overlay(self) -> Overlay:
        """The rules of the file, or everything that is wrong with them."""
        try:
            source = OverlaySource.model_validate(self._document.value)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False):
                self._note(problem["loc"], _sentence(problem))
            raise OverlayError(self._path, self._problems) from error
        rules = tuple(self._rule(index, rule) for index, rule in enumerate(source.rules))
        if self._problems:
            raise OverlayError(self._path, self._problems)
        return Overlay(self._path, rules)

    def _note(self, place: Path_, problem: str) -> None:
        self._problems.append(f"line {self._document.line(place)}: {_field(place)}: {problem}")

    def _rule(self, index: int, source: RuleSource) -> Rule:
        place: Path_ = ("rules", index)
        for found, problem in (*self._attributes(source), *self._taints(source)):
            self._note((*place, *found), problem)
        added = tuple(DeviceTaint(key=each.key, value=each.value, effect=each.effect) for each in source.taints)
        selector = self._selector(source, place)
        nodes = tuple(source.nodes or ())
        return Rule(_field(place), selector, nodes, source.attributes, added, source.override)

    def _selector(self, source: RuleSource, place: Path_) -> cel.Selector | None:
        if source.match is None:
            return None
        try:
            selector = cel.compile(source.match)
            selector.check_cost()
        except cel.CelCompileError as error:
            self._note((*place, "match"), str(error))
            return None
        return selector

    def _attributes(self, source: RuleSource) -> Found:
        for name, value in source.attributes.items():
            place: Path_ = ("attributes", name)
            for problem in names.qualified_name(name, "name", self._profile):
                yield place, problem.detail
            yield from ((place, problem) for problem in self._value(name, value))

    def _value(self, name: str, value: AttributeValue) -> Iterator[str]:
        try:
            plain = device_json(Device("device", {name: value}), driver="")["attributes"]
        except InvalidObjectError as error:
            yield from error.problems
            return
        for each in plain.values():
            checked = devices.attribute(DeviceAttribute.model_validate(each), "value", self._profile)
            yield from (problem.detail for problem in checked)

    def _taints(self, source: RuleSource) -> Found:
        seen = set()
        for index, each in enumerate(source.taints):
            place: Path_ = ("taints", index)
            for problem in devices.taint(
                WireTaint(key=each.key, value=each.value, effect=each.effect), "", self._profile
            ):
                yield (*place, problem.field.removeprefix(".")), problem.detail
            if (each.key, each.effect) in seen:
                yield place, f"key {each.key} with effect {each.effect} is given twice"
            seen.add((each.key, each.effect))


def _field(place: Path_) -> str:
    """`rules[1].attributes[example.com/rail]`, as Kubernetes writes the paths of fields."""
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
        return f"want a text in quotes (got {problem['input']!r})"
    message = problem["msg"].removeprefix("Value error, ")
    shown = problem["input"]
    return f"{message} (got {shown!r})" if isinstance(shown, str | int | float) else message
