"""For the tests of drivers: nodes made of files, claims in a few words, and a harness that runs a driver between them.

`dra_sdk.testing.plugin` has them as pytest fixtures.
"""

from __future__ import annotations

from dra_sdk.testing.claims import FakeClaim, claim, devices, first_of, request
from dra_sdk.testing.container import ContainerView
from dra_sdk.testing.harness import DriverHarness, NotAllocatedError, PreparedClaim
from dra_sdk.testing.node import FakeNode

__all__ = [
    "ContainerView",
    "DriverHarness",
    "FakeClaim",
    "FakeNode",
    "NotAllocatedError",
    "PreparedClaim",
    "claim",
    "devices",
    "first_of",
    "request",
]
