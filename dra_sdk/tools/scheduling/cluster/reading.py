"""From documents to a snapshot: objects as an API server would store them, or a line for each reason why it would not.

Every object of resource.k8s.io is validated, filled in with defaults and rid of what the server drops. Of pods and
nodes the parts are checked that count here. What comes from a running cluster or from a driver is already stored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.adminaccess import asks_for_admin_access, assumption, refusal
from dra_sdk.tools.scheduling.cluster.core import Namespace, Node, Pod
from dra_sdk.tools.scheduling.cluster.names import DEFAULT_NAMESPACE, Key, generated_name, generated_uid
from dra_sdk.tools.scheduling.cluster.podrules import core_problems
from dra_sdk.tools.scheduling.cluster.snapshot import KINDS, Snapshot
from dra_sdk.tools.scheduling.expressions import compiler
from dra_sdk.wire.documents import Document, objects
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.metadata import TopLevel
from dra_sdk.wire.validation import Dropped, Problem, title, validate
from dra_sdk.wire.validation.availability import drop_disabled, dropped_fields
from dra_sdk.wire.validation.decoding import GROUP, read_as, read_object, set_defaults
from dra_sdk.wire.validation.decoding import KINDS as OURS
from dra_sdk.wire.validation.problems import invalid, show, split_path

Place = tuple[str | int, ...]
_CORE: Final[Mapping[str, type[TopLevel]]] = {"Node": Node, "Pod": Pod, "Namespace": Namespace}
_CLAIMS: Final = {"ResourceClaim", "ResourceClaimTemplate"}
_NAMESPACED: Final = {"Pod", *_CLAIMS}
_COLUMN = re.compile(r"line (\d+), column (\d+)")
_INDEX = re.compile(r"\[\d+\]")
_SHOWN: Final = 100
_LONG: Final = 2000


class ReadingError(DraError):
    """Objects that no API server would take; `problems` holds a line for each: file, line, object, field, reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Source:
    """A file and its documents; `stored` if they come from where an API server, or the SDK, has checked them."""

    name: str
    documents: Sequence[Document]
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: the snapshot, and in sentences what an API server would quietly do otherwise than was written.

    `passed_over` counts the objects of kinds that do not matter here.
    """

    snapshot: Snapshot
    warnings: tuple[str, ...]
    passed_over: Counter[str]


def read_snapshot(sources: Iterable[Source], profile: ServerProfile | None = None) -> Reading:
    """The snapshot of all objects in `sources`; ReadingError with every problem of every object.

    Objects without a namespace go into `default`, and those without a name or a UID get ones that are the same in
    every run.
    """
    reader = _Reader(profile or ServerProfile.of())
    for source in sources:
        for document in source.documents:
            for place, obj in objects(document.value):
                reader.read(_Found(source, document, place, obj))
    reader.check_admin_access()
    if reader.problems:
        raise ReadingError(reader.problems)
    kept: dict[str, Any] = {field: tuple(each.values()) for field, each in reader.objects.items()}
    return Reading(Snapshot(profile=reader.profile, **kept), tuple(reader.warnings), reader.passed_over)


@dataclass(frozen=True, slots=True)
class _Found:
    """An object and where it stands."""

    source: Source
    document: Document
    place: Place
    obj: Any

    def at(self, field: str = "") -> str:
        """`file:line: Kind/name`; what never was in a file has no line."""
        where = self.source.name
        if self.document.has_lines:
            where += f":{self.document.line([*self.place, *split_path(field)])}"
        return f"{where}: {_one_line(title(self.obj).replace(' ', '/', 1))}"

    def line(self, problem: Problem) -> str:
        """One problem; the text of a CEL expression and the place in it follow below."""
        what = f"{problem.field}: {problem.detail}" if problem.field else problem.detail
        return f"{self.at(problem.field)}: {_one_line(what, _LONG)}{self._pointer(problem)}"

    def _pointer(self, problem: Problem) -> str:
        match = _COLUMN.match(problem.detail)
        text = _value(self.obj, split_path(problem.field))
        if not match or not isinstance(text, str):
            return ""
        line, column = text.split("\n")[int(match[1]) - 1], int(match[2]) - 1
        start = max(0, column - _SHOWN)
        shown = line[start : column + _SHOWN].replace("\t", " ")
        return f"\n    {shown}\n    {' ' * (column - start)}^"


@dataclass(slots=True)
class _Reader:
    profile: ServerProfile
    objects: dict[str, dict[Key, JSON]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    _places: dict[tuple[str, Key], _Found] = field(default_factory=dict)
    _admins: list[tuple[_Found, str]] = field(default_factory=list)

    def read(self, found: _Found) -> None:
        """Keep the object, or its problems, or count it among what does not matter."""
        obj = found.obj
        if not isinstance(obj, dict):
            self.problems.append(f"{found.at()}: must be an object, is {obj!r:.60}")
            return
        kind, version = str(obj.get("kind") or ""), str(obj.get("apiVersion") or "")
        known = kind in OURS or version.startswith(f"{GROUP}/") or (kind in _CORE and version in {"v1", ""})
        if kind.endswith("List") and "items" in obj:
            self.problems.append(found.line(invalid("items", f"must be a list, is {show(obj['items'])}")))
            return
        if kind and not known:
            self.passed_over[kind] += 1
            return
        obj = _named(obj, found, len(self._places))
        problems, stored = ([], obj) if found.source.stored else self._checked(kind, obj, found)
        self.problems += [found.line(problem) for problem in problems]
        if not problems and stored is not None:
            self._keep(kind, stored, found)

    def check_admin_access(self) -> None:
        """Once all objects are read: whether the namespaces of those who ask for it grant it."""
        namespaces = self.objects.get("namespaces", {})
        for found, name in self._admins:
            namespace = namespaces.get(("", name))
            if namespace is None:
                self.warnings.append(f"{found.at('spec')}: {assumption(name)}")
            elif reason := refusal(namespace):
                self.problems.append(f"{found.at('spec')}: {reason}")

    def _checked(self, kind: str, obj: JSON, found: _Found) -> tuple[list[Problem], JSON | None]:
        if kind in _CORE:
            value, problems = read_as(_CORE[kind], obj, self.profile)
            if value is not None:
                problems += core_problems(value)
            return problems, obj | {"spec": obj.get("spec") or {}}
        problems = validate(obj, profile=self.profile, compile_cel=compiler(self.profile))
        if not problems and kind == "ResourceClaim" and obj.get("status"):
            problems = self._problems_of_status(obj)
        if problems:
            return problems, None
        stored, gone = _stored(obj, self.profile)
        if gone:
            self.warnings += [f"{found.at(each.field)}: {each}{_likewise(more)}" for each, more in _alike(gone)]
            problems = validate(stored, profile=self.profile)  # what is left may make no sense any more
        return problems, stored

    def _problems_of_status(self, claim: JSON) -> list[Problem]:
        """A claim that was allocated before: whether a scheduler could have written that."""
        metadata = claim["metadata"] | {"resourceVersion": "1"}
        stored = claim | {"metadata": metadata}
        before = {name: value for name, value in stored.items() if name != "status"}
        found = validate(stored, old=before, subresource="status", profile=self.profile)
        return [each for each in found if each.field.startswith("status")]

    def _keep(self, kind: str, obj: JSON, found: _Found) -> None:
        metadata = obj["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        if before := self._places.get((kind, key)):
            where = before.at("metadata.name").partition(": ")[0]
            self.problems.append(f"{found.at('metadata.name')}: was given before, at {where}")
            return
        self._places[kind, key] = found
        if kind in _CLAIMS and asks_for_admin_access(obj) and not found.source.stored:
            self._admins.append((found, key[0]))
        if not metadata.get("uid"):
            obj = obj | {"metadata": metadata | {"uid": generated_uid(kind, key)}}
        self.objects.setdefault(KINDS[kind], {})[key] = obj


def _stored(obj: JSON, profile: ServerProfile) -> tuple[JSON, list[Dropped]]:
    """A valid object of resource.k8s.io as the server stores it, defaults filled in, and the fields that it drops."""
    value, _ = read_object(obj, profile)
    if value is None:
        raise ValueError(f"{title(obj)} is not valid")
    gone = list(dropped_fields(value, profile))
    if gone:
        drop_disabled(value, None, profile)
    set_defaults(value)
    stored = value.to_json()
    spec = stored.setdefault("spec", {})
    if stored["kind"] in _CLAIMS:
        (spec if stored["kind"] == "ResourceClaim" else spec.setdefault("spec", {})).setdefault("devices", {})
    return stored, gone


def _alike(gone: Iterable[Dropped]) -> Iterator[tuple[Dropped, int]]:
    """The first of the fields that differ in an index only, and how many more there are: devices have many."""
    groups: dict[str, list[Dropped]] = {}
    for each in gone:
        groups.setdefault(_INDEX.sub("[]", each.field), []).append(each)
    for group in groups.values():
        yield group[0], len(group) - 1


def _likewise(more: int) -> str:
    return f" (and so are {more} more such fields)" if more else ""


def _named(obj: JSON, found: _Found, number: int) -> JSON:
    """The object as a client sends it, in the default namespace, and with a name in place of `generateName`."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj if metadata is not None else obj | {"metadata": {}}
    metadata = {name: value for name, value in metadata.items() if value is not None}
    if str(obj.get("kind")) in _NAMESPACED:
        metadata = {"namespace": DEFAULT_NAMESPACE} | metadata
    base = metadata.get("generateName")
    if isinstance(base, str) and base and not metadata.get("name"):
        metadata = {"name": generated_name(base, found.source.name, str(number))} | metadata
    return obj | {"metadata": metadata}


def _one_line(text: str, limit: int = _SHOWN) -> str:
    """Names and values from a file, so that a line of a message stays one."""
    text = text.replace("\n", "\\n")
    return text if len(text) <= limit else f"{text[:limit]}…"


def _value(value: Any, tokens: Iterable[str | int]) -> Any:
    """The value at a path, None where there is none."""
    for token in tokens:
        if isinstance(value, dict):
            value = value.get(str(token))
        elif isinstance(value, list) and isinstance(token, int) and token < len(value):
            value = value[token]
        else:
            return None
    return value
