"""What the Kubernetes release under test offers: the gates that the tests need, and the tests that it cannot run.

The tests are written for a release with every beta feature on. If some of these are alpha in an older release, their
gates are turned on. Source: pkg/features/kube_features.go of 1.34 to 1.37.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.harness.cache import DEFAULT_VERSION, Version

VERSION: Final = os.environ.get("KUBE_VERSION") or DEFAULT_VERSION
MINOR: Final = Version.parse(VERSION).minor
MARK: Final = "kubernetes"

#: For each gate that the tests need: the first release with it, and the first in which it is beta.
GATES: Final = {
    "DRAConsumableCapacity": (34, 36),
    "DRADeviceBindingConditions": (34, 36),
    "DRADeviceTaintRules": (35, 36),
    "DRADeviceTaints": (34, 36),
    "DRAExtendedResource": (34, 36),
    "DRAFractionalCapacityRange": (37, 37),
    "DRAPartitionableDevices": (34, 36),
    "ResourceHealthStatus": (34, 36),
    "ResourceHealthStatusMessage": (36, 36),
}
HAS_HEALTH_MESSAGES: Final = GATES["ResourceHealthStatusMessage"][0] <= MINOR
#: The claims whose health a kubelet reports: `named` are those that a pod calls by their own name. 1.34 compares the
#: claim with the pod's name for it, and 1.35 looks at claims from templates only.
HEALTH_IS_REPORTED_OF: Final = {34: {"named"}, 35: {"template"}}.get(MINOR, {"named", "other", "template"})
#: If the kubelet of 1.35 has asked for a device twice, as after a failure of one of several drivers, it names the
#: device twice in the status of the pod. The API server refuses that status: the pod runs, and is shown as Pending.
#: 1.36 names it once, and 1.34 reports no health of these claims.
STATUS_BREAKS_AFTER_A_RETRY: Final = MINOR == 35
#: `v1.DRAPlugin` of 1.34 has no field for the share.
KUBELET_KNOWS_SHARES: Final = MINOR > 34


def turned_on(minor: int = MINOR) -> dict[str, bool]:
    """Returns the alpha gates to turn on, for features that are beta in later releases."""
    return {name: True for name, (first, beta) in GATES.items() if first <= minor < beta}


def known(names: set[str], minor: int = MINOR) -> set[str]:
    """Returns those of the gates that a release has. A component does not start with an unknown gate."""
    return {name for name in names if GATES[name][0] <= minor}


def header(version: str = VERSION) -> list[str]:
    """Returns the lines that the session prints first."""
    minor = Version.parse(version).minor
    gates, lacking = turned_on(minor), sorted(set(GATES) - known(set(GATES), minor))
    lines = [f"Kubernetes {version}" + (f", with these alpha gates: {', '.join(gates)}" if gates else "")]
    return lines + ([f"Kubernetes {version} does not have {', '.join(lacking)}"] if lacking else [])


def left_out(items: list[pytest.Item], minor: int = MINOR) -> Iterator[tuple[pytest.Item, str]]:
    """Yields the tests that mean nothing on a release, with the reasons of their marks."""
    for item in items:
        for mark in item.iter_markers(MARK):
            first, last = mark.kwargs.get("since", minor), mark.kwargs.get("until", minor)
            if not first <= minor <= last:
                yield item, mark.kwargs["because"]
                break
