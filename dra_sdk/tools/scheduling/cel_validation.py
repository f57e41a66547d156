"""CEL expressions as the API server validates them: do they compile, and what can they cost at most?

    validate(obj, profile=profile, compile_cel=cel_compiler(profile))

Expressions of stored objects may use what a feature gate allowed when they were stored.
Source: resource.k8s.io validation of CELDeviceSelector and DeviceDerivedAttribute.
"""

from __future__ import annotations

from typing import Final

from dra_sdk.cel import (
    CelCompileError,
    CelTooCostlyError,
    CelUnknownFunctionError,
    Features,
    compile,  # noqa: A004 (the same name as in the module re)
    compile_derived,
)
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import CompileCel, Problem, Uncompiled
from dra_sdk.wire.validation.problems import ProblemType, UnknownFunction, forbidden, invalid

_MINOR_1_37: Final = 37


def cel_features(profile: ServerProfile) -> Features:
    """Return what expressions may use on a server of this release with these feature gates."""
    return Features(
        consumable_capacity=profile.enabled("DRAConsumableCapacity"),
        list_type_attributes=profile.enabled("DRAListTypeAttributes"),
        since_1_37=profile.minor >= _MINOR_1_37,
    )


def cel_compiler(profile: ServerProfile) -> CompileCel:
    """Return the function that `validate` calls for each expression.

    It returns None for a good expression, Invalid with line and column for one that does not compile, and Forbidden for
    one that may cost more than the limit.
    """
    features = cel_features(profile)
    stored = Features(since_1_37=features.since_1_37)

    def compile_cel(expression: Uncompiled) -> Problem | None:
        try:
            compile_expression = compile_derived if expression.derives else compile
            compile_expression(expression.detail, stored if expression.stored else features).check_cost()
        except CelTooCostlyError as error:
            return forbidden(expression.field, error.problem)
        except CelUnknownFunctionError as error:
            return UnknownFunction(expression.field, ProblemType.INVALID, error.problem)
        except CelCompileError as error:
            return invalid(expression.field, error.problem)
        return None

    return compile_cel
