"""Changes to the claim, or to the selectors of its class, that may help.

To requests: more tolerations, smaller amounts and counts. To constraints: remove one. To selectors: another constant, a
check that an attribute exists, a conjunct removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dra_sdk import cel
from dra_sdk.cel.conjuncts import Conjunct, Edit, compared_with, without
from dra_sdk.cel.fields import FieldValue
from dra_sdk.cel.values import Semver
from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.texts import counted
from dra_sdk.tools.scheduling.allocator import MAX_RESULTS
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.cluster.snapshot import display_name, object_key, value_at
from dra_sdk.tools.scheduling.device_taints import taint_text, untolerated_taints
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem
from dra_sdk.tools.scheduling.explain.device_checks import quantity_text
from dra_sdk.tools.scheduling.explain.request_inspection import InspectedSelector, RequestInspection
from dra_sdk.tools.scheduling.explain.trials import (
    REMOVED,
    ChangeSize,
    ObjectPath,
    ProposedChange,
    constraint_path,
    path_text,
    request_path,
    with_value,
)

_MAX_CONJUNCT_SETS: Final = 5
_MAX_CONJUNCTS: Final = 3
"""How many conjuncts a change may remove."""
_DRIVER: Final = "device.driver"
CLAIM_OBJECT: Final = "ResourceClaim "
"""The start of the name of the object that a change of the explained claim changes."""
_MAX_CONSTANTS: Final = 3
_MAX_AMOUNTS: Final = 2


def propose_edit(
    size: ChangeSize, text: str, claim: JSON, change: tuple[ObjectPath, Any], nodes: Sequence[JSON]
) -> ProposedChange:
    """Propose to change one field of the claim to a value, or to remove it."""
    path, value = change
    return ProposedChange(
        size,
        text,
        lambda problem: problem.with_changes(claims=(*problem.claims[:-1], with_value(problem.claim, path, value))),
        nodes,
        object=f"{CLAIM_OBJECT}{display_name(object_key(claim))}",
        field=path_text(path),
        before=value_at(claim, path),
        after=None if value is REMOVED else value,
        path=path,
    )


def request_changes(claim: JSON, inspection: RequestInspection, nodes: Sequence[JSON]) -> Iterator[ProposedChange]:
    """Propose changes to a request that does not have enough devices, except to its selectors."""
    path = request_path(claim, inspection.request.reference)
    yield from _more_tolerations(claim, inspection, path, nodes)
    yield from _smaller_amounts(claim, inspection, path, nodes)
    yield from _fewer_devices(claim, inspection, path, nodes)


def constraint_changes(claim: JSON, nodes: Sequence[JSON]) -> Iterator[ProposedChange]:
    """Propose to remove a constraint."""
    for index, constraint in enumerate(claim["spec"]["devices"].get("constraints") or ()):
        kind = "matchAttribute" if constraint.get("matchAttribute") else "distinctAttribute"
        text = f"remove constraint {index} ({kind} {constraint[kind]})"
        yield propose_edit(ChangeSize.CONSTRAINT, text, claim, (constraint_path(index), REMOVED), nodes)


def _fewer_devices(
    claim: JSON, inspection: RequestInspection, path: ObjectPath, nodes: Sequence[JSON]
) -> Iterator[ProposedChange]:
    """Propose fewer devices, or a number of devices in place of all; the highest number that helps is reported."""
    name, count, left = inspection.request.reference, inspection.request.count, len(inspection.left)
    if count is None:
        available = min(left, MAX_RESULTS)
        value = {**value_at(claim, path), "allocationMode": "ExactCount", "count": available}
        text = f"request {name}: {available} devices instead of all {len(inspection.matching)}"
        if available:
            yield propose_edit(ChangeSize.NOT_ALL, text, claim, (path, value), nodes)
        return
    for less in range(min(count - 1, left or count - 1, MAX_RESULTS), 0, -1):
        text = f"request {name}: {counted(less, 'device')} instead of {count}"
        proposal = propose_edit(ChangeSize.COUNT, text, claim, ((*path, "count"), less), nodes)
        yield replace(proposal, extent=count - less, family=f"count {name}", name="")


def _more_tolerations(
    claim: JSON, inspection: RequestInspection, path: ObjectPath, nodes: Sequence[JSON]
) -> Iterator[ProposedChange]:
    before = value_at(claim, (*path, "tolerations")) or []
    taints: dict[str, JSON] = {}
    for candidate in inspection.closest:
        for taint in untolerated_taints(candidate.device.taints, inspection.request.tolerations):
            taints[taint_text(taint)] = dict(taint)
    for shown_taint, taint in taints.items():
        value = {"operator": "Equal", "value": taint["value"]} if taint.get("value") else {"operator": "Exists"}
        added = {"key": taint["key"], **value, "effect": taint["effect"]}
        text = f"request {inspection.request.reference}: tolerate taint {shown_taint}"
        yield propose_edit(ChangeSize.TOLERATION, text, claim, ((*path, "tolerations"), [*before, added]), nodes)


def _smaller_amounts(
    claim: JSON, inspection: RequestInspection, path: ObjectPath, nodes: Sequence[JSON]
) -> Iterator[ProposedChange]:
    """Propose as much of a capacity as some device has left and as its request policy allows."""
    consumed = inspection.problem.allocated.aggregated_capacity
    capacity_request = inspection.request.capacity_request
    for name, requested in capacity_request.amounts.items():
        field = (*path, "capacity", "requests", name)
        left_of_each = (
            capacity_request.most_of(candidate.content, name, consumed.get(candidate.id, {}).get(name, 0))
            for candidate in inspection.matching
        )
        available = {left for left in left_of_each if left is not None}
        for nano in sorted((left for left in available if 0 < left < requested.nano), reverse=True)[:_MAX_AMOUNTS]:
            amount = quantity_text(nano, requested.text)
            text = f"request {inspection.request.reference}: {amount} of {name} instead of {requested.text}"
            yield propose_edit(ChangeSize.AMOUNT, text, claim, (field, amount), nodes)


_ConjunctKey = tuple[str, int]
"""The location of a selector, and the offset of a conjunct in it."""


@dataclass(frozen=True, slots=True)
class _FailingConjunct:
    """A conjunct of a selector that is false for some device."""

    selector: InspectedSelector
    conjunct: Conjunct

    @property
    def key(self) -> _ConjunctKey:
        """Identifies the conjunct."""
        return self.selector.location, self.conjunct.offset

    def values_of(self, device: Candidate) -> Iterator[FieldValue]:
        """Yield what a device has in the fields of the conjunct, if a constant can be compared with it."""
        for field in self.conjunct.fields(device.content.view):
            if isinstance(field.value, str | int | Quantity | Semver) and not isinstance(field.value, bool):
                yield field


_FailingConjuncts = tuple[_FailingConjunct, ...]


def selector_changes(
    problem: AllocationProblem,
    inspection: RequestInspection,
    selectors: Sequence[InspectedSelector],
    devices: Sequence[Candidate],
    nodes: Sequence[JSON],
) -> Iterator[ProposedChange]:
    """Propose what would make devices pass the selectors of a request."""
    editor = _SelectorEditor(problem.claim, inspection, nodes)
    for selector in selectors:
        yield from editor.presence_checks(selector, devices)
        yield from editor.other_domains(selector, devices)
    for conjuncts, blocked in _failing_conjuncts(selectors, devices):
        if len(conjuncts) == 1:
            yield from editor.other_constants(conjuncts[0], blocked)
        else:
            yield from editor.other_constants_together(conjuncts, blocked)
        yield editor.without(conjuncts, len(blocked))


def _failing_conjuncts(
    selectors: Sequence[InspectedSelector], devices: Sequence[Candidate]
) -> list[tuple[_FailingConjuncts, list[Candidate]]]:
    """Return the sets of conjuncts that are false for the same devices, the smallest and most frequent first."""
    sets: dict[frozenset[_ConjunctKey], tuple[_FailingConjuncts, list[Candidate]]] = {}
    for device in devices:
        conjuncts = tuple(
            _FailingConjunct(selector, conjunct)
            for selector in selectors
            for conjunct in _conjuncts_failing_on(selector, device)
        )
        if any(
            field.path == _DRIVER for failing in conjuncts for field in failing.conjunct.fields(device.content.view)
        ):
            continue  # a device of another driver is prepared in another way: no advice to take it
        if 0 < len(conjuncts) <= _MAX_CONJUNCTS:
            sets.setdefault(frozenset(failing.key for failing in conjuncts), (conjuncts, []))[1].append(device)
    return sorted(sets.values(), key=lambda entry: (len(entry[0]), -len(entry[1])))[:_MAX_CONJUNCT_SETS]


def _conjuncts_failing_on(selector: InspectedSelector, device: Candidate) -> list[Conjunct]:
    try:
        return [conjunct for conjunct, holds in selector.verdicts(device.content) if not holds]
    except cel.CelCompileError:
        return []


def _edit_for(device: Candidate, failing: _FailingConjunct, text: str) -> Edit | None:
    """Return the edit after which a conjunct compares with the value that a device has; None if there is none."""
    edits = (compared_with(text, failing.conjunct, field.value) for field in failing.values_of(device))
    return next(filter(None, edits), None)


def _constant_order(value: Any) -> Any:
    """Order larger quantities first, because a request for 80Gi is closer to 40Gi than to 16Gi."""
    return (0, -value.value) if isinstance(value, Quantity) else (1, 0)


@dataclass(frozen=True, slots=True)
class _SelectorEditor:
    """Proposes changes to the selectors of one request."""

    claim: JSON
    inspection: RequestInspection
    nodes: Sequence[JSON]

    def presence_checks(self, selector: InspectedSelector, devices: Sequence[Candidate]) -> Iterator[ProposedChange]:
        """Propose `has(x) && conjunct` for a conjunct that fails if x does not exist."""
        guards: dict[int, tuple[Conjunct, str]] = {}
        for device in devices:
            for conjunct in _conjuncts_failing_on(selector, device):
                missing = [field.path for field in conjunct.fields(device.content.view) if field.missing]
                if missing and conjunct.offset not in guards and conjunct.holds(device.content.view) is None:
                    guards[conjunct.offset] = conjunct, " && ".join(f"has({path})" for path in missing)
        text = selector.text
        for conjunct, guard in guards.values():
            guarded = f"({guard} && {text[conjunct.offset : conjunct.end]})"
            edited = f"{text[: conjunct.offset]}{guarded}{text[conjunct.end :]}"
            description = f"{selector.location}: check first that the attribute exists: {guard} && {conjunct.text}"
            key = _FailingConjunct(selector, conjunct).key
            yield replace(self.propose(ChangeSize.GUARD, description, {selector: edited}), parts=frozenset({key}))

    def other_domains(self, selector: InspectedSelector, devices: Sequence[Candidate]) -> Iterator[ProposedChange]:
        """Propose the domain under which devices have the field that a conjunct reads under another one."""
        text, seen = selector.text, set()
        for device in devices:
            for conjunct in _conjuncts_failing_on(selector, device):
                written = text[conjunct.offset : conjunct.end]
                for field in conjunct.fields(device.content.view):
                    if not field.instead or field.path not in written or (conjunct.offset, field.instead) in seen:
                        continue
                    seen.add((conjunct.offset, field.instead))
                    edited = written.replace(field.path, field.instead)
                    after = f"{text[: conjunct.offset]}{edited}{text[conjunct.end :]}"
                    description = f"{selector.location}: {field.instead} instead of {field.path}"
                    key = _FailingConjunct(selector, conjunct).key
                    yield replace(
                        self.propose(ChangeSize.DOMAIN, description, {selector: after}), parts=frozenset({key})
                    )

    def other_constants(self, failing: _FailingConjunct, blocked: Sequence[Candidate]) -> Iterator[ProposedChange]:
        """Propose the values that devices have in place of the constant in the conjunct."""
        values: Counter[Any] = Counter()
        raw: dict[str, Any] = {}
        for field in (field for device in blocked for field in failing.values_of(device)):
            values[field.text] += 1
            raw[field.text] = field.value
        ordered = sorted(values.items(), key=lambda item: (_constant_order(raw[item[0]]), -item[1]))
        for text, _ in ordered[:_MAX_CONSTANTS]:
            edit = compared_with(failing.selector.text, failing.conjunct, raw[text])
            if edit is not None:
                description = f"{failing.selector.location}: {edit.text}"
                change = self.propose(ChangeSize.CONSTANT, description, {failing.selector: edit.expression})
                yield replace(
                    change,
                    family=f"{change.field} {failing.conjunct.offset}",
                    name=edit.after,
                    parts=frozenset({failing.key}),
                )

    def other_constants_together(
        self, conjuncts: _FailingConjuncts, blocked: Sequence[Candidate]
    ) -> Iterator[ProposedChange]:
        """Propose the values of one device in place of the constants in several conjuncts.

        A conjunct without such a constant is removed.
        """
        seen: set[str] = set()
        for device in blocked:
            change = self.with_values_of(device, conjuncts)
            if change is not None and change.text not in seen:
                seen.add(change.text)
                yield change
            if len(seen) == _MAX_CONSTANTS:
                return

    def without(self, conjuncts: _FailingConjuncts, count: int) -> ProposedChange:
        """Propose to remove all these conjuncts."""
        texts: dict[InspectedSelector, str] = {}
        for failing in sorted(conjuncts, key=lambda conjunct: -conjunct.conjunct.offset):
            text = texts.get(failing.selector, failing.selector.text)
            texts[failing.selector] = without(text, failing.conjunct).expression
        locations = dict.fromkeys(failing.selector.location for failing in conjuncts)
        descriptions = []
        for location in locations:
            removed = [failing.conjunct.text for failing in conjuncts if failing.selector.location == location]
            descriptions.append(f"{location}: remove {' and '.join(removed)}")
        change = self.propose(ChangeSize.CONJUNCT, "; ".join(descriptions), texts)
        parts = frozenset(failing.key for failing in conjuncts)
        return replace(change, extent=1000 * len(conjuncts) - min(count, 999), parts=parts)

    def with_values_of(self, device: Candidate, conjuncts: _FailingConjuncts) -> ProposedChange | None:
        """Propose what a device has in place of the constants, and to remove the other conjuncts; None if all are."""
        texts: dict[InspectedSelector, str] = {}
        descriptions: dict[str, list[str]] = {}
        removed = 0
        for failing in sorted(conjuncts, key=lambda conjunct: (conjunct.selector.location, -conjunct.conjunct.offset)):
            text = texts.get(failing.selector, failing.selector.text)
            edit = _edit_for(device, failing, text)
            removed += edit is None
            said = edit.text if edit else f"remove {failing.conjunct.text}"
            descriptions.setdefault(failing.selector.location, []).insert(0, said)
            texts[failing.selector] = (edit or without(text, failing.conjunct)).expression
        if removed == len(conjuncts):
            return None
        size = ChangeSize.CONJUNCT if removed else ChangeSize.CONSTANT
        text = "; ".join(f"{location}: {' and '.join(said)}" for location, said in descriptions.items())
        parts = frozenset(failing.key for failing in conjuncts)
        return replace(self.propose(size, text, texts), extent=1000 * removed, parts=parts)

    def propose(self, size: ChangeSize, text: str, texts: Mapping[InspectedSelector, str]) -> ProposedChange:
        """Propose other expressions for selectors."""
        selector, after = next(iter(texts.items()))
        name = self.inspection.request.class_name
        owner = (
            f"DeviceClass {name}" if selector.is_of_class else f"{CLAIM_OBJECT}{display_name(object_key(self.claim))}"
        )
        return ProposedChange(
            ChangeSize.CLASS if any(edited.is_of_class for edited in texts) else size,
            text,
            lambda problem: self._apply(problem, texts),
            self.nodes,
            object=owner,
            field=path_text(self._path(selector)),
            before=selector.text,
            after=after,
        )

    def _apply(self, problem: AllocationProblem, texts: Mapping[InspectedSelector, str]) -> AllocationProblem:
        claim, classes = problem.claim, dict(problem.classes)
        name = self.inspection.request.class_name
        for selector, text in texts.items():
            if selector.is_of_class:
                classes[name] = with_value(classes[name], self._path(selector), text)
            else:
                claim = with_value(claim, self._path(selector), text)
        if classes != problem.classes:
            return problem.with_changes(claims=(*problem.claims[:-1], claim), classes=classes)
        return problem.with_changes(claims=(*problem.claims[:-1], claim))

    def _path(self, selector: InspectedSelector) -> ObjectPath:
        start: ObjectPath = (
            ("spec",) if selector.is_of_class else request_path(self.claim, self.inspection.request.reference)
        )
        return (*start, "selectors", selector.number, "cel", "expression")
