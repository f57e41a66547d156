"""Why an allocation ends in an error, as opposed to "does not fit on this node".

```
DraError
└── AllocationError        the claim, a class or a slice cannot be worked with, on any node
    ├── SelectorError      a CEL selector does not compile, has no answer for a device, or costs too much
    ├── InvalidPoolsError  nothing fits on this node, and a pool of it is invalid; other nodes may do
    └── SearchLimitError   the search was given up after too many steps
```
Source: k8s.io/dynamic-resource-allocation, package structured (1.36), Allocate.
"""

from __future__ import annotations

from dra_sdk.cel import CelCostError, CelError
from dra_sdk.errors import DraError


class AllocationError(DraError):
    """The scheduler would report an error for the pod instead of trying further nodes."""


class SelectorError(AllocationError):
    """A selector of a class or of a claim failed.

    `where` names the object, the request and the index of the selector; `device` is `driver/pool/device`, the one it
    was evaluated on; `problem` says what CEL said.
    """

    def __init__(self, where: str, device: str, problem: CelError) -> None:
        self.where, self.device, self.problem = where, device, problem
        super().__init__(f"{where}, evaluated on device {device}: {problem}")

    @property
    def too_costly(self) -> bool:
        """Whether the evaluation was stopped at the cost limit of the scheduler."""
        return isinstance(self.problem, CelCostError)


class InvalidPoolsError(AllocationError):
    """Nothing fits on the node and a pool with devices for it is invalid; other nodes are still tried."""


class SearchLimitError(AllocationError):
    """The search took more steps than allowed; the real scheduler gives up by time (10 s by default)."""
