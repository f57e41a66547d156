"""Kubernetes' format library: whether a text is a DNS label, a URI, a UUID and so on.

Source: Kubernetes apiserver, library/format.go (1.36); apimachinery, api/validation and util/validation; kube-openapi,
validation/strfmt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any, Final

from dra_sdk.cel.library.network import parse_request_uri
from dra_sdk.cel.library.overloads import REGEX, CallEstimate, CallSite, Cost, Overload, method
from dra_sdk.cel.library.overloads import STRING as PER_CHARACTER
from dra_sdk.cel.library.times import days_of_month
from dra_sdk.cel.types import FORMAT, STRING, list_of, optional_of
from dra_sdk.cel.values import NONE, Format, Optional

Check = Callable[[str], list[str]]
"""Returns what is wrong with a text."""
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_WANTED: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character"
)
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_SUBDOMAIN_WANTED: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035_WANTED: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_LABEL_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_KEY_WANTED: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE: Final = f"({_LABEL_KEY})?"
_LABEL_VALUE_WANTED: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character"
)
_MAX_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+\\/]{4})*(?:[A-Za-z0-9+\\/]{2}==|[A-Za-z0-9+\\/]{3}=|[A-Za-z0-9+\\/]{4})", re.ASCII
)
_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[^\n][0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)
_MAX_PATTERN_SIZE: Final = 128
_MONTHS: Final = 12
_PREFIX_PARTS: Final = 2


def _wanted(wanted: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{wanted} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(text.encode()) > limit else []


def _matching(limit: int, wanted: str, pattern: str, *examples: str) -> Check:
    """Return the check for a text of at most `limit` bytes that matches a pattern."""
    problem = _wanted(wanted, pattern, *examples)
    return lambda text: [*_too_long(text, limit), *([] if re.fullmatch(pattern, text) else [problem])]


_dns_subdomain: Final = _matching(_MAX_SUBDOMAIN, _SUBDOMAIN_WANTED, _SUBDOMAIN, "example.com")
_dns_1035_label: Final = _matching(_MAX_LABEL, _LABEL_1035_WANTED, _LABEL_1035, "my-name", "abc-123")
_label_value: Final = _matching(_MAX_LABEL, _LABEL_VALUE_WANTED, _LABEL_VALUE, "MyValue", "my_value", "12345")
_dns_label_alone: Final = _matching(_MAX_LABEL, _LABEL_WANTED, _LABEL, "my-name", "123-abc")


def _dns_label(text: str) -> list[str]:
    dotted = "." in text and re.fullmatch(_SUBDOMAIN, text)
    return [*_too_long(text, _MAX_LABEL), "must not contain dots"] if dotted else _dns_label_alone(text)


def _as_prefix(check: Check) -> Check:
    """Return the check for a text to which something is to be appended: it may end with a dash."""
    return lambda text: check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> list[str]:
    problem = _wanted(_LABEL_KEY_WANTED, _LABEL_KEY, "MyName", "my.name", "123-abc")
    parts = text.split("/")
    if len(parts) > _PREFIX_PARTS:
        ending = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {problem}{ending}"]
    problems = []
    if len(parts) == _PREFIX_PARTS:
        wrong = _dns_subdomain(parts[0]) if parts[0] else ["must be non-empty"]
        problems += [f"prefix part {detail}" for detail in wrong]
    name = parts[-1]
    problems += [f"name part {detail}" for detail in (_too_long(name, _MAX_LABEL) if name else ["must be non-empty"])]
    return problems if re.fullmatch(_LABEL_KEY, name) else [*problems, f"name part {problem}"]


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except ValueError as error:
        return [str(error)]
    return []


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    return 1 <= month <= _MONTHS and 1 <= day <= days_of_month(year, month)


def _is_date_time(text: str) -> bool:
    day, separator, rest = text.lower().partition("t")
    time = _TIME.fullmatch(rest.partition("t")[0])
    if not separator or not _is_date(day) or time is None:
        return False
    return time[1] <= "23" and time[2] <= "59" and time[3] <= "59"


def _unless(accepts: Callable[[str], Any], problem: str) -> Check:
    return lambda text: [] if accepts(text) else [problem]


FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", _dns_label, 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _dns_subdomain, 60),
    "dns1035Label": Format("DNS1035Label", _dns_1035_label, 30),
    "qualifiedName": Format("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _as_prefix(_dns_label), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _as_prefix(_dns_subdomain), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _as_prefix(_dns_1035_label), 30),
    "labelValue": Format("LabelValue", _label_value, 40),
    "uri": Format("URI", _uri, 1103),
    "uuid": Format("uuid", _unless(_UUID.fullmatch, "does not match the UUID format"), 70),
    "byte": Format("byte", _unless(_BASE64.fullmatch, "invalid base64"), 84),
    "date": Format("date", _unless(_is_date, "invalid date"), 71),
    "datetime": Format("datetime", _unless(_is_date_time, "invalid datetime"), 71),
}
"""The formats by the name of their function, such as `format.dns1123Label()`."""


def _validate(form: Format, text: str) -> Optional:
    problems = form.problems(text)
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _estimate_validate(site: CallSite) -> CallEstimate:
    return CallEstimate(site.size(1).scaled(PER_CHARACTER).scaled(_MAX_PATTERN_SIZE * REGEX))


def _cost_of_validate(args: Sequence[Any], _result: Any) -> int:
    form: Format = args[0]
    return ceil((1.0 + len(args[1])) * PER_CHARACTER) * ceil(form.pattern_size * REGEX)


def declared() -> Iterator[Overload]:
    """Declare the formats, `format.named()` and `validate()`."""
    for name, form in FORMATS.items():
        yield Overload(f"format.{name}", (), FORMAT, _constant(form))
    yield Overload("format.named", (STRING,), optional_of(FORMAT), _named)
    cost = Cost(_estimate_validate, _cost_of_validate)
    yield method("validate", (FORMAT, STRING), optional_of(list_of(STRING)), _validate, cost)


def _constant(value: Format) -> Callable[[], Format]:
    return lambda: value
