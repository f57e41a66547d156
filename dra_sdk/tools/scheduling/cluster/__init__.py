"""A whole cluster at one moment: which pod runs where with which devices, and what would change that.

    snapshot = read_snapshot([ObjectSource("cluster.yaml", read_documents(content, "cluster.yaml"))]).snapshot
    outcome = schedule(snapshot)
    after = schedule(drain(outcome.snapshot, "node-1"))
    changes = compare_outcomes(outcome, after)

Everything here is a pure function of a `Snapshot`. The modules follow a pod through kube-scheduler: `quotas` admits it,
`generated_claims` makes its claims, `pod_requirements` is PreFilter, `node_filter` is Filter, `scheduling_cycle`
chooses a node and reserves devices in `cluster_state`, for a PodGroup together, `preemption` is PostFilter,
`claim_controller` releases claims, and `scheduling_outcome` is the result.
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.located_objects import ObjectSource
from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import (
    NO_NODE_PREFIX,
    ClaimOutcome,
    PlacementChange,
    PlacementState,
    PodPlacement,
    SchedulingOutcome,
    compare_outcomes,
)
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot, display_name
from dra_sdk.tools.scheduling.cluster.snapshot_reader import (
    SnapshotReadError,
    SnapshotReading,
    read_snapshot,
)
from dra_sdk.tools.scheduling.cluster.what_if import (
    DeviceTarget,
    NodeSuggestion,
    NodeTemplate,
    WhatIfError,
    add_nodes,
    add_taint,
    drain,
    suggest_nodes,
)

__all__ = [
    "NO_NODE_PREFIX",
    "ClaimOutcome",
    "DeviceTarget",
    "NodeSuggestion",
    "NodeTemplate",
    "ObjectKey",
    "ObjectSource",
    "PlacementChange",
    "PlacementState",
    "PodPlacement",
    "SchedulingOutcome",
    "Snapshot",
    "SnapshotReadError",
    "SnapshotReading",
    "WhatIfError",
    "add_nodes",
    "add_taint",
    "compare_outcomes",
    "display_name",
    "drain",
    "read_snapshot",
    "schedule",
    "suggest_nodes",
]
