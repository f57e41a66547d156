"""What counts as a difference."""

from __future__ import annotations

import pytest

from tests.cluster.differential.case import PodPlan
from tests.cluster.differential.compare import compare_placed, compare_pod
from tests.cluster.differential.ours import Placed, Prospect
from tests.cluster.differential.real import Verdict

PLAN = PodPlan("p", "team", ("c",))
FITS = Prospect({"n1": {"c": {}}})
REFUSED = 'running PreBind plugin "DynamicResources": add finalizer to claim team/c: {}'


@pytest.mark.parametrize(
    ("message", "compared"),
    [
        (
            REFUSED.format("ResourceClaim.resource.k8s.io is invalid: spec: Invalid value: {}: field is immutable"),
            False,
        ),
        (REFUSED.format("the server is gone"), True),
        ("spec: field is immutable", True),
    ],
)
def test_a_claim_that_the_scheduler_itself_changed_says_nothing(message: str, compared: bool) -> None:
    real = Verdict("error", message)
    assert bool(compare_pod(PLAN, real, FITS, exact=True)) is compared
    assert bool(compare_placed(PLAN, real, FITS, Placed("n1"))) is compared
