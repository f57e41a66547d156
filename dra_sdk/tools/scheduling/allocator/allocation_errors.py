"""Why an allocation ends in an error, as opposed to "does not fit on this node".

```
DraError
└── AllocationError        a claim, class or slice cannot be processed; kube-scheduler tries no other node
    ├── SelectorError      a CEL selector does not compile, fails on a device, or costs too much
    ├── InvalidPoolsError  nothing fits on this node and one of its pools is invalid; other nodes are tried
    └── SearchLimitError   the search was stopped after too many steps
```
Source: k8s.io/dynamic-resource-allocation, package structured (1.36), Allocate.
"""

from __future__ import annotations

from dra_sdk.cel import CelError
from dra_sdk.errors import DraError


class AllocationError(DraError):
    """A claim, class or slice cannot be processed.

    kube-scheduler reports an error for the pod and tries no other node. The message names the claim and the request.
    """


class SelectorError(AllocationError):
    """A CEL selector of a class or a claim failed.

    where: the class or claim, the request, and the index of the selector from 0.
    device: the device that it was evaluated on, `driver/pool/device`.
    problem: the CEL error.
    """

    def __init__(self, where: str, device: str, problem: CelError) -> None:
        self.where, self.device, self.problem = where, device, problem
        super().__init__(f"{where}, evaluated on device {device}: {problem}")


class InvalidPoolsError(AllocationError):
    """The claims do not fit on this node, and a pool with devices for it is invalid.

    The pod is unschedulable on this node only; kube-scheduler tries other nodes. The message names the pools.
    """


class SearchLimitError(AllocationError):
    """The search took more steps than allowed, see `Allocator.max_steps`.

    kube-scheduler has a time limit instead, 10 s for a node by default.
    """
