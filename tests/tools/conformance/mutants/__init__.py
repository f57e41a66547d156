"""A small DRA driver that keeps the whole contract, and one fault for each way to break it.

A fault is a word, such as `no-guard`; the table in `table.py` says which checks must find it.
"""

from __future__ import annotations

Faults = frozenset[str]
NONE: Faults = frozenset()


def faults(*names: str) -> Faults:
    return frozenset(names)
