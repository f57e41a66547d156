"""The formats of names: DNS labels and subdomains, label keys and values, attributes, pools, UUIDs.

Each function yields the problems of one value. Source: apimachinery content validation, and the rules that
resource.k8s.io adds for drivers, pools and qualified names.
"""

from __future__ import annotations

import re
from typing import Final

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.validation.problems import Problems, byte_length, invalid, required, show, too_long

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
MAX_DRIVER: Final = 63
MAX_IDENTIFIER: Final = 32
MAX_QUALIFIED: Final = MAX_DRIVER + 1 + MAX_IDENTIFIER

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_KEY_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SEMVER_PART = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}"
    rf"(?:-{_SEMVER_PART}(?:\.{_SEMVER_PART})*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


def dns_label(value: str, field: str) -> Problems:
    """Check a DNS label (RFC 1123)."""
    if byte_length(value) > MAX_LABEL or not _LABEL.fullmatch(value):
        rule = f"lower-case letters, digits and inner '-', at most {MAX_LABEL} characters"
        yield invalid(field, f"must be a DNS label ({rule}), is {show(value)}")


def dns_subdomain(value: str, field: str) -> Problems:
    """Check a DNS subdomain (RFC 1123)."""
    if byte_length(value) > MAX_SUBDOMAIN or not _SUBDOMAIN.fullmatch(value):
        rule = f"lower-case letters, digits, inner '-' and '.', at most {MAX_SUBDOMAIN} characters"
        yield invalid(field, f"must be a DNS subdomain ({rule}), is {show(value)}")


def required_subdomain(value: str, field: str) -> Problems:
    """Check a DNS subdomain that must not be empty."""
    if not value:
        yield required(field)
    else:
        yield from dns_subdomain(value, field)


def driver_name(value: str, field: str) -> Problems:
    """Check the name of a driver. Upper case is allowed, although the server warns about it."""
    if not value:
        yield required(field)
        return
    yield from too_long(field, value, MAX_DRIVER)
    yield from dns_subdomain(value.lower(), field)


def pool_name(value: str, field: str) -> Problems:
    """Check the name of a pool: DNS subdomains joined by '/'."""
    if not value:
        yield required(field)
        return
    yield from too_long(field, value, MAX_SUBDOMAIN)
    for part in value.split("/"):
        yield from dns_subdomain(part, field)


def path_segment_prefix(value: str, field: str) -> Problems:
    """Check the beginning of a name that becomes a segment of a URL path."""
    if forbidden := [character for character in "/%" if character in value]:
        yield invalid(field, f"must not contain {' or '.join(map(repr, forbidden))}, is {show(value)}")


def is_label_key(value: str) -> bool:
    """Return whether a value is a label key: `name` or `domain/name`."""
    domain, slash, name = value.rpartition("/")
    if slash and (byte_length(domain) > MAX_SUBDOMAIN or not _SUBDOMAIN.fullmatch(domain)):
        return False
    return byte_length(name) <= MAX_LABEL and bool(_KEY_NAME.fullmatch(name))


def label_key(value: str, field: str) -> Problems:
    """Check the key of a label or taint, or the type of a condition."""
    if not is_label_key(value):
        rule = (
            f"name or domain/name; the name of letters, digits, inner '-', '_' and '.', at most {MAX_LABEL} characters"
        )
        yield invalid(field, f"must be {rule}, is {show(value)}")


def label_value(value: str, field: str) -> Problems:
    """Check the value of a label. It may be empty."""
    if value and (byte_length(value) > MAX_LABEL or not _KEY_NAME.fullmatch(value)):
        rule = f"letters, digits, inner '-', '_' and '.', at most {MAX_LABEL} characters"
        yield invalid(field, f"must be a label value ({rule}), is {show(value)}")


def identifier(value: str, field: str) -> Problems:
    """Check a C identifier."""
    yield from too_long(field, value, MAX_IDENTIFIER)
    if not _IDENTIFIER.fullmatch(value):
        yield invalid(
            field, f"must be a C identifier (letters, digits and '_', not beginning with a digit), is {show(value)}"
        )


def qualified_name(value: str, field: str, profile: ServerProfile) -> Problems:
    """Check the name of an attribute or capacity: `identifier` or `domain/identifier`."""
    missing = required if profile.minor == OLDEST else invalid
    parts = value.split("/")
    if not value and profile.minor == OLDEST:
        yield required(field, "the name must not be empty")
    elif len(parts) == 1:
        yield from identifier(value, field)
    elif len(parts) == 2:  # noqa: PLR2004 (servers accept more than two parts)
        domain, name = parts
        yield from driver_name(domain, field) if domain else (missing(field, "the domain must not be empty"),)
        yield from identifier(name, field) if name else (missing(field, "the name must not be empty"),)


def fully_qualified_name(value: str, field: str, profile: ServerProfile) -> Problems:
    """Check the name of an attribute with its domain."""
    yield from qualified_name(value, field, profile)
    if "/" not in value and (value or profile.minor > OLDEST):
        yield invalid(field, f"must be domain/name, is {show(value)}")


def uuid(value: str, field: str) -> Problems:
    """Check a UUID."""
    if not _UUID.fullmatch(value):
        yield invalid(field, f"must be a UUID of 36 characters in lower case, is {show(value)}")


def semantic_version(value: str, field: str) -> Problems:
    """Check a semantic version 2.0.0."""
    if not _SEMVER.fullmatch(value):
        yield invalid(field, f"must be a semantic version 2.0.0 such as 1.2.3 (no leading v), is {show(value)}")


def extended_resource_name(value: str, field: str) -> Problems:
    """Check the name of an extended resource: `domain/name`, not in kubernetes.io."""
    native = "/" not in value or "kubernetes.io/" in value
    if native or value.startswith("requests.") or not is_label_key(f"requests.{value}"):
        rule = "domain/name, not in kubernetes.io and not beginning with 'requests.'"
        yield invalid(field, f"must be an extended resource name ({rule}), is {show(value)}")
