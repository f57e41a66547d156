"""Generates random changes, and compares what both servers make of them."""

from __future__ import annotations

import json
import random
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.api import Refusal
from tests.cluster.differential.case import JSON
from tests.cluster.validation.mutate import mutated
from tests.cluster.validation.objects import NAME, allocated_claim, good_objects
from tests.cluster.validation.servers import OurServer, RealServer

_SHOWN: Final = 300
_NOTHING: Final = object()
_OWN: Final = ("uid", "creationTimestamp", "generation", "managedFields", "resourceVersion", "name")
_STATUS: Final = ("status",)


@dataclass(frozen=True)
class Case:
    """An object that is sent, as a new one or as an update of the valid one."""

    number: int
    verb: str
    good: JSON
    obj: JSON
    subresource: str = ""

    def __str__(self) -> str:
        what = f"#{self.number}: {self.verb} {self.obj['kind']} {self.subresource}".rstrip()
        return "\n".join([what, *(f"    {line[:_SHOWN]}" for line in _changes(self.good, self.obj))])


@dataclass
class Outcome:
    """The result: how many cases, how many of them the real server refused, and where both disagree."""

    counts: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Returns the result in words."""
        counts = ", ".join(f"{number} {name}" for name, number in sorted(self.counts.items()))
        return "\n".join([f"{counts}; {len(self.disagreements)} disagree", *self.disagreements])


def cases(seed: str, profile: ServerProfile) -> Iterator[Case]:
    """Yields cases without end, the same for the same seed."""
    good = good_objects(profile)
    number = 0
    while True:
        chance = random.Random(f"{seed}/{number}")
        verb = chance.choice(("create", "create", "create", "update", "status"))
        kind = "ResourceClaim" if verb == "status" else chance.choice([*good, "ResourceSlice", "ResourceClaim"])
        if verb == "create":
            model = chance.choice(good[kind])
            yield Case(number, verb, model, _renamed(mutated(model, chance)))
        elif verb == "update":
            model = allocated_claim(profile) if kind == "ResourceClaim" else good[kind][0]
            yield Case(number, verb, model, mutated(model, chance, keeps_name=True))
        else:
            model = allocated_claim(profile)
            yield Case(number, "update", model, mutated(model, chance, _STATUS), "status")
        number += 1


def _renamed(obj: JSON) -> JSON:
    """Returns an object with a name that is free; without a name, a server would report only that."""
    if obj["metadata"].get("name") in (NAME, None, ""):
        obj["metadata"]["name"] = f"new-{NAME}"
    return obj


class Comparison:
    """Both servers, with the valid objects stored in each."""

    def __init__(self, real: RealServer, ours: OurServer, profile: ServerProfile) -> None:
        self._real, self._ours = real, ours
        for kind, objects in good_objects(profile).items():
            stored = allocated_claim(profile) if kind == "ResourceClaim" else objects[0]
            for server in (real, ours):
                server.store(json.loads(json.dumps(stored)))

    def run(self, case: Case, outcome: Outcome) -> None:
        """Compares one case."""
        real = self._answer(self._real, case)
        try:
            ours = self._answer(self._ours, case)
        except Exception as error:  # noqa: BLE001 (is a disagreement too)
            ours = Refusal(frozenset({(type(error).__name__, str(error))}), "".join(traceback.format_exception(error)))
        outcome.counts["cases"] += 1
        outcome.counts["refused"] += isinstance(real, Refusal)
        if said := _difference(real, ours):
            outcome.disagreements.append(f"{case}\n  {said}")

    @staticmethod
    def _answer(server: RealServer | OurServer, case: Case) -> JSON | Refusal:
        obj = json.loads(json.dumps(case.obj))
        return server.try_create(obj) if case.verb == "create" else server.try_update(obj, case.subresource)


def _changes(good: Any, obj: Any, place: str = "") -> Iterator[str]:
    """Returns the differences of `obj`, part by part."""
    if type(good) is type(obj) is dict:
        for key in {**good, **obj}:
            if key not in obj:
                yield f"{place}.{key} is gone"
            else:
                yield from _changes(good.get(key, _NOTHING), obj[key], f"{place}.{key}")
    elif type(good) is type(obj) is list and len(good) == len(obj):
        for index, (left, right) in enumerate(zip(good, obj, strict=True)):
            yield from _changes(left, right, f"{place}[{index}]")
    elif good != obj or type(good) is not type(obj):
        size = f" ({len(obj)})" if isinstance(obj, (list, str)) else ""
        yield f"{place} = {json.dumps(obj, ensure_ascii=False)[:_SHOWN]}{size}"


def _difference(real: JSON | Refusal, ours: JSON | Refusal) -> str:
    if isinstance(real, Refusal) and isinstance(ours, Refusal):
        if real.fields == ours.fields:
            return ""
        told = f"\n    real: {real.message[:400]}\n    ours: {ours.message[-400:]}"
        more = "" if real.fields and ours.fields else told
        missing, surplus = sorted(real.fields - ours.fields), sorted(ours.fields - real.fields)
        both = sorted(real.fields & ours.fields)
        return f"refused fields: real alone {missing}, ours alone {surplus}, both {both}{more}"
    if isinstance(real, Refusal) or isinstance(ours, Refusal):
        return f"taken or not\n    real: {_told(real)}\n    ours: {_told(ours)}"
    left, right = _stored(real), _stored(ours)
    return "" if left == right else "\n    ".join(["stored, ours beside the real", *_changes(left, right)])


def _told(answer: JSON | Refusal) -> str:
    return f"refused: {sorted(answer.fields)} {answer.message[-600:]}" if isinstance(answer, Refusal) else "taken"


def _stored(obj: JSON) -> Any:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _OWN}
    return _plain({"metadata": metadata, "spec": obj["spec"], "status": obj.get("status")})


def _plain(value: Any) -> Any:
    """Returns a copy without empty parts and times, which a server may set."""
    if isinstance(value, dict):
        items = {key: _plain(item) for key, item in value.items() if key != "timeAdded"}
        return {key: item for key, item in items.items() if item is False or item not in (None, "", [], {}, 0)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
