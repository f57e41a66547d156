"""Timestamps and durations, read and written as Go's package time does.

Source: cel-go, common/types/timestamp.go and duration.go, with UTC as the default time zone; package time of Go.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dra_sdk.cel.library.overloads import Overload, method
from dra_sdk.cel.library.standard import ORDER, integer, ordered
from dra_sdk.cel.types import BOOL, DURATION, INT, STRING, TIMESTAMP
from dra_sdk.cel.values import INT64, Duration, EvaluationError, Timestamp

_SECOND: Final = 10**9
_DAY: Final = 86_400
_MIN_SECONDS: Final = -62_135_596_800
_MAX_SECONDS: Final = 253_402_300_799
_EPOCH: Final = date(1970, 1, 1).toordinal()
#: The calendar repeats after 400 years; Python's ends where a time zone can lead out of the years 1 to 9999.
_CYCLE: Final = 400 * 365 + 97
_MAX_OFFSET_HOURS: Final = 24
_SIXTY: Final = 60
_DIGITS: Final = 9
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_DURATION_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND,
}  # fmt: skip
_OFFSET: Final = re.compile(r"([+-]?\d+):([+-]?\d+)", re.ASCII)


def _checked_timestamp(nanoseconds: int, offset: int = 0) -> Timestamp:
    if not _MIN_SECONDS <= nanoseconds // _SECOND <= _MAX_SECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanoseconds, offset)


def _timestamp(value: Any) -> Timestamp:
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, int):
        return _checked_timestamp(value * _SECOND)
    match = _TIMESTAMP.fullmatch(value)
    if match is None:
        raise _not("string", TIMESTAMP.name)
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    offset_hours, offset_minutes = int(match[9] or 0), int(match[10] or 0)
    valid = (
        1 <= month <= 12  # noqa: PLR2004 (months)
        and 1 <= day <= days_of_month(year, month)
        and hour < 24  # noqa: PLR2004 (hours)
        and max(minute, second) < _SIXTY
        and offset_hours <= _MAX_OFFSET_HOURS
        and offset_minutes < _SIXTY
    )
    if not valid or not year:
        raise _not("string", TIMESTAMP.name)
    offset = (offset_hours * 3600 + offset_minutes * 60) * (-1 if match[8] == "-" else 1)
    seconds = (date(year, month, day).toordinal() - _EPOCH) * _DAY + hour * 3600 + minute * 60 + second - offset
    fraction = int((match[7] or "")[:_DIGITS].ljust(_DIGITS, "0"))
    return _checked_timestamp(seconds * _SECOND + fraction, offset)


def days_of_month(year: int, month: int) -> int:
    """Return how many days a month has, in any year."""
    return monthrange(2000 if isleap(year) else 2001, month)[1]


def _duration(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    sign, rest = (value[0], value[1:]) if value[:1] in {"+", "-"} else ("", value)
    if rest == "0":
        return Duration(0)
    total, end = 0, 0
    while end < len(rest):
        match = _DURATION_PART.match(rest, end)
        if match is None or not (match[1] or match[2]):
            raise _not("string", DURATION.name)
        unit, fraction = _UNITS[match[3]], match[2] or ""
        # Go adds the fraction as a double.
        part = int(float(int(fraction)) * (float(unit) / float(10 ** len(fraction)))) if fraction else 0
        total, end = total + int(match[1] or 0) * unit + part, match.end()
    limit = INT64 + (sign == "-")
    if not end or total > limit:
        raise _not("string", DURATION.name)
    return Duration(-total if sign == "-" else total)


def _not(kind: str, wanted: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{kind}' to '{wanted}'")


def text_of_timestamp(value: Timestamp) -> str:
    """Return a timestamp as RFC 3339 has it, with as many digits of the second as needed."""
    day, seconds = divmod(value.nanoseconds // _SECOND + value.offset, _DAY)
    year, shown = _date(day)
    fraction = f".{value.nanoseconds % _SECOND:09}".rstrip("0").rstrip(".")
    sign, offset = "-" if value.offset < 0 else "+", abs(value.offset) // 60
    zone = f"{sign}{offset // 60:02}:{offset % 60:02}" if value.offset else "Z"
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{year:04}-{shown.month:02}-{shown.day:02}T{time}{fraction}{zone}"


def text_of_duration(value: Duration) -> str:
    """Return a duration in seconds, such as `1.5s`."""
    whole, part = divmod(abs(value.nanoseconds), _SECOND)
    seconds = (float(whole) + part / 1e9) * (-1 if value.nanoseconds < 0 else 1)
    shown = format(Decimal(repr(seconds)).normalize(), "f")
    return f"{'0' if shown == '-0' else shown}s"


def _date(day: int) -> tuple[int, date]:
    """Return the year and a date with the same month, day and weekday, of a day counted from 1970-01-01."""
    ordinal = day + _EPOCH
    shift = 400 if ordinal < 1 else -400 if ordinal > date.max.toordinal() else 0
    shown = date.fromordinal(ordinal + _CYCLE * (shift // 400))
    return shown.year - shift, shown


def _offset(value: Timestamp, zone: str) -> int:
    """Return the offset of a time zone from UTC in seconds, at a point in time."""
    if ":" in zone:
        match = _OFFSET.fullmatch(zone)
        if match is None:
            raise EvaluationError(f"invalid offset {zone!r} from UTC: want hours and minutes, such as +02:00")
        hours, minutes = int(match[1]), int(match[2])
        return (hours * 60 - minutes if zone[0] == "-" else hours * 60 + minutes) * 60
    if zone in {"", "UTC"}:
        return 0
    if ".." in zone or zone[0] in "/\\":
        raise EvaluationError("time: invalid location name")
    seconds = min(max(value.nanoseconds // _SECOND, _MIN_SECONDS + _DAY), _MAX_SECONDS - _DAY)
    instant = datetime.fromtimestamp(seconds, UTC)
    try:
        local = instant.astimezone(None if zone == "Local" else ZoneInfo(zone))
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise EvaluationError(f"unknown time zone {zone}") from None
    difference = local.utcoffset()
    return int(difference.total_seconds()) if difference else 0


def _getter(part: Callable[[int, date, int, int], int]) -> Callable[..., int]:
    """Return a function that gives a part of a timestamp: of its year, date, second of the day and nanosecond."""

    def run(value: Timestamp, zone: str = "") -> int:
        day, second = divmod(value.nanoseconds // _SECOND + _offset(value, zone), _DAY)
        year, shown = _date(day)
        return part(year, shown, second, value.nanoseconds % _SECOND)

    return run


def _truncated(unit: int) -> Callable[[Duration], int]:
    return lambda value: abs(value.nanoseconds) // unit * (-1 if value.nanoseconds < 0 else 1)


_GETTERS: Final[dict[str, Callable[[int, date, int, int], int]]] = {
    "getFullYear": lambda year, _date, _second, _nano: year,
    "getMonth": lambda _year, date, _second, _nano: date.month - 1,
    "getDayOfYear": lambda _year, date, _second, _nano: date.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda _year, date, _second, _nano: date.day - 1,
    "getDate": lambda _year, date, _second, _nano: date.day,
    "getDayOfWeek": lambda _year, date, _second, _nano: date.isoweekday() % 7,
    "getHours": lambda _year, _date, second, _nano: second // 3600,
    "getMinutes": lambda _year, _date, second, _nano: second // 60 % 60,
    "getSeconds": lambda _year, _date, second, _nano: second % 60,
    "getMilliseconds": lambda _year, _date, _second, nano: nano // 10**6,
}
_DURATION_GETTERS: Final = {
    "getHours": 3600 * _SECOND, "getMinutes": 60 * _SECOND, "getSeconds": _SECOND, "getMilliseconds": 10**6,
}  # fmt: skip


def _later(value: Timestamp, span: Duration) -> Timestamp:
    return _checked_timestamp(value.nanoseconds + span.nanoseconds, value.offset)


def _added(left: Duration, right: Duration) -> Duration:
    return Duration(integer(left.nanoseconds + right.nanoseconds))


def _difference(left: Duration | Timestamp, right: Duration | Timestamp) -> Duration:
    return Duration(integer(left.nanoseconds - right.nanoseconds))


def _arithmetic() -> Iterator[Overload]:
    yield Overload("_+_", (DURATION, DURATION), DURATION, _added)
    yield Overload("_+_", (DURATION, TIMESTAMP), TIMESTAMP, lambda span, value: _later(value, span))
    yield Overload("_+_", (TIMESTAMP, DURATION), TIMESTAMP, _later)
    yield Overload("_-_", (DURATION, DURATION), DURATION, _difference)
    yield Overload(
        "_-_", (TIMESTAMP, DURATION), TIMESTAMP, lambda value, span: _later(value, Duration(-span.nanoseconds))
    )
    yield Overload("_-_", (TIMESTAMP, TIMESTAMP), DURATION, _difference)


def declared(*, since_1_37: bool) -> Iterator[Overload]:
    """Declare everything about times; up to 1.36 `duration(int)` has a type, although it never has a value."""
    yield from _arithmetic()
    for name, test in ORDER.items():
        for kind in (TIMESTAMP, DURATION):
            yield Overload(name, (kind, kind), BOOL, ordered(test), loose=True)
    for kind in (TIMESTAMP, INT, STRING):
        yield Overload("timestamp", (kind,), TIMESTAMP, _timestamp)
    for kind in (DURATION, STRING):
        yield Overload("duration", (kind,), DURATION, _duration)
    if not since_1_37:
        yield Overload("duration", (INT,), DURATION, _no_duration)
    yield Overload("int", (TIMESTAMP,), INT, lambda value: value.nanoseconds // _SECOND)
    yield Overload("int", (DURATION,), INT, lambda value: value.nanoseconds)
    yield Overload("string", (TIMESTAMP,), STRING, text_of_timestamp)
    yield Overload("string", (DURATION,), STRING, text_of_duration)
    for name, part in _GETTERS.items():
        yield method(name, (TIMESTAMP,), INT, _getter(part))
        yield method(name, (TIMESTAMP, STRING), INT, _getter(part))
    for name, unit in _DURATION_GETTERS.items():
        yield method(name, (DURATION,), INT, _truncated(unit))


def _no_duration(_value: int) -> Duration:
    raise _not("int", DURATION.name)
