"""The format of an overlay file (`dra-sdk.dev/v1alpha1`, DeviceOverlay), and one rule of it once it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk.cel import DeviceView, Selector
from dra_sdk.model.device import AttributeValue, DeviceTaint, Version


class _Part(BaseModel):
    """Strict: an unknown field is an error, and so is a number where a text is wanted."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def _attribute(value: Any) -> AttributeValue:
    if isinstance(value, dict) and set(value) == {"version"} and isinstance(value["version"], str):
        return Version(value["version"])
    if isinstance(value, dict) and set(value) == {"versions"} and _all(value["versions"], str):
        return [Version(each) for each in value["versions"]]
    if isinstance(value, bool | int | str) or any(_all(value, kind) for kind in (bool, int, str)):
        return value  # type: ignore[no-any-return]  # mypy cannot follow `any`
    raise ValueError("want a bool, an int, a text, a list of one of these, {version: 1.2.3} or {versions: [1.2.3]}")


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is kind for each in value)


class TaintSource(_Part):
    """A taint as it stands in the file."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute", "None"]


class RuleSource(_Part):
    """A rule as it stands in the file."""

    match: str | None = None
    nodes: list[str] | None = Field(default=None, min_length=1)
    attributes: dict[str, Annotated[Any, PlainValidator(_attribute)]] = Field(default_factory=dict)
    taints: list[TaintSource] = Field(default_factory=list)
    override: bool = False

    @model_validator(mode="after")
    def _does_something(self) -> RuleSource:
        if not self.attributes and not self.taints:
            raise ValueError("has neither attributes nor taints")
        return self


class OverlaySource(_Part):
    """The whole file."""

    api_version: Literal["dra-sdk.dev/v1alpha1"]
    kind: Literal["DeviceOverlay"]
    rules: list[RuleSource]


@dataclass(frozen=True, slots=True)
class Rule:
    """What to add to which devices; `where` is its place in the file, such as `rules[2]`."""

    where: str
    match: Selector | None
    nodes: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]
    taints: tuple[DeviceTaint, ...]
    override: bool

    def concerns(self, node: str) -> bool:
        """Whether it is about this node."""
        return not self.nodes or any(fnmatchcase(node, pattern) for pattern in self.nodes)

    def selects(self, device: DeviceView) -> bool:
        """Whether it is about this device; CelRuntimeError if its expression cannot tell."""
        return self.match is None or self.match.matches(device)
