"""All checks, in the order in which they run: what others build upon comes first, what ends the driver last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.tools.conformance.check import Check, Level
from dra_sdk.tools.conformance.levels import (
    cdi,
    health,
    idempotency,
    kep5970,
    load,
    prepare,
    registration,
    restart,
    rolling,
    security,
    slices,
    unprepare,
    wire,
)

LEVELS: Final[tuple[Level, ...]] = (
    registration.LEVEL,
    wire.LEVEL,
    slices.LEVEL,
    prepare.LEVEL,
    unprepare.LEVEL,
    idempotency.LEVEL,
    cdi.LEVEL,
    health.LEVEL,
    security.LEVEL,
    load.LEVEL,
    kep5970.LEVEL,
    restart.LEVEL,
    rolling.LEVEL,
)
CHECKS: Final[tuple[Check, ...]] = tuple(check for level in LEVELS for check in level.checks)
BY_ID: Final = {check.id: check for check in CHECKS}
BY_LEVEL: Final = {level.name: level for level in LEVELS}


def table() -> str:
    """All checks in Markdown, for the documentation."""
    rows = [f"| {check.id} | {check.severity} | {check.contract} | {check.source} |" for check in CHECKS]
    return "\n".join(["| check | | contract | stated in |", "|---|---|---|---|", *rows]) + "\n"


def select(names: Iterable[str] = ()) -> Sequence[Check]:
    """The checks of these levels and with these ids, in running order; all without names. SettingsError for others."""
    wanted = set(names)
    if unknown := sorted(wanted - set(BY_ID) - set(BY_LEVEL)):
        raise SettingsError(f"no level or check is called {unknown[0]!r}; levels are {', '.join(BY_LEVEL)}")
    return [check for check in CHECKS if not wanted or wanted & {check.id, check.level}]
