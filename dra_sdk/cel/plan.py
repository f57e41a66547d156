"""From a checked tree to nested functions that evaluate it and count what that costs.

An expression is planned once and evaluated for thousands of devices, so that everything that can be decided from types
and constants is decided here. The cost counted is the one that Kubernetes' scheduler counts (cel-go 0.26,
interpreter/runtimecost.go): constants and logical operators are free, each name and each selection costs 1, and
functions have their price. After an error that `||` absorbs, less may be counted than there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.cel import access, calls, control
from dra_sdk.cel.checker import Checked
from dra_sdk.cel.cost import NEW_LIST, NEW_MAP
from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.frame import Constant, Frame, Step
from dra_sdk.cel.library.conversions import FOLDED
from dra_sdk.cel.library.strings import pattern
from dra_sdk.cel.syntax import Bind, Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select
from dra_sdk.cel.types import CIDR, IP, QUANTITY, SEMVER, Kind, Type
from dra_sdk.cel.values import MISSING, EvaluationError, Optional, find, type_of

_SEARCHES: Final = frozenset({"matches", "find", "findAll"})
_INDICES: Final = frozenset({"_[_]", "_[?_]", "_?._"})
#: Types of values that are worth making once.
_MADE_ONCE: Final = frozenset({QUANTITY, SEMVER, IP, CIDR})


@dataclass(frozen=True, slots=True)
class Program:
    """A planned expression; `variables` is how many local variables it has, the device included."""

    run: Step
    variables: int


def plan(checked: Checked) -> Program:
    """The program of an expression; CelCompileError if a constant part of it cannot be computed."""
    planner = _Planner(checked)
    run = planner.step(checked.tree)
    return Program(run, planner.slots)


class _Planner:
    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._scope: dict[str, int] = {"device": 0}
        self.slots = 1
        self._steps: dict[type[Node], Callable[[Any], Step]] = {
            Literal: lambda node: Constant(node.value),
            Ident: self._name,
            Select: self._name,
            Call: self._call,
            ListNode: self._list,
            MapNode: self._map,
            Bind: self._bind,
            Fold: self._fold,
        }

    def step(self, node: Node) -> Step:
        """How to evaluate one expression."""
        return self._steps[type(node)](node)

    def _constant(self, node: Node, compute: Callable[[], Any]) -> Constant:
        """A value computed once; CelCompileError, at a node, if there is none."""
        try:
            return Constant(compute())
        except EvaluationError as error:
            raise CelCompileError.at(self._checked.source, str(error), node.offset) from None

    # Names, selections and indices: Kubernetes resolves a whole chain of them as one "attribute".

    def _name(self, node: Node) -> Step:
        if node in self._checked.named_types:
            return Constant(self._checked.named_types[node])
        return self._chain(node, own=1)

    def _chain(self, node: Node, own: int) -> Step:
        """`device.a["b"].c`, as few steps as possible; `own` is what it costs besides its selections."""
        links: list[Select | Call] = []
        while (link := _link(node)) is not None and node not in self._checked.named_types:
            links.append(link)
            node = link.children()[0]
        base, own = self._base(node, own)
        keys: list[str] = []
        for each in reversed(links):
            key = self._key(each)
            if isinstance(key, str) and _is_plain(each):
                keys.append(key)
            else:
                base, own, keys = self._linked(access.chain(base, own, keys), each, key), 0, []
        return access.chain(base, own, keys)

    def _base(self, node: Node, own: int) -> tuple[Step | int, int]:
        """Where a chain starts: the slot of a variable, or a step; and what the chain costs besides its links."""
        if isinstance(node, Ident) and node not in self._checked.named_types:
            return self._scope[node.name], own
        if isinstance(node, Call) and node.function == "_?_:_":
            return self._conditional(node), 0
        return self.step(node), own

    def _key(self, link: Select | Call) -> str | Step:
        """The text that a link selects by, or the step that computes its key."""
        if isinstance(link, Select):
            return link.name
        step = self._part(link.args[1])
        return step.value if isinstance(step, Constant) and isinstance(step.value, str) else step

    def _part(self, node: Node) -> Step:
        """A part of a larger chain, which pays for it."""
        is_test = isinstance(node, Select) and node.test
        if is_test or node in self._checked.named_types or not (isinstance(node, Ident) or _link(node)):
            return self.step(node)
        return self._chain(node, own=0)

    def _linked(self, base: Step, link: Select | Call, key: str | Step) -> Step:
        if isinstance(link, Select):
            return access.tested(base, link.name)
        step = Constant(key) if isinstance(key, str) else key
        return access.indexed(base, step) if link.function == "_[_]" else access.optional(base, step)

    # Calls.

    def _call(self, node: Call) -> Step:
        if node.function in _INDICES:
            return self._chain(node, own=1)
        if node.function == "_?_:_":
            return self._conditional(node)
        steps = [self.step(each) for each in node.operands()]
        if node.function in {"_&&_", "_||_"}:
            return control.logical(*steps, decisive=node.function == "_||_")
        if node.function in {"or", "orValue"}:
            return control.fallback(*steps, unwrap=node.function == "orValue")
        if node.function == "@not_strictly_false":
            return control.not_strictly_false(*steps)
        return self._function(node, steps)

    def _conditional(self, node: Call) -> Step:
        return control.conditional(self.step(node.args[0]), self._part(node.args[1]), self._part(node.args[2]))

    def _function(self, node: Call, steps: list[Step]) -> Step:
        overloads = self._checked.overloads[node]
        first = overloads[0]
        exact = len(overloads) == 1 and all(map(self._is_sure, node.operands()))
        dispatch = calls.direct(first) if exact else calls.dynamic(overloads)
        constants = [each.value for each in steps if isinstance(each, Constant)]
        if len(constants) == len(steps):
            if node.function in FOLDED:
                return self._constant(node, lambda: dispatch(constants)[0])
            if first.result in _MADE_ONCE:
                return calls.precomputed(dispatch, constants)
        if constants and (special := self._with_constant(node, steps)):
            return special
        if exact and isinstance(first.price.actual, int):
            return calls.fixed(first.run, first.price.actual, steps)
        return calls.dispatched(dispatch, steps)

    def _with_constant(self, node: Call, steps: list[Step]) -> Step | None:
        """Membership in a constant list has a step of its own; a constant pattern is checked now."""
        last = steps[1] if len(steps) > 1 else None
        if not isinstance(last, Constant):
            return None
        text = last.value
        if node.function in _SEARCHES and isinstance(text, str):
            self._constant(node.operands()[1], lambda: pattern(text))
        return calls.member(steps[0], text) if node.function == "@in" and calls.is_set(text) else None

    def _is_sure(self, node: Node) -> bool:
        """Whether the values of an expression are of its static type, so that nobody need look at them again.

        Nothing that comes out of a `dyn` is: the checker may have concluded a type from how it is used.
        """
        if isinstance(node, Call):
            results = {each.result for each in self._checked.overloads[node]}  # of several, the values decide
            return len(results) == 1 and all(map(_is_exact, results))
        if isinstance(node, ListNode | MapNode):
            return not node.optional and all(map(self._is_sure, node.children()))
        return isinstance(node, Literal) or (isinstance(node, Select) and self._is_device(node))

    def _is_device(self, node: Node) -> bool:
        """Whether it is a field of the device, or a capacity of it."""
        name = ""
        while (link := _link(node)) is not None:
            name, node = link.name if isinstance(link, Select) else "", link.children()[0]
        return isinstance(node, Ident) and self._scope.get(node.name) == 0 and name != "attributes"

    # Literals of lists and maps.

    def _list(self, node: ListNode) -> Step:
        steps = [self.step(each) for each in node.items]
        optional = node.optional

        def run(frame: Frame) -> list[Any]:
            frame.cost += NEW_LIST
            values = [each(frame) for each in steps]
            if not optional:
                return values
            kept = [_content(each) if index in optional else each for index, each in enumerate(values)]
            return [each for each in kept if each is not MISSING]

        return self._unless_constant(node, run, steps)

    def _map(self, node: MapNode) -> Step:
        entries = [(self.step(key), self.step(value)) for key, value in node.entries]
        optional = node.optional

        def run(frame: Frame) -> dict[Any, Any]:
            frame.cost += NEW_MAP
            made: dict[Any, Any] = {}
            for index, (key_step, value_step) in enumerate(entries):
                key, value = _map_key(key_step(frame), made), value_step(frame)
                value = _content(value) if index in optional else value
                if value is not MISSING:
                    made[key] = value
            return made

        return self._unless_constant(node, run, [each for entry in entries for each in entry])

    def _unless_constant(self, node: Node, run: Step, steps: Sequence[Step]) -> Step:
        if all(isinstance(each, Constant) for each in steps):
            return self._constant(node, lambda: run(Frame([], 0)))
        return run

    # Local variables and loops.

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _within(self, variables: Mapping[str, int], node: Node) -> Step:
        before = self._scope
        self._scope = {**before, **variables}
        step = self.step(node)
        self._scope = before
        return step

    def _bind(self, node: Bind) -> Step:
        value, slot = self.step(node.value), self._slot()
        return control.bound(slot, value, self._within({node.name: slot}, node.result))

    def _fold(self, node: Fold) -> Step:
        slots = self._slot(), self._slot(), self._slot()
        loop = control.Loop(self.step(node.items), self.step(node.start), slots, pairs=bool(node.variable2))
        outer = {node.accumulator: slots[0]}
        inner = {**outer, node.variable: slots[1], **({node.variable2: slots[2]} if node.variable2 else {})}
        condition, step = self._within(inner, node.condition), self._within(inner, node.step)
        return loop.over(condition, step, self._within(outer, node.result))


def _link(node: Node) -> Select | Call | None:
    """The node itself if it selects something from what is before it."""
    if isinstance(node, Select) or (isinstance(node, Call) and node.function in _INDICES):
        return node
    return None


def _is_plain(link: Select | Call) -> bool:
    """Whether a link is `.name` or `["name"]`, without a test or a question mark."""
    return not link.test if isinstance(link, Select) else link.function == "_[_]"


def _is_exact(kind: Type) -> bool:
    """Whether a value of this declared type needs no look at run time."""
    return kind.kind not in {Kind.DYN, Kind.ANY, Kind.NULL, Kind.PARAM} and all(map(_is_exact, kind.params))


def _content(value: Any) -> Any:
    if not isinstance(value, Optional):
        raise EvaluationError(f"cannot initialize optional entry from non-optional value of type {type_of(value).name}")
    return value.value


def _map_key(key: Any, made: Mapping[Any, Any]) -> Any:
    if not isinstance(key, str | int | float | bytes):
        raise EvaluationError(f"unsupported key type: {type_of(key).name}")
    if find(made, key) is not MISSING:
        raise EvaluationError(f"repeated key: {key!r}")
    return key
