"""All checks, in the order in which they run: first what others rely on, last what stops the driver.

The modules hold one or two levels each. The docstring of a check's function is the sentence of the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.tools.conformance.check import Check, Level
from dra_sdk.tools.conformance.checks import (
    cdi,
    containers,
    health,
    idempotency,
    kep5970,
    load,
    nri,
    prepare,
    protocol,
    restart,
    security,
    slices,
)

LEVELS: Final[tuple[Level, ...]] = (
    protocol.REGISTRATION,
    protocol.WIRE,
    slices.SLICES,
    prepare.PREPARE,
    prepare.UNPREPARE,
    idempotency.IDEMPOTENCY,
    cdi.CDI,
    health.HEALTH,
    security.SECURITY,
    load.LOAD,
    kep5970.KEP5970,
    restart.RESTART,
    restart.ROLLING,
    nri.NRI,
    containers.CONTAINERS,
)
CHECKS: Final[tuple[Check, ...]] = tuple(check for level in LEVELS for check in level.checks)
BY_ID: Final = {check.id: check for check in CHECKS}
BY_LEVEL: Final = {level.name: level for level in LEVELS}
NRI_LEVELS: Final = (nri.NRI.name, containers.CONTAINERS.name)
"""The levels that apply only to NRI plugins."""


def select(names: Iterable[str] = ()) -> Sequence[Check]:
    """Return the checks with these IDs or in these levels, in running order; all without names.

    Raises SettingsError for an unknown name.
    """
    selected = set(names)
    if unknown := sorted(selected - set(BY_ID) - set(BY_LEVEL)):
        raise SettingsError(f"there is no level or check {unknown[0]!r}; the levels are {', '.join(BY_LEVEL)}")
    return [check for check in CHECKS if not selected or selected & {check.id, check.level}]
