"""Random input and almost valid input. A test gets the same input in every run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.counts import count

JSON = Any
Place = tuple[str | int, ...]


def fuzz(examples: int) -> Callable[[Any], Any]:
    """Return the settings of a test with a third of this number of inputs, with all of them if FULL=1."""
    return settings(
        max_examples=count(examples // 3, examples),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def refused(read: Callable[[], object], kind: type[Exception]) -> str:
    """Return the message of the error that `read` raises, empty if there is none. It must be exactly of this class."""
    try:
        read()
    except kind as error:
        if type(error) is not kind:
            raise
        return str(error) or "an error without a message"
    return ""


ODD_TEXTS = [
    "", " ", "\n", "\x00", ".", "..", "/", "a/b", "\ud800", "²", "٣", "ü" * 300, "1e400", "-0",
    "x" * 5000, "1Ki", "null",
]  # fmt: skip
ODD_NUMBERS = [0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 1e308, -0.0]
ODD_VALUES: list[JSON] = [
    None, True, False, *ODD_NUMBERS, *ODD_TEXTS, [], {}, [None], [[]], [{}], {"": None}, {"a": {"b": [1]}}, ["x"] * 40,
]  # fmt: skip

#: Any character that JSON can contain, including unpaired surrogates.
text = st.text(st.characters(), max_size=20)
odd_text = st.sampled_from(ODD_TEXTS)
scalars: SearchStrategy[JSON] = st.one_of(st.sampled_from(ODD_VALUES), text)


def _grown(children: SearchStrategy[JSON]) -> SearchStrategy[JSON]:
    return st.one_of(st.lists(children, max_size=3), st.dictionaries(text, children, max_size=3))


#: Any JSON value of a moderate size.
values: SearchStrategy[JSON] = st.recursive(scalars, _grown, max_leaves=6)
_replacements = st.one_of(*[st.sampled_from(ODD_VALUES)] * 3, values)
_actions = st.sampled_from(["replace", "replace", "replace", "drop", "repeat", "add"])


def damaged(good: JSON) -> SearchStrategy[JSON]:
    """Draw a JSON document of which one or two parts are replaced, left out, repeated or added."""
    places, keys = list(_places(good)), sorted(_keys(good))
    change = st.tuples(st.sampled_from(places), _actions, _replacements, st.one_of(st.sampled_from(keys), text))
    return st.lists(change, min_size=1, max_size=2).map(lambda changes: _changed(good, changes))


def _changed(good: JSON, changes: list[tuple[Place, str, JSON, str]]) -> JSON:
    document = json.loads(json.dumps(good))
    for (*above, key), action, value, new in changes:
        try:
            holder = reduce(getitem, above, document)
            part = holder[key]
        except (LookupError, TypeError):  # the first change removed it
            continue
        if isinstance(holder, str):
            continue
        if action == "drop":
            del holder[key]
        elif action == "add" and isinstance(holder, dict):
            holder[new] = value
        elif action == "repeat" and isinstance(holder, list):
            holder.extend([part] * 40)
        else:
            holder[key] = value
    return document


def _places(document: JSON, above: Place = ()) -> Iterator[Place]:
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield (*above, key)
        yield from _places(value, (*above, key))


def _keys(document: JSON) -> set[str]:
    if isinstance(document, dict):
        return set(document).union(*map(_keys, document.values()))
    return set().union(*map(_keys, document)) if isinstance(document, list) else set()


@st.composite
def noisy(draw: st.DrawFn, good: bytes) -> bytes:
    """Draw bytes of which some are changed, removed, repeated or inserted."""
    content = good
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        to = draw(st.integers(at, min(len(content), at + 20)))
        middle = draw(st.one_of(st.just(b""), st.binary(max_size=8), st.just(content[at:to] * 2)))
        content = content[:at] + middle + content[to:]
    return content


def files(good: JSON) -> SearchStrategy[bytes]:
    """Draw the content of a file: this document in JSON, damaged or not, or something else."""
    whole = json.dumps(good).encode()
    return st.one_of(
        st.binary(max_size=200),
        noisy(whole),
        damaged(good).map(lambda value: json.dumps(value).encode()),
        values.map(lambda value: json.dumps(value).encode()),
    )
