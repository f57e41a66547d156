"""What a driver can do wrong: a word for each way."""

from __future__ import annotations

Faults = frozenset[str]
NONE: Faults = frozenset()


def faults(*names: str) -> Faults:
    return frozenset(names)
