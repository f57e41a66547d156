"""The page of the reference about releases of Kubernetes: which one has which feature, under which gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dra_sdk.wire.profile import GATES, NEWEST, OLDEST

#: What each feature gate is about, and the page that shows it at work.
FEATURES: Final = {
    "DRAAdminAccess": ("claims of administrators see devices that others hold", ""),
    "DRAConsumableCapacity": (
        "one device for many claims, each with a share (KEP-5075)",
        "../how-to/consumable-capacity.md",
    ),
    "DRADerivedAttributes": ("attributes that CEL computes from others", ""),
    "DRADeviceBindingConditions": ("pods wait until a device is ready (KEP-5007)", "../how-to/binding-conditions.md"),
    "DRADeviceCompatibilityGroups": ("which partitions of one card work side by side", ""),
    "DRADeviceTaintRules": ("an administrator taints devices", "../how-to/health-and-taints.md"),
    "DRADeviceTaints": ("taints on published devices (KEP-5055)", "../how-to/health-and-taints.md"),
    "DRAExtendedResource": ("`nvidia.com/gpu: 1` served by a DeviceClass", "../how-to/from-a-device-plugin.md"),
    "DRAFractionalCapacityRange": ("steps of a capacity in thousandths", ""),
    "DRAListTypeAttributes": ("attributes that are lists (KEP-5491)", ""),
    "DRANodeAllocatableResources": ("devices that count as CPU or memory of their node (KEP-5517)", ""),
    "DRAOptionalNodeOperations": ("slices whose devices need no prepare on the node", ""),
    "DRAPartitionableDevices": ("devices that overlap on one card (KEP-4815)", "../how-to/partitionable-devices.md"),
    "DRAPartitionableDevicesType": ("the attribute that tells what kind a partition is", ""),
    "DRAPrioritizedList": ("the first of several alternatives (KEP-4816)", ""),
    "DRAResourceClaimDeviceStatus": ("drivers write `status.devices` (KEP-4817)", ""),
    "DRAResourcePoolStatus": ("ResourcePoolStatusRequests say what is free in pools (KEP-5677)", ""),
}

#: Gates that change nothing in what a driver publishes: the release that added each, the one that turned it on by
#: default (None: not yet), what it is about, and a page. Source: pkg/features/kube_features.go of 1.34 to 1.37.
OTHERS: Final[dict[str, tuple[int, int | None, str, str]]] = {
    "DRAResourceClaimGranularStatusAuthorization": (
        36,
        36,
        "writing `status.devices` needs the right to `resourceclaims/driver`, too",
        "../install.md#what-it-may-do",
    ),
    "DRASchedulerFilterTimeout": (34, 34, "the scheduler gives up a search after 10 s for each node", ""),
    "DRAWorkloadResourceClaims": (36, None, "one claim from a template for a whole PodGroup (KEP-5729)", ""),
    "KubeletPodResourcesDynamicResources": (34, 34, "the kubelet's PodResources API lists devices of claims", ""),
    "NodeDeclaredFeatures": (
        35,
        36,
        "nodes declare what they can do, as `skipNodeOperations` needs (KEP-5328)",
        "../simulate.md#what-is-different-in-137",
    ),
    "ResourceHealthStatus": (
        34,
        36,
        "the health of devices in the status of pods (KEP-4680)",
        "../how-to/health-and-taints.md",
    ),
    "ResourceHealthStatusMessage": (
        36,
        36,
        "the health of devices, with the driver's message",
        "../how-to/health-and-taints.md",
    ),
}


def releases() -> str:
    """Return the page about releases, from the table by which the SDK checks objects."""
    published = [(gate, *GATES[gate], *FEATURES[gate]) for gate in GATES]
    others = [(gate, *row) for gate, row in OTHERS.items()]
    text = """# Kubernetes releases and features

`resource.k8s.io/v1` exists since Kubernetes 1.34, so that is the oldest release that the SDK supports. Newer features
have feature gates.

**on**: the gate is on by default. off: an administrator can turn it on, on the API server, the scheduler and the
kubelet. no: the release does not have the feature.

## What slices and claims may have

A driver that uses a feature publishes it to every server. A server whose gate is off drops the fields; the driver's log
says so, and devices that could be given away wrongly without them [are withheld](../driver.md#older-servers). The table
is the one by which `dra-sdk validate --server-version` judges objects.
"""
    further = """
## What else the cluster does

These gates change nothing in the objects that a driver writes, but what its users and its operator see.
"""
    return "\n".join([text, *_matrix(published), further, *_matrix(others), ""])


def _matrix(gates: Iterable[tuple[str, int, int | None, str, str]]) -> Iterator[str]:
    """Yield the rows of a table: gate, release that added it, release that turned it on, what it is about, page."""
    minors = range(OLDEST, NEWEST + 1)
    yield f"| feature | gate | {' | '.join(f'1.{minor}' for minor in minors)} |"
    yield f"|---|---|{'---|' * len(minors)}"
    rows = []
    for gate, added, default, what, page in gates:
        cells = ["no" if minor < added else "**on**" if default and minor >= default else "off" for minor in minors]
        rows.append(f"| {f'[{what}]({page})' if page else what} | `{gate}` | {' | '.join(cells)} |")
    yield from sorted(rows)
