"""A whole cluster at one moment: which pod runs where with which devices, and what would change that.

    snapshot = read_snapshot([Source("cluster.yaml", read_documents(content, "cluster.yaml"))]).snapshot
    outcome = schedule(snapshot)
    after = schedule(drain(outcome.snapshot, "node-1"))
    changes = compare(outcome, after)

Everything here is a pure function of a `Snapshot`.
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.advice import Help, would_help
from dra_sdk.tools.scheduling.cluster.comparison import Change, Situation, compare
from dra_sdk.tools.scheduling.cluster.evictions import Eviction
from dra_sdk.tools.scheduling.cluster.names import Key, shown
from dra_sdk.tools.scheduling.cluster.outcome import NO_NODE, ClaimOutcome, Outcome, Placement
from dra_sdk.tools.scheduling.cluster.reading import Reading, ReadingError, Source, read_snapshot
from dra_sdk.tools.scheduling.cluster.schedule import schedule
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.templates import Template, WhatIfError, add_nodes
from dra_sdk.tools.scheduling.cluster.whatif import Target, add_taint, drain

__all__ = [
    "NO_NODE",
    "Change",
    "ClaimOutcome",
    "Eviction",
    "Help",
    "Key",
    "Outcome",
    "Placement",
    "Reading",
    "ReadingError",
    "Situation",
    "Snapshot",
    "Source",
    "Target",
    "Template",
    "WhatIfError",
    "add_nodes",
    "add_taint",
    "compare",
    "drain",
    "read_snapshot",
    "schedule",
    "shown",
    "would_help",
]
