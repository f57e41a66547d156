"""Names of devices for any ids that the hardware has: paths, UUIDs, PCI addresses, serial numbers of 200 characters.

Source: resource.k8s.io/v1: a device's name is a DNS label, the value of an attribute has at most 64 bytes.
"""

from __future__ import annotations

import re
import sys
from hashlib import sha256
from typing import Final

_LABEL: Final = 63  # characters of a device's name
_KIND: Final = 20  # of them for the kind
_VALUE: Final = 64  # bytes of an attribute's value
_DIGEST: Final = 10  # hexadecimal digits, 40 bits


def device_name(kind: str, id_: str, scope: str = "") -> str:
    """Return a name for a device with any id: `kind-id-hash`, as much as fits: `uart-dev-ttyusb0-52d71b07c6`.

    The same arguments give the same name on every node and in every release. Ids that look alike have different hashes;
    `scope`, by default the kind, tells apart equal ids of different kinds.
    """
    shown, id_slug = _slug(kind)[:_KIND], _slug(id_)
    digest = _digest(f"{scope or kind}\0{id_}")
    available = _LABEL - len(shown) - len(digest) - 2
    return "-".join(part.strip("-") for part in (shown, id_slug[-available:], digest) if part.strip("-"))


def attribute_text(text: str) -> str:
    """Return a text as value of an attribute; one above 64 bytes is cut, with a hash in place of the rest."""
    if len(text.encode()) <= _VALUE:
        return text
    start = text.encode()[: _VALUE - _DIGEST - 1].decode(errors="ignore")
    return f"{start}-{_digest(text)}"


def natural_order(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key for sorting that compares runs of digits as numbers: `gpu2` before `gpu10`, numbers before words."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return tuple((int(part), "") if part[0] in "0123456789" else (sys.maxsize, part) for part in parts)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_DIGEST]
