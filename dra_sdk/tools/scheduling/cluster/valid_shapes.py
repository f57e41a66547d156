"""ResourceSlices of one shape are validated once, and so is what an API server stores of them.

What is valid in a slice depends on its free strings only by the rules that are here, one for each place of a free
string. If the first slice of a shape is valid and keeps all its fields, another one is valid if its free strings keep
their rules, and what is stored of it differs in these strings alone. Where anything else is the case, each slice is
validated by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.list_files import ListItem
from dra_sdk.tools.scheduling.cluster.snapshot import value_at
from dra_sdk.tools.scheduling.cluster.text_shapes import (
    ANY,
    ATTRIBUTE,
    Filler,
    Path,
    Place,
    TextShape,
    place_of,
)
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation.names import dns_subdomain, label_value, pool_name

_KIND: Final = "ResourceSlice"
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
Rule = Callable[[str], bool]


class ValidShapes:
    """The shapes of valid slices, and how to make what is stored of another slice of each."""

    def __init__(self, profile: ServerProfile) -> None:
        self._profile = profile
        self._known: dict[TextShape, tuple[Filler | None, Sequence[tuple[int, Rule]]]] = {}

    def stored(self, document: Document, obj: JSON) -> JSON | None:
        """Return what is stored of a slice if its shape says that it is valid, else None."""
        if not isinstance(document, ListItem) or document.shape not in self._known or document.shape is None:
            return None
        filler, rules = self._known[document.shape]
        strings = document.strings
        if not all(rule(strings[index]) for index, rule in rules):
            return None
        return obj if filler is None else filler.fill(strings)

    def remember(self, document: Document, obj: JSON, stored: JSON) -> None:
        """Remember the shape of a slice that is valid and of which no field is dropped."""
        if not isinstance(document, ListItem) or document.shape is None or obj.get("kind") != _KIND:
            return
        shape = document.shape
        rules = [(index, rule) for path, index in shape.slots if (rule := self._rule(path)) is not None]
        same = all(
            value_at(obj, path) == document.strings[index] == value_at(stored, path) for path, index in shape.slots
        )
        metadata = document.value["metadata"]
        # Without a name, one is made from the position in the file; equal owners are stored once.
        if not same or not metadata.get("name") or len(metadata.get("ownerReferences") or ()) > 1:
            return
        if len(rules) == len(shape.slots):
            filler = None if json.dumps(stored) == json.dumps(obj) else Filler(stored, shape.slots)
            self._known[shape] = filler, tuple(dict.fromkeys(rules))

    def _rule(self, path: Path) -> Rule | None:
        """Return what a free string has to keep at a path; None if that is not known."""
        place = place_of(path)
        return self._is_short if place == ATTRIBUTE else _RULES.get(place)

    def _is_short(self, text: str) -> bool:
        return len(text) <= self._profile.limits.attribute_value_length and text.isascii()


def _is_subdomain(text: str) -> bool:
    return bool(text) and not any(dns_subdomain(text, ""))


def _is_prefix(text: str) -> bool:
    return text.endswith("-") and _is_subdomain(text[:-1])


def _is_time(text: str) -> bool:
    try:
        return _TIME.fullmatch(text) is not None and bool(datetime.fromisoformat(text))
    except ValueError:
        return False


_RULES: Final[Mapping[Place, Rule]] = {
    ("metadata", "uid"): lambda _text: True,
    ("metadata", "resourceVersion"): lambda _text: True,
    ("metadata", "managedFields", ANY, "time"): lambda _text: True,
    ("metadata", "name"): _is_subdomain,
    ("metadata", "generateName"): _is_prefix,
    ("metadata", "creationTimestamp"): _is_time,
    ("metadata", "labels", ANY): lambda text: not any(label_value(text, "")),
    ("metadata", "ownerReferences", ANY, "name"): bool,
    ("metadata", "ownerReferences", ANY, "uid"): bool,
    ("spec", "nodeName"): _is_subdomain,
    ("spec", "pool", "name"): lambda text: not any(pool_name(text, "")),
}
