"""Random CEL expressions about a device: valid ones with every function, too expensive ones, and invalid ones."""

from __future__ import annotations

import random
from typing import Final

A: Final = 'device.attributes["d.example.com"]'
#: What an expression of a type is made of: leaves, and patterns with the types of what goes into them.
LEAVES: Final = {
    "s": (f"{A}.s", "'abc'", "''", "device.driver", "'é'", "string(1)", "'2021-01-01T00:00:00Z'", "'5s'", "'%d%s'"),
    "i": (f"{A}.i", "1", "0", "-3", "9223372036854775807", f"size({A})"),
    "l": (f"{A}.ls", "['a', 'b']", "[1, 2, 3]", "[]", "'a,b'.split(',')", "[[1], [2]]"),
    "m": (A, "device.attributes", "device.capacity", "{'a': 1}", "{}"),
    "q": ('device.capacity["d.example.com"].mem', "quantity('1Gi')"),
    "v": (f"{A}.v", "semver('1.2.3')", "semver('v1', true)"),
    "b": (f"{A}.b", "true", "device.allowMultipleAllocations"),
    "t": ("timestamp('2020-02-29T12:30:15.5+02:00')", "timestamp(0)", "timestamp('9999-12-31T23:59:59Z')"),
    "d": ("duration('1h30m')", "duration('-1.5s')", "duration('9223372036854775807ns')"),
    "u": ("url('https://a.example.com:80/b%20c?k=v&k=w')", "url('/x')"),
    "f": ("format.dns1123Label()", "format.named('uuid').value()", "format.qualifiedName()"),
}
PATTERNS: Final = {
    "s": "{s}.replace({s}, {s})|{s}.lowerAscii()|{s}.upperAscii()|{s}.substring({i})|{s}.trim()|{s}.charAt({i})"
    "|{s}.find({s})|{l}.join({s})|({s} + {s})|({b} ? {s} : {s})|string({a})|{s}.reverse()"
    "|strings.quote({s})|'%s %d'.format([{s}, {i}])|'%s'.format([{a}])|{s}.format([{a}])|'%x%X'.format([{s}, {i}])"
    "|'%f'.format([double({a})])|{u}.getHost()|{u}.getEscapedPath()|{u}.getScheme()|string({t})|string({d})",
    "i": "({i} + {i})|({i} * {i})|({i} / {i})|({i} % {i})|-{i}|int({a})|size({l})|{s}.indexOf({s})|{l}.indexOf({a})"
    "|{l}.sum()|{l}.max()|{q}.asInteger()|{q}.sign()|{v}.major()|{v}.compareTo({v})|cel.bind(y, {i}, y * y)"
    "|{t}.getFullYear()|{t}.getDayOfYear({s})|{t}.getHours('+05:30')|{d}.getMinutes()|{d}.getMilliseconds()|int({t})",
    "l": "{l}.map(x, {a})|{l}.filter(x, {b})|({l} + {l})|[{a}, {a}]|{s}.split({s})|{l}.slice({i}, {i})|{l}.flatten()"
    "|{l}.distinct()|{l}.sort()|{l}.sortBy(e, e)|lists.range({i})|{s}.findAll({s})|{m}.map(k, k)"
    "|{l}.transformList(i, v, {a})",
    "m": "{{{s}: {a}}}|{m}.transformMap(k, v, {a})",
    "q": "quantity({s})|{q}.add({q})|{q}.sub({i})",
    "v": "semver({s})|semver({s}, {b})",
    "t": "timestamp({s})|timestamp({i})|({t} + {d})|({t} - {d})|[{t}, {t}].max()",
    "d": "duration({s})|({d} + {d})|({d} - {d})|({t} - {t})|[{d}, {d}].sum()",
    "u": "url({s})",
    "f": "format.named({s}).value()",
    "b": "({s} == {s})|({a} == {a})|({i} < {i})|({a} in {l})|({a} in {m})|{s}.startsWith({s})|{s}.endsWith({s})"
    "|{s}.contains({s})|{s}.matches({s})|matches({s}, {s})|{a}.includes({a})|{l}.includes({a})|{l}.all(x, {b})"
    "|{l}.exists(x, x == {a})|{l}.exists_one(x, {b})|{m}.all(k, {b})|{l}.all(i, v, v != i)|({b} && {b})|({b} || {b})"
    "|!{b}|({b} ? {b} : {b})|has(" + A + ".s)|{l}.isSorted()|sets.contains({l}, {l})|sets.intersects({l}, {l})"
    "|{q}.isLessThan({q})|{q}.isInteger()|isQuantity({s})|{v}.isGreaterThan({v})|isSemver({s})|isIP({s})|isCIDR({s})"
    "|ip({s}).family() == {i}|cidr({s}).containsIP({s})|optional.of({a}).hasValue()|" + A + ".?z.hasValue()|bool({s})"
    "|({t} < {t})|({d} >= {d})|({t} == {a})|isURL({s})|({u} == {u})|{f}.validate({s}).hasValue()"
    "|({f} == {f})|[{t}, {t}].isSorted()|({s} in {u}.getQuery())",
}
_NOISE: Final = "()[]{}.,'\"?:!&|=<>+-*/%01axé \n"
_DEPTHS: Final = (1, 1, 2, 2, 3)
_BROKEN: Final = 0.25
_NESTED: Final = 0.08


def expression(draw: random.Random) -> str:
    """Returns an expression of type bool. One in four is damaged, and one in twelve has nested loops."""
    made = _drawn(draw, "b", draw.choice(_DEPTHS))
    if draw.random() < _NESTED:
        for name in "pqr"[: draw.randint(1, 3)]:
            made = f"{A}.exists({name}, {A}.exists({name}{name}, {name} == {name}{name} && {made}))"
    if draw.random() < _BROKEN:
        place = draw.randrange(len(made))
        made = made[:place] + draw.choice(["", draw.choice(_NOISE)]) + made[place + 1 :]
    return made


def _drawn(draw: random.Random, kind: str, depth: int) -> str:
    if kind == "a":
        kind = draw.choice("silqvbmtdu")
    if not depth:
        return draw.choice(LEAVES[kind])
    pattern = draw.choice(_ways(kind))
    parts = {each: _drawn(draw, each, depth - 1) for each in "silmqvbatduf" if f"{{{each}}}" in pattern}
    return pattern.format(**parts)


def _ways(kind: str) -> list[str]:
    """Returns the patterns of a type, which `||` does not separate."""
    return [each.replace("\0", "||") for each in PATTERNS[kind].replace("||", "\0").split("|")]
