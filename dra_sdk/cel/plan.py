"""Turning a checked tree into nested functions that evaluate it and count what that costs.

An expression is planned once and evaluated for thousands of devices, so everything that follows from types and
constants is decided here. The cost is the one that Kubernetes' scheduler counts: constants and logical operators are
free, each name and each selection costs 1, and each function has a cost of its own. After an error that `||` absorbs,
the count may be lower than Kubernetes'. Source: cel-go, interpreter/planner.go and runtimecost.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.cel import frame as frames
from dra_sdk.cel import steps
from dra_sdk.cel.checker import Checked
from dra_sdk.cel.comparison import MAP_KEYS
from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.frame import Constant, EvaluationFrame, Step
from dra_sdk.cel.library.overloads import NEW_LIST, NEW_MAP
from dra_sdk.cel.library.standard import FOLDED
from dra_sdk.cel.library.strings import pattern
from dra_sdk.cel.syntax import Bind, CallNode, Comprehension, Expr, Ident, ListNode, Literal, MapNode, Scoped, Select
from dra_sdk.cel.types import CIDR, DEVICE, IP, QUANTITY, SEMVER, Type, TypeKind
from dra_sdk.cel.values import MISSING, EvaluationError, Optional, type_of

INDICES: Final = frozenset({"_[_]", "_[?_]", "_?._"})
"""The functions that select something from their first operand, as `a.b` does."""
_SEARCHES: Final = frozenset({"matches", "find", "findAll"})
_TIMES: Final = frozenset({"timestamp", "duration"})
#: Types of values that are worth making once.
_MADE_ONCE: Final = frozenset({QUANTITY, SEMVER, IP, CIDR})
_INEXACT: Final = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.NULL, TypeKind.PARAM})
#: The steps that the constant parts of an expression may take while it is compiled.
_MAX_STEPS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Program:
    """A planned expression.

    run: evaluates it.
    variables: how many variables it has, the device included.
    """

    run: Step
    variables: int


def plan(checked: Checked) -> Program:
    """Return the program of an expression; CelCompileError if a constant part of it cannot be computed."""
    planner = _Planner(checked)
    run = planner.step(checked.tree)
    return Program(run, planner.slots)


class _Planner(Scoped[int]):
    def __init__(self, checked: Checked) -> None:
        self._variables = {checked.environment.variable: 0}
        self._checked = checked
        self.slots = 1
        self._steps: dict[type[Expr], Callable[[Any], Step]] = {
            Literal: lambda node: Constant(node.value),
            Ident: self._name,
            Select: self._name,
            CallNode: self._call,
            ListNode: self._list,
            MapNode: self._map,
            Bind: self._bind,
            Comprehension: self._comprehension,
        }

    def step(self, node: Expr) -> Step:
        """Return the step of one node."""
        return self._steps[type(node)](node)

    def _constant(self, node: Expr, compute: Callable[[], Any]) -> Constant:
        """Compute a value once; CelCompileError, at a node, if there is none."""
        try:
            return Constant(compute())
        except EvaluationError as error:
            raise CelCompileError.at(self._checked.source, str(error), node.offset) from None

    # Names, selections and indices: Kubernetes resolves a whole chain of them as one "attribute".

    def _name(self, node: Expr) -> Step:
        if node in self._checked.named_types:
            return Constant(self._checked.named_types[node])
        return self._chain(node, own=1)

    def _chain(self, node: Expr, own: int) -> Step:
        """Plan `device.a["b"].c` with as few steps as possible; it costs `own` in addition to its selections."""
        links: list[Select | CallNode] = []
        while (link := _link(node)) is not None and node not in self._checked.named_types:
            links.append(link)
            node = link.children()[0]
        base, own = self._base(node, own)
        keys: list[str] = []
        for link in reversed(links):
            key = self._key(link)
            if isinstance(key, str) and _is_plain(link):
                keys.append(key)
            else:
                base, own, keys = self._linked(frames.chain(base, own, keys), link, key), 0, []
        return frames.chain(base, own, keys)

    def _base(self, node: Expr, own: int) -> tuple[Step | int, int]:
        """Return where a chain starts, the slot of a variable or a step, and its cost without its selections."""
        if isinstance(node, Ident) and node not in self._checked.named_types:
            return 0 if node.root else self._variables[node.name], own
        if isinstance(node, CallNode) and node.function == "_?_:_":
            return self._conditional(node), 0
        return self.step(node), own

    def _key(self, link: Select | CallNode) -> str | Step:
        """Return the text that a link selects by, or the step that computes it."""
        if isinstance(link, Select):
            return link.name
        step = self._part(link.args[1])
        return step.value if isinstance(step, Constant) and isinstance(step.value, str) else step

    def _part(self, node: Expr) -> Step:
        """Plan a part of a larger chain, which pays for it."""
        is_test = isinstance(node, Select) and node.test
        if is_test or node in self._checked.named_types or not (isinstance(node, Ident) or _link(node)):
            return self.step(node)
        return self._chain(node, own=0)

    def _linked(self, base: Step, link: Select | CallNode, key: str | Step) -> Step:
        if isinstance(link, Select):
            return frames.presence(base, link.name)
        step = Constant(key) if isinstance(key, str) else key
        return frames.indexed(base, step) if link.function == "_[_]" else frames.optionally_indexed(base, step)

    # Calls.

    def _call(self, node: CallNode) -> Step:
        function = node.function
        if function in INDICES:
            return self._chain(node, own=1)
        if function == "_?_:_":
            return self._conditional(node)
        operands: list[Step] = []
        for operand in node.operands():
            operands.append(self._steps[type(operand)](operand))  # noqa: PERF401 (a comprehension costs a stack frame)
        return self._operator(node, operands) or self._function(node, operands)

    def _operator(self, node: CallNode, operands: list[Step]) -> Step | None:
        """Plan a call that does not simply evaluate all of its operands; None if this is none."""
        function = node.function
        if function in {"_&&_", "_||_"}:
            return steps.logical(*operands, decisive=function == "_||_")
        if function in {"_==_", "_!=_"}:
            (overload,) = self._checked.overloads[node]
            return steps.equality(overload, *operands, negated=function == "_!=_")
        if function in {"or", "orValue"}:
            return steps.fallback(*operands, unwrap=function == "orValue")
        return steps.not_strictly_false(*operands) if function == "@not_strictly_false" else None

    def _conditional(self, node: CallNode) -> Step:
        condition, yes, no = node.args
        return steps.conditional(self._steps[type(condition)](condition), self._part(yes), self._part(no))

    def _function(self, node: CallNode, operands: list[Step]) -> Step:
        overloads = self._checked.overloads[node]
        first = overloads[0]
        exact = len(overloads) == 1 and all(map(self._is_sure, node.operands()))
        dispatch = steps.dispatch_to(first) if exact else steps.dispatch_by_values(overloads)
        constants = [operand.value for operand in operands if isinstance(operand, Constant)]
        self._check_literals(node, operands)
        if len(constants) == len(operands):
            frame = EvaluationFrame([], _MAX_STEPS)
            if node.function in FOLDED:
                place = node.args[0] if node.function in _TIMES else node
                return self._constant(place, lambda: dispatch(frame, constants)[0])
            if first.result in _MADE_ONCE:
                return steps.constant_call(dispatch, frame, constants)
        if node.function == "@in" and isinstance(operands[1], Constant) and steps.is_set(operands[1].value):
            return steps.membership(operands[0], operands[1].value)
        if exact and isinstance(first.cost.actual, int) and not first.counted:
            return steps.fixed_call(first.run, first.cost.actual, operands)
        return steps.call(dispatch, operands)

    def _check_literals(self, node: CallNode, operands: list[Step]) -> None:
        """Check constant patterns, as Kubernetes does at compile time, and the text of `matches(text, pattern)` too."""
        if node.function not in _SEARCHES:
            return
        places = [(operands[1], node.operands()[1])]
        if node.function == "matches" and node.target is None and isinstance(node.args[0], Literal):
            places.insert(0, (operands[0], node.args[0]))
        for step, place in places:
            if isinstance(step, Constant) and isinstance(step.value, str):
                self._check_pattern(step.value, place)

    def _check_pattern(self, text: str, place: Expr) -> None:
        self._constant(place, lambda: pattern(text))

    def _is_sure(self, node: Expr) -> bool:
        """Return whether the values of a node certainly are of its static type.

        Nothing that comes out of a `dyn` is: the checker may have inferred its type from how it is used.
        """
        if isinstance(node, CallNode):
            results = {overload.result for overload in self._checked.overloads[node]}  # of several, the values decide
            return len(results) == 1 and all(map(_is_exact, results))
        if isinstance(node, ListNode | MapNode):
            return not node.optional and all(map(self._is_sure, node.children()))
        return isinstance(node, Literal) or (isinstance(node, Select) and self._is_device(node))

    def _is_device(self, node: Expr) -> bool:
        """Return whether a node is a field or a capacity of the device."""
        name = ""
        while (link := _link(node)) is not None:
            name, node = link.name if isinstance(link, Select) else "", link.children()[0]
        is_device = isinstance(node, Ident) and (node.root or self._variables.get(node.name) == 0)
        return is_device and name != "attributes" and self._checked.environment.kind == DEVICE

    # Literals of lists and maps.

    def _list(self, node: ListNode) -> Step:
        items: list[Step] = []
        for item in node.items:
            items.append(self._steps[type(item)](item))  # noqa: PERF401 (a comprehension costs a stack frame)
        optional = node.optional

        def run(frame: EvaluationFrame) -> list[Any]:
            frame.cost += NEW_LIST
            values = [step(frame) for step in items]
            if not optional:
                return values
            kept = [_content(value) if index in optional else value for index, value in enumerate(values)]
            return [value for value in kept if value is not MISSING]

        return self._unless_constant(node, run, items)

    def _map(self, node: MapNode) -> Step:
        entries: list[tuple[Step, Step]] = []
        for key, value in node.entries:
            entries.append((self._steps[type(key)](key), self._steps[type(value)](value)))
        optional = node.optional

        def run(frame: EvaluationFrame) -> dict[Any, Any]:
            frame.cost += NEW_MAP
            made: dict[Any, Any] = {}
            for index, (key_step, value_step) in enumerate(entries):
                key, value = key_step(frame), value_step(frame)
                value = _content(value) if index in optional else value
                if value is MISSING:
                    made.pop(_map_key(key, made), None)
                else:
                    made[_map_key(key, made)] = value
            return made

        return self._unless_constant(node, run, [step for entry in entries for step in entry])

    def _unless_constant(self, node: Expr, run: Step, parts: Sequence[Step]) -> Step:
        if not all(isinstance(part, Constant) for part in parts):
            return run
        frame = EvaluationFrame([], _MAX_STEPS)
        if isinstance(node, ListNode):
            return self._constant(node, lambda: run(frame))
        try:
            return Constant(run(frame))
        except EvaluationError:
            return run

    # Local variables and loops.

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _bind(self, node: Bind) -> Step:
        value, slot = self._steps[type(node.value)](node.value), self._slot()
        with self._scope({node.name: slot}):
            return steps.bound(slot, value, self._steps[type(node.result)](node.result))

    def _comprehension(self, node: Comprehension) -> Step:
        slots = self._slot(), self._slot(), self._slot()
        start = self.step(node.start)
        if isinstance(node.start, ListNode | MapNode):
            start = steps.fresh(list if isinstance(node.start, ListNode) else dict)
        items = self._steps[type(node.items)](node.items)
        variables = {node.variable: slots[1], **({node.variable2: slots[2]} if node.variable2 else {})}
        with self._scope({node.accumulator: slots[0]}):
            with self._scope(variables):
                condition, step = self.step(node.condition), self._accumulation(node, slots[0])
            result = self.step(node.result)
        return steps.loop(items, start, slots, (condition, step, result), pairs=bool(node.variable2))

    def _accumulation(self, node: Comprehension, slot: int) -> Step:
        """Plan the step of a loop; a list or map that it only adds to grows in place."""
        step = node.step
        if isinstance(step, CallNode) and step.function == "_?_:_" and _grows(node, step.args[1]):
            condition, grown, same = step.args
            return steps.conditional(self.step(condition), self._growth(grown, slot), self._part(same))
        return self._growth(step, slot) if _grows(node, step) else self._steps[type(step)](step)

    def _growth(self, node: Expr, slot: int) -> Step:
        assert isinstance(node, CallNode)
        if isinstance(node.args[1], ListNode) and node.function == "_+_":
            return steps.append(slot, self.step(node.args[1].items[0]))
        return steps.insert(slot, [self.step(argument) for argument in node.args[1:]])


def _grows(loop: Comprehension, node: Expr) -> bool:
    """Return whether a node adds an item or an entry to the accumulator of a loop."""
    if not isinstance(node, CallNode) or not isinstance(node.args[0], Ident) or node.args[0].name != loop.accumulator:
        return False
    return node.function == "cel.@mapInsert" or (node.function == "_+_" and isinstance(node.args[1], ListNode))


def _link(node: Expr) -> Select | CallNode | None:
    """Return the node itself if it selects something from its first operand."""
    if isinstance(node, Select) or (isinstance(node, CallNode) and node.function in INDICES):
        return node
    return None


def _is_plain(link: Select | CallNode) -> bool:
    """Return whether a link is `.name` or `["name"]`, without `has` and without a question mark."""
    return not link.test if isinstance(link, Select) else link.function == "_[_]"


def _is_exact(kind: Type) -> bool:
    """Return whether a value of this declared type needs no check when the expression runs."""
    return kind.kind not in _INEXACT and all(map(_is_exact, kind.params))


def _content(value: Any) -> Any:
    if not isinstance(value, Optional):
        raise EvaluationError(f"cannot initialize optional entry from non-optional value of type {type_of(value).name}")
    return value.value


def _map_key(key: Any, made: Mapping[Any, Any]) -> Any:
    """Return a key for a map; a key that the map has already is replaced, as in Kubernetes."""
    if isinstance(key, str):
        return key
    if not isinstance(key, MAP_KEYS):
        raise EvaluationError(f"unsupported key type: {type_of(key).name}")
    if key in made:
        known = next(other for other in made if other == key)
        if type(known) is not type(key):
            kinds = f"{type_of(known)} and {type_of(key)}"
            raise EvaluationError(f"this SDK cannot keep keys that are {key!r} as {kinds} in one map; Kubernetes can")
    return key
