"""The Python half: `python -m tests.bench.matching.ours FILE` does what gomatch does, with dra_sdk.tools.scheduling.

An allocator lives as long as its inventory here, whereas the scheduler makes one for each pod: it may remember what
selectors said about devices.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from dra_sdk.tools.scheduling.allocator import AllocatedState, Allocator, Inventory, SchedulerFeatures
from dra_sdk.wire.profile import ServerProfile

JSON = dict[str, Any]


def match(given: JSON) -> list[JSON]:
    """Give each claim to the first node that it fits on, in the order of the file."""
    features = SchedulerFeatures.of(ServerProfile.of("1.36"))
    inventory = Inventory(given["slices"], features)
    allocator = Allocator(inventory, {each["metadata"]["name"]: each for each in given["classes"]})
    allocated, outcomes = AllocatedState(), []
    for claim in given["claims"]:
        outcome = _first_fit(allocator, given["nodes"], claim, allocated)
        if allocation := outcome.get("allocation"):
            allocated.add({**claim, "status": {"allocation": allocation}})
        outcomes.append(outcome)
    return outcomes


def _first_fit(allocator: Allocator, nodes: list[JSON], claim: JSON, allocated: AllocatedState) -> JSON:
    for node in nodes:
        found = allocator.allocate(node, [claim], allocated)
        if found is not None:
            return {"node": node["metadata"]["name"], "allocation": found[0]}
    return {"node": ""}


def main() -> None:
    """Print the seconds and the outcomes for the file that is named on the command line."""
    given = json.loads(Path(sys.argv[1]).read_text())
    started = time.perf_counter()
    outcomes = match(given)
    json.dump({"seconds": time.perf_counter() - started, "outcomes": outcomes}, sys.stdout)


if __name__ == "__main__":
    main()
