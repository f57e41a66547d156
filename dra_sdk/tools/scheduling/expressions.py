"""CEL expressions as an API server judges them: does one compile, and what does it cost at worst?

    validate(obj, profile=profile, compile_cel=compiler(profile))

Source: resource.k8s.io validation of CELDeviceSelector and DeviceDerivedAttribute. Stored expressions may use what a
feature gate once allowed.
"""

from __future__ import annotations

from typing import Final

from dra_sdk.cel import (
    CelCompileError,
    CelTooCostlyError,
    Features,
    compile,  # noqa: A004 (the word for it)
    compile_derived,
)
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import CompileCel, Problem, Uncompiled
from dra_sdk.wire.validation.problems import forbidden, invalid

_NEWER: Final = 37


def cel_features(profile: ServerProfile) -> Features:
    """What expressions may say on a server of this release and these feature gates."""
    return Features(
        consumable_capacity=profile.enabled("DRAConsumableCapacity"),
        list_type_attributes=profile.enabled("DRAListTypeAttributes"),
        since_1_37=profile.minor >= _NEWER,
    )


def compiler(profile: ServerProfile) -> CompileCel:
    """The judge of expressions for `validate`: Invalid with line and column, or Forbidden above the cost limit."""
    features = cel_features(profile)
    stored = Features(since_1_37=features.since_1_37)

    def judge(expression: Uncompiled) -> Problem | None:
        try:
            found = compile_derived if expression.derives else compile
            found(expression.detail, stored if expression.stored else features).check_cost()
        except CelTooCostlyError as error:
            return forbidden(expression.field, error.problem)
        except CelCompileError as error:
            return invalid(expression.field, error.problem)
        return None

    return judge
