"""The structured allocator: which devices the claims of a pod get on a node, as kube-scheduler decides it.

```python
inventory = Inventory(slices, features, rules)
allocator = Allocator(inventory, classes)
allocated = AllocatedState.of(claims)
allocator.allocate(node, [claim], allocated)  # [status.allocation], or None if they do not fit
```

The way of a claim through the modules: `inventory` and `pools` collect the `devices` that a node can use;
`claim_requests` parses the claim; `eligible_devices` finds what each request can use, with `selectors` and
`consumable_capacity`; `backtracking` searches for a solution and keeps it in `device_choices`, which checks
`constraints` and `shared_counters`; `allocation_result` writes the allocation. `features` has the feature gates and
what sets releases apart.
The decisions are those of k8s.io/dynamic-resource-allocation 0.36.3, package structured, including its known bugs, and
of 0.37.1 if the features are those of 1.37.
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.allocator.allocated_state import AllocatedState
from dra_sdk.tools.scheduling.allocator.allocation_errors import (
    AllocationError,
    InvalidPoolsError,
    SearchLimitError,
    SelectorError,
)
from dra_sdk.tools.scheduling.allocator.allocator import MAX_STEPS, OPTIONAL_NODE_OPERATIONS, Allocator
from dra_sdk.tools.scheduling.allocator.claim_requests import MAX_RESULTS
from dra_sdk.tools.scheduling.allocator.devices import DeviceId
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.inventory import Inventory, PoolProblem

__all__ = [
    "MAX_RESULTS",
    "MAX_STEPS",
    "OPTIONAL_NODE_OPERATIONS",
    "AllocatedState",
    "AllocationError",
    "Allocator",
    "DeviceId",
    "InvalidPoolsError",
    "Inventory",
    "PoolProblem",
    "SchedulerFeatures",
    "SearchLimitError",
    "SelectorError",
]
