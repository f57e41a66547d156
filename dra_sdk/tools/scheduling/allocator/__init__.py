"""The structured allocator: which devices the claims of a pod get on a node, as kube-scheduler decides it.

```python
inventory = Inventory(slices, features, rules)
allocator = Allocator(inventory, classes)
allocated = Allocated.of(claims)
allocator.allocate(node, [claim], allocated)  # [status.allocation], or None where they do not fit
```

The rooms: `slices`, `pools` and `inventory` gather what a node can use; `requests` reads a claim, `needs` says what its
requests need on a node, `selectors` which devices they select, `derived` what attributes they make up; `eligible` finds
candidates, `choices` holds what has been chosen so far, with `constraints`, `counters`, `groups` and `capacity`;
`search` tries, its open choices are `frames`; `result` and `config` write the allocation. `features` are the gates that
are on, and `behaviour` is what sets releases apart.
Semantics are those of k8s.io/dynamic-resource-allocation 0.36.3, package structured, its known slips included, and of
0.37.1 where the features are those of 1.37.
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.allocator.allocated import Allocated, DeviceId
from dra_sdk.tools.scheduling.allocator.allocator import MAX_STEPS, SKIPS_OPERATIONS, Allocator, new_share_id
from dra_sdk.tools.scheduling.allocator.behaviour import Behaviour
from dra_sdk.tools.scheduling.allocator.errors import (
    AllocationError,
    InvalidPoolsError,
    SearchLimitError,
    SelectorError,
)
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.inventory import Inventory, NodeView, PoolProblem
from dra_sdk.tools.scheduling.allocator.requests import MAX_RESULTS

__all__ = [
    "MAX_RESULTS",
    "MAX_STEPS",
    "SKIPS_OPERATIONS",
    "Allocated",
    "AllocationError",
    "Allocator",
    "Behaviour",
    "DeviceId",
    "Features",
    "InvalidPoolsError",
    "Inventory",
    "NodeView",
    "PoolProblem",
    "SearchLimitError",
    "SelectorError",
    "new_share_id",
]
