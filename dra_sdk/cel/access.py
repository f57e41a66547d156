"""Selecting from maps, lists and optionals: the steps of `a.b`, `a["b"]`, `a.?b`, `a[?"b"]` and `has(a.b)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from dra_sdk.cel.frame import UNREADY, Frame, Step, read
from dra_sdk.cel.values import MISSING, NONE, EvaluationError, Optional, find, is_number, type_of


def chain(base: Step | int, own: int, keys: Sequence[str]) -> Step:
    """Selections by constant names, one after the other, from a variable (its slot) or from what a step gives.

    Each costs 1, and the chain `own` besides.
    """
    cost = own + len(keys)
    if not isinstance(base, int):
        return _chain_of_step(base, own, keys) if cost else base
    slot = base

    def run(frame: Frame) -> Any:
        frame.cost += cost
        value = frame.variables[slot]
        if type(value) in UNREADY:
            value = read(frame, slot)
        try:
            for key in keys:
                value = value[key] if isinstance(value, dict) else select(value, key)
        except KeyError as error:
            raise EvaluationError(f"no such key: {error.args[0]}") from None
        return value

    return run


def _chain_of_step(base: Step, own: int, keys: Sequence[str]) -> Step:
    def run(frame: Frame) -> Any:
        value = base(frame)
        frame.cost += own
        for key in keys:
            value = select(value, key)
            # What is not there in an optional costs nothing either.
            frame.cost += value is not NONE
        return value

    return run


def indexed(base: Step, key: Step) -> Step:
    """`base[key]`."""

    def run(frame: Frame) -> Any:
        value = base(frame)
        frame.cost += 1
        return select(value, key(frame))

    return run


def optional(base: Step, key: Step) -> Step:
    """`base[?key]`, which costs nothing when there is nothing."""

    def run(frame: Frame) -> Optional:
        found = present(base(frame), key(frame))
        if found is not NONE:
            frame.cost += 1
        return found

    return run


def tested(base: Step, key: str) -> Step:
    """`has(base.key)`."""

    def run(frame: Frame) -> bool:
        return present(base(frame), key) is not NONE

    return run


def select(value: Any, key: Any) -> Any:
    """`value[key]`, where the value may be an optional; EvaluationError if there is nothing."""
    if isinstance(value, Optional):
        return NONE if value.value is MISSING else present(value.value, key)
    if isinstance(value, Mapping):
        return _entry(value, key)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        index = _whole(key)
        if not 0 <= index < len(value):
            raise EvaluationError(f"index out of bounds: {index}")
        return value[index]
    raise EvaluationError(f"no such key: {key}")


def present(value: Any, key: Any) -> Optional:
    """`value[?key]`; a value that holds nothing at all counts as not having the key."""
    if isinstance(value, Optional):
        return NONE if value.value is MISSING else present(value.value, key)
    if isinstance(value, Mapping):
        try:
            return Optional(_entry(value, key))
        except EvaluationError:
            return NONE
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        index = _whole(key)
        return Optional(value[index]) if 0 <= index < len(value) else NONE
    return NONE


def _entry(value: Mapping[Any, Any], key: Any) -> Any:
    if isinstance(key, str):
        try:
            # Not `get`: an unknown domain of a device is an empty map.
            return value[key]
        except KeyError:
            raise EvaluationError(f"no such key: {key}") from None
    found = find(value, key)
    if found is MISSING:
        raise EvaluationError(f"no such key: {key}")
    return found


def _whole(key: Any) -> int:
    if not is_number(key) or not isfinite(key) or key != int(key):
        raise EvaluationError(f"unsupported index type '{type_of(key).name}' in list")
    return int(key)
