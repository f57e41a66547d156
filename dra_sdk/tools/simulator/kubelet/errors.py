"""What the kubelet holds against a driver, each error naming the driver, its socket, the claim and the rule.

```
KubeletError
├── RegistrationError     a registration attempt failed (recorded, retried)
├── NotRegisteredError    no instance of the driver is registered
├── DriverCallError       the gRPC call itself failed; `code` is its status
├── ResponseError         the answer breaks a rule or reports an error for a claim
├── PodClaimError         the claim cannot be prepared for this pod; the driver was not asked
├── CheckpointError       the kubelet's state file cannot be read
└── StoppedError          the kubelet is not running
```
"""

from __future__ import annotations

from dra_sdk.errors import DraError


class KubeletError(DraError):
    """Base of all. `rule` is a short stable name for what was broken; other fields are "" where they do not apply."""

    def __init__(self, rule: str, why: str, *, driver: str = "", socket: str = "", claim: str = "") -> None:
        where = [
            f"{what} {value}" for what, value in (("driver", driver), ("socket", socket), ("claim", claim)) if value
        ]
        super().__init__(f"{why} [{', '.join([*where, rule])}]")
        self.rule = rule
        self.why = why
        self.driver = driver
        self.socket = socket
        self.claim = claim


class RegistrationError(KubeletError):
    """An attempt to register failed. Rules: dial, get-info, plugin-type, supported-versions, endpoint-taken, notify."""


class NotRegisteredError(KubeletError):
    """No instance of the driver is registered. Rule: registered."""


class DriverCallError(KubeletError):
    """The call failed as a whole. Rule: call; `code` is the gRPC status, such as DEADLINE_EXCEEDED."""

    def __init__(self, why: str, *, code: str, driver: str, socket: str) -> None:
        super().__init__("call", why, driver=driver, socket=socket)
        self.code = code


class ResponseError(KubeletError):
    """The answer is not acceptable. Rules: unknown-claim, missing-claim, claim-error."""


class PodClaimError(KubeletError):
    """The claim is not fit. Rules: claim-exists, claim-owner, claim-reserved, claim-allocated, claim-replaced."""


class CheckpointError(KubeletError):
    """The kubelet's state file is damaged. Rule: checkpoint."""


class StoppedError(KubeletError):
    """The kubelet is not running. Rule: running."""
