"""The names of slices: `<index in hex>-<driver>-<owner>-<random>`.

The scheduler tries slices in the order of their names, so the index comes first, with at least five digits. The
index is also how a slice is recognised again after a restart. Source: k8s.io/dynamic-resource-allocation resourceslice.
"""

from __future__ import annotations

import re
from typing import Final

_MIN_DIGITS: Final = 5
_LIMIT: Final = 2**63
_HEX: Final = re.compile("[0-9a-f]+")


def index_length(count: int) -> int:
    """How many hex digits the indexes of `count` slices have."""
    return max(_MIN_DIGITS, len(f"{max(count - 1, 0):x}"))


def encode_index(index: int, length: int) -> str:
    """An index as it begins a name."""
    return f"{index:0{length}x}"


def decode_index(name: str, length: int) -> int:
    """The index that a name begins with; ValueError where it has none of this length."""
    digits, dash, _ = name.partition("-")
    if not dash or len(digits) != length:
        raise ValueError(f"{name!r} does not begin with an index of {length} digits and a dash")
    if not _HEX.fullmatch(digits) or int(digits, 16) >= _LIMIT:
        raise ValueError(f"{name!r} does not begin with a hexadecimal index")
    return int(digits, 16)


def generate_name(index: int, count: int, driver: str, owner: str | None) -> str:
    """`metadata.generateName` of one slice of a pool with `count` slices.

    Lower case, as object names must be, although a driver's name may have capitals.
    """
    return "-".join([encode_index(index, index_length(count)), driver, *([owner] if owner else []), ""]).lower()
