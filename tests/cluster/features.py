"""What the Kubernetes release under test has: the gates that the tests need, and the tests that it cannot run.

The tests are written for a release with every beta feature on. An older one has some of these as alpha: then their
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

#: For each gate that the tests need: the first release that has it, and the first where all beta gates include it.
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
#: The claims whose devices' health a kubelet tells: `named` are those that a pod calls by their own name. That of 1.34
#: compares with the pod's name for a claim, that of 1.35 looks at templates only.
HEALTH_IS_TOLD_OF: Final = {34: {"named"}, 35: {"template"}}.get(MINOR, {"named", "other", "template"})
#: The kubelet of 1.35 names a device twice in the status of its pod when it has asked for it twice, as it does after
#: one of several drivers has failed. The API server refuses that status: the pod runs, and is shown as Pending. 1.36
#: names it once, and 1.34 tells no health of the claims in question.
STATUS_BREAKS_AFTER_A_RETRY: Final = MINOR == 35
#: `v1.DRAPlugin` of 1.34 has no field for the share, so its kubelet cannot know it.
KUBELET_KNOWS_SHARES: Final = MINOR > 34


def turned_on(minor: int = MINOR) -> dict[str, bool]:
    """The alpha gates that a release needs to have what later ones have as beta."""
    return {name: True for name, (first, beta) in GATES.items() if first <= minor < beta}


def known(names: set[str], minor: int = MINOR) -> set[str]:
    """Those of these gates that a release has; a component refuses to start with another one."""
    return {name for name in names if GATES[name][0] <= minor}


def header(version: str = VERSION) -> list[str]:
    """What the session says first."""
    minor = Version.parse(version).minor
    gates, lacking = turned_on(minor), sorted(set(GATES) - known(set(GATES), minor))
    lines = [f"Kubernetes {version}" + (f", with these alpha gates: {', '.join(gates)}" if gates else "")]
    return lines + ([f"Kubernetes {version} does not have {', '.join(lacking)}"] if lacking else [])


def left_out(items: list[pytest.Item], minor: int = MINOR) -> Iterator[tuple[pytest.Item, str]]:
    """Tests that mean nothing on a release, each with the reason that its mark gives."""
    for item in items:
        for mark in item.iter_markers(MARK):
            first, last = mark.kwargs.get("since", minor), mark.kwargs.get("until", minor)
            if not first <= minor <= last:
                yield item, mark.kwargs["because"]
                break
