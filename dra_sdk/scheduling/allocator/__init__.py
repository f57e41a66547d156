"""The structured allocator: which devices the claims of a pod get on a node, as kube-scheduler decides it.

```python
inventory = Inventory(slices, features, rules)
allocator = Allocator(inventory, classes)
allocated = Allocated.of(claims)
allocator.allocate(node, [claim], allocated)  # [status.allocation], or None where they do not fit
```

The rooms: `slices`, `pools` and `inventory` gather what a node can use; `requests` reads a claim, `needs` says what its
requests need on a node, `selectors` which devices they select; `eligible` finds candidates, `choices` holds what has
been chosen so far, with `constraints`, `counters` and `capacity`; `search` tries, its open choices are `frames`;
`result` and `config` write the allocation.
Semantics are those of k8s.io/dynamic-resource-allocation 0.36.3, package structured, its known slips included.
"""

from __future__ import annotations

from dra_sdk.scheduling.allocator.allocated import Allocated, DeviceId
from dra_sdk.scheduling.allocator.allocator import MAX_STEPS, Allocator, new_share_id
from dra_sdk.scheduling.allocator.errors import AllocationError, InvalidPoolsError, SearchLimitError, SelectorError
from dra_sdk.scheduling.allocator.features import Features
from dra_sdk.scheduling.allocator.inventory import Inventory, NodeView, PoolProblem
from dra_sdk.scheduling.allocator.requests import MAX_RESULTS

__all__ = [
    "MAX_RESULTS",
    "MAX_STEPS",
    "Allocated",
    "AllocationError",
    "Allocator",
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
