"""Changes to selectors that might help: another constant, a test for the attribute first, a clause less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dra_sdk import cel
from dra_sdk.cel.conjuncts import Conjunct, compared_with, without
from dra_sdk.cel.values import Semver
from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.cluster.names import key_of, shown
from dra_sdk.tools.scheduling.explain.edits import Path, changed, request_path, text_of
from dra_sdk.tools.scheduling.explain.requests import Looked
from dra_sdk.tools.scheduling.explain.selection import Selector
from dra_sdk.tools.scheduling.explain.setting import Setting
from dra_sdk.tools.scheduling.explain.trials import Proposal, Size

_SETS: Final = 5
_VALUES: Final = 3
_LONGEST: Final = 3


@dataclass(frozen=True, slots=True)
class _Part:
    """A clause of a selector."""

    selector: Selector
    clause: Conjunct

    @property
    def key(self) -> Key:
        return self.selector.place, self.clause.offset


Key = tuple[str, int]
Parts = tuple[_Part, ...]


def of_selectors(
    setting: Setting, looked: Looked, selectors: Sequence[Selector], devices: Sequence[Candidate], nodes: Sequence[JSON]
) -> Iterator[Proposal]:
    """What would let devices pass the selectors of a request: the clauses that stand in the way of some, together."""
    writer = _Writer(setting.claim, looked, nodes)
    for selector in selectors:
        yield from _guards(writer, selector, devices)
    for parts, blocked in _obstacles(selectors, devices):
        if len(parts) == 1:
            yield from _constants(writer, parts[0], blocked)
        yield writer.without(parts, len(blocked))


def _obstacles(selectors: Sequence[Selector], devices: Sequence[Candidate]) -> list[tuple[Parts, list[Candidate]]]:
    """The sets of clauses that do not hold for some device each, the smallest and most frequent first."""
    sets: dict[frozenset[Key], tuple[Parts, list[Candidate]]] = {}
    for device in devices:
        parts = tuple(_Part(each, clause) for each in selectors for clause in _against(each, device))
        if 0 < len(parts) <= _LONGEST:
            sets.setdefault(frozenset(each.key for each in parts), (parts, []))[1].append(device)
    return sorted(sets.values(), key=lambda each: (len(each[0]), -len(each[1])))[:_SETS]


def _against(selector: Selector, device: Candidate) -> list[Conjunct]:
    try:
        return [each for each, holds in selector.verdicts(device.content) if not holds]
    except cel.CelCompileError:
        return []


def _constants(writer: _Writer, part: _Part, blocked: Sequence[Candidate]) -> Iterator[Proposal]:
    """The values that the devices have, in place of the one that was asked for."""
    values: Counter[Any] = Counter()
    raw: dict[str, Any] = {}
    for device in blocked:
        for field in part.clause.fields(device.content.view):
            if isinstance(field.value, str | int | Quantity | Semver) and not isinstance(field.value, bool):
                values[field.text] += 1
                raw[field.text] = field.value
    for text, _ in sorted(values.items(), key=lambda each: (_rank(raw[each[0]]), -each[1]))[:_VALUES]:
        edit = compared_with(part.selector.text, part.clause, raw[text])
        if edit is not None:
            told = f"{part.selector.place}: {edit.after} instead of {edit.before}"
            made = writer.proposal(Size.CONSTANT, told, [(part.selector, edit.expression)])
            yield replace(
                made, family=f"{made.field} {part.clause.offset}", name=edit.after, parts=frozenset({part.key})
            )


def _rank(value: Any) -> Any:
    """Larger amounts first: who asks for 80Gi rather has 40Gi than 16Gi."""
    return (0, -value.value) if isinstance(value, Quantity) else (1, 0)


def _guards(writer: _Writer, selector: Selector, devices: Sequence[Candidate]) -> Iterator[Proposal]:
    """`has(x) && clause` for a clause that has no answer where x is not there."""
    guards: dict[int, tuple[Conjunct, str]] = {}
    for device in devices:
        for clause in _against(selector, device):
            missing = [each.path for each in clause.fields(device.content.view) if each.missing]
            if missing and clause.offset not in guards and clause.holds(device.content.view) is None:
                guards[clause.offset] = clause, " && ".join(f"has({each})" for each in missing)
    text = selector.text
    for clause, guard in guards.values():
        guarded = f"{text[: clause.offset]}({guard} && {text[clause.offset : clause.end]}){text[clause.end :]}"
        told = f"{selector.place}: first test that the attribute is there: {guard} && {clause.text}"
        key = _Part(selector, clause).key
        yield replace(writer.proposal(Size.GUARD, told, [(selector, guarded)]), parts=frozenset({key}))


@dataclass(frozen=True, slots=True)
class _Writer:
    """Makes proposals for the selectors of one request."""

    claim: JSON
    looked: Looked
    nodes: Sequence[JSON]

    def without(self, parts: Parts, count: int) -> Proposal:
        """All these clauses left out."""
        texts: dict[int, tuple[Selector, str]] = {}
        for each in sorted(parts, key=lambda part: -part.clause.offset):
            selector, text = texts.get(id(each.selector), (each.selector, each.selector.text))
            texts[id(each.selector)] = selector, without(text, each.clause).expression
        size = Size.CLASS if any(each.selector.of_class for each in parts) else Size.CLAUSE
        places = dict.fromkeys(each.selector.place for each in parts)
        told = [
            f"{place}: leave out {' and '.join(each.clause.text for each in parts if each.selector.place == place)}"
            for place in places
        ]
        made = self.proposal(size, "; ".join(told), list(texts.values()))
        return replace(made, extent=1000 * len(parts) - min(count, 999), parts=frozenset(each.key for each in parts))

    def proposal(self, size: Size, text: str, texts: Sequence[tuple[Selector, str]]) -> Proposal:
        """Selectors with other expressions."""
        selector, after = texts[0]
        name = self.looked.request.class_name
        owner = f"DeviceClass {name}" if selector.of_class else f"ResourceClaim {shown(key_of(self.claim))}"
        return Proposal(
            Size.CLASS if selector.of_class else size,
            text,
            lambda setting: self._apply(setting, texts),
            self.nodes,
            object=owner,
            field=text_of(self._path(selector)),
            before=selector.text,
            after=after,
        )

    def _apply(self, setting: Setting, texts: Sequence[tuple[Selector, str]]) -> Setting:
        claim, classes = setting.claim, dict(setting.classes)
        name = self.looked.request.class_name
        for selector, text in texts:
            if selector.of_class:
                classes[name] = changed(classes[name], self._path(selector), text)
            else:
                claim = changed(claim, self._path(selector), text)
        if classes != setting.classes:
            return setting.changed(claims=(*setting.claims[:-1], claim), classes=classes)
        return setting.changed(claims=(*setting.claims[:-1], claim))

    def _path(self, selector: Selector) -> Path:
        start: Path = ("spec",) if selector.of_class else request_path(self.claim, self.looked.request.reference)
        return (*start, "selectors", selector.number, "cel", "expression")
