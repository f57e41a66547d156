"""XID errors: what the driver reports about a GPU by number, and which of them are not the GPU's fault.

Source: NVIDIA "XID Errors", the catalogue of numbers.
"""

from __future__ import annotations

from typing import Final

BENIGN_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a faulty program causes on a sound GPU; they are told, but the GPU stays healthy."""

_LARGEST: Final = 0xFFFF
_MEANINGS: Final = {
    13: "graphics engine exception",
    31: "memory page fault of a program",
    43: "a program stopped the GPU's processing",
    45: "channels removed after an earlier error",
    48: "uncorrectable memory error",
    61: "internal microcontroller breakpoint",
    62: "internal microcontroller halt",
    63: "memory row remapped",
    64: "memory row could not be remapped",
    68: "video processor exception",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "uncorrectable memory error, contained",
    95: "uncorrectable memory error, not contained",
    109: "context switch timeout",
    119: "the GPU system processor does not answer",
    120: "error of the GPU system processor",
    140: "unrecovered memory error",
    143: "GPU initialization error",
}


def told(xid: int) -> str:
    """An XID in words, such as `XID 79 (the GPU has fallen off the bus)`."""
    meaning = _MEANINGS.get(xid)
    return f"XID {xid} ({meaning})" if meaning else f"XID {xid}"


def parse_xids(text: str) -> frozenset[int]:
    """The numbers of a list such as `48,94`; ValueError names the word that is none."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not (word.isascii() and word.isdecimal() and 0 < int(word) <= _LARGEST):
            raise ValueError(f"{word!r} is not an XID: must be a number from 1 to {_LARGEST}")
    return frozenset(map(int, words))
