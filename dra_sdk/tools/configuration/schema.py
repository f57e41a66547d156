"""JSON Schema as pydantic writes it for configuration classes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dra_sdk.errors import SettingsError
from dra_sdk.model import JSON
from dra_sdk.model.config import OpaqueConfig, json_schema

HEAD: Final = ("apiVersion", "kind")
"""The fields of a configuration that are not of its class."""


class ConfigSchema:
    """The schema of the configuration classes of a driver.

    kinds: the object schema of each class, in the order of the classes.
    """

    def __init__(self, configs: Sequence[type[OpaqueConfig]]) -> None:
        document = json_schema(configs, "configuration")
        self._definitions: dict[str, JSON] = document["$defs"]
        self.kinds = [self.resolved(kind) for kind in document["oneOf"]]

    def resolved(self, schema: JSON) -> JSON:
        """Return the schema that a reference names, or the schema itself."""
        reference = schema.get("$ref")
        return self._definitions[reference.rpartition("/")[2]] if reference else schema

    def alternatives(self, schema: JSON) -> list[JSON]:
        """Return the schemas of which a value has one: several of `anyOf` or `oneOf`, or the schema itself."""
        resolved = self.resolved(schema)
        kinds = resolved.get("anyOf") or resolved.get("oneOf")
        return [inner for kind in kinds for inner in self.alternatives(kind)] if kinds else [resolved]

    def is_nullable(self, schema: JSON) -> bool:
        """Return whether a value may be null."""
        return any(kind.get("type") == "null" for kind in self.alternatives(schema))

    def plain(self, schema: JSON) -> JSON:
        """Return the schema of a value that is not null; an empty one if there are several."""
        kinds = [kind for kind in self.alternatives(schema) if kind.get("type") != "null"]
        return kinds[0] if len(kinds) == 1 else {}

    def fields(self, schema: JSON) -> Iterator[tuple[str, JSON]]:
        """Yield the fields of an object with their schemas, without apiVersion and kind of a configuration."""
        heads = HEAD if any(schema is kind for kind in self.kinds) else ()
        yield from ((key, field) for key, field in schema.get("properties", {}).items() if key not in heads)

    def check_depth(self, depth: int) -> None:
        """Raise SettingsError if this many levels are possible only in a class that contains itself."""
        if depth > len(self._definitions) + 10:
            raise SettingsError("a configuration class that contains itself cannot be checked by a policy")


def literal(value: Any) -> str:
    """Return a JSON value as CEL: the same text, but for characters beyond ASCII, which CEL takes as they are."""
    return json.dumps(value, ensure_ascii=False)
