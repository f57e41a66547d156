"""For the tests of drivers: nodes made of files, claims in a few words, and a harness that runs a driver on a node.

The node's code is the real one, without sockets and HTTP. `dra_sdk.testing.plugin` has pytest fixtures.
"""

from __future__ import annotations

from dra_sdk.node.health.reports import read_report
from dra_sdk.testing.claims import ClaimFactory, FakeClaim, claim, devices, first_of, request
from dra_sdk.testing.cluster import NotAllocatedError
from dra_sdk.testing.config_rules import assert_rules_agree
from dra_sdk.testing.effects import FakeEffects
from dra_sdk.testing.harness import DriverFactory, DriverHarness
from dra_sdk.testing.node import FakeNode, write_tree
from dra_sdk.testing.nri import FakeContainer, FakePod, FakeRuntime
from dra_sdk.testing.prepared import ContainerView, PreparedClaim
from dra_sdk.testing.watching import Watching, WatchingHealth
from dra_sdk.tools.simulator.nri import RefusedError

__all__ = [
    "ClaimFactory",
    "ContainerView",
    "DriverFactory",
    "DriverHarness",
    "FakeClaim",
    "FakeContainer",
    "FakeEffects",
    "FakeNode",
    "FakePod",
    "FakeRuntime",
    "NotAllocatedError",
    "PreparedClaim",
    "RefusedError",
    "Watching",
    "WatchingHealth",
    "assert_rules_agree",
    "claim",
    "devices",
    "first_of",
    "read_report",
    "request",
    "write_tree",
]
