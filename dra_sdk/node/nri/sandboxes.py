"""The sandboxes for which `dra_run_pod_sandbox` has succeeded, and the calls of the hook for the others.

The hook runs when a sandbox starts. If it fails or is late, the sandbox starts nevertheless: containerd (2.1.9) does
not remove a sandbox that a plugin fails, and with two of one pod the pod does not start again. The containers of the
pod are refused instead. Before each is created, the hook runs again. So it also runs for a pod whose sandbox started
while the driver was away, and for a pod that begins to use a claim of another pod.
"""

from __future__ import annotations

from collections.abc import Collection
from threading import Condition
from typing import Final

from dra_sdk.errors import RetriableError
from dra_sdk.loader import Driver
from dra_sdk.model.container import PodSandbox
from dra_sdk.model.driver import Node
from dra_sdk.node.nri.session import StartRefusedError

WAIT_SECONDS: Final = 0.5
"""How long a call waits for an earlier one for the same sandbox: less than the time in which an event is answered."""


class Sandboxes:
    """Calls the hook for sandboxes, one call at a time for each.

    driver: the driver; without the hook, nothing is called.
    node: the node.
    """

    def __init__(self, driver: Driver, node: Node) -> None:
        self._has_hook = driver.implements("dra_run_pod_sandbox")
        self._driver, self._node = driver, node
        self._changed = Condition()
        self._ready: dict[str, frozenset[str]] = {}  # the UIDs of claims, by the id of the sandbox
        self._running: set[str] = set()

    def is_ready(self, sandbox: str) -> bool:
        """Return whether there is no hook, it has succeeded for this sandbox, or its pod has no claims."""
        with self._changed:
            return not self._has_hook or sandbox in self._ready

    def ensure(self, pod: PodSandbox) -> None:
        """Call the hook unless the pod has no claims, or it has succeeded for this sandbox with these claims.

        Raises what the hook raises, and RetriableError if an earlier call has not returned.
        """
        if not self._has_hook:
            return
        claims = frozenset(claim.uid for claim in pod.claims)
        with self._changed:
            if not claims:
                self._ready.setdefault(pod.id, claims)
                return
            if not self._changed.wait_for(lambda: pod.id not in self._running, WAIT_SECONDS):
                raise RetriableError(f"dra_run_pod_sandbox has not returned yet for {pod}")
            if claims <= self._ready.get(pod.id, frozenset()):
                return
            self._running.add(pod.id)
        succeeded = False
        try:
            self._driver.run_pod_sandbox(pod, self._node)
            succeeded = True
        finally:
            with self._changed:
                if succeeded and pod.id in self._running:
                    self._ready[pod.id] = claims
                self._running.discard(pod.id)
                self._changed.notify_all()

    def require(self, pod: PodSandbox) -> None:
        """Do the same before a container of the pod is created. Raises StartRefusedError."""
        try:
            self.ensure(pod)
        except Exception as error:
            raise StartRefusedError(str(error)) from error

    def forget(self, sandbox: str) -> None:
        """Forget a sandbox that has stopped or was removed."""
        with self._changed:
            self._ready.pop(sandbox, None)
            self._running.discard(sandbox)
            self._changed.notify_all()

    def retain(self, sandboxes: Collection[str]) -> None:
        """Forget all sandboxes but these: the runtime has no others."""
        with self._changed:
            ended = (self._ready.keys() | self._running) - {*sandboxes}
        for sandbox in ended:
            self.forget(sandbox)
