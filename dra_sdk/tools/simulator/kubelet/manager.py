"""What the kubelet does for a pod's claims: check, prepare per driver, remember, unprepare when the last pod goes.

Source: Kubernetes 1.36 pkg/kubelet/cm/dra/manager.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra_sdk.tools.simulator.kubelet import pods
from dra_sdk.tools.simulator.kubelet.errors import KubeletError, PodClaimError
from dra_sdk.tools.simulator.kubelet.findings import findings
from dra_sdk.tools.simulator.statuses import StatusError

if TYPE_CHECKING:
    from collections.abc import Container

    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.kubelet.calls import Caller
    from dra_sdk.tools.simulator.kubelet.claims import ClaimCache, ClaimInfo
    from dra_sdk.tools.simulator.kubelet.plugins import Plugin, Plugins
    from dra_sdk.tools.simulator.kubelet.records import Records
    from dra_sdk.tools.simulator.local import LocalClient


class ClaimManager:
    """Prepares and unprepares the claims of pods. Methods raise any `KubeletError`."""

    def __init__(self, api: LocalClient, plugins: Plugins, cache: ClaimCache, caller: Caller, records: Records) -> None:
        self._api = api
        self._plugins = plugins
        self.cache = cache
        self._caller = caller
        self._records = records

    def prepare(self, pod: JSON) -> pods.RunningPod:
        """Prepares what is not prepared yet, one call per driver for all of the pod's claims; stops at the first error.

        Nothing is remembered unless all claims are fit and all drivers are registered, so that a pod that cannot start
        can be deleted. Claims count as prepared only when all drivers have succeeded.
        """
        found = [(pod_claim, self._claim(pod, pod_claim)) for pod_claim in pods.pod_claims(pod)]
        wanted = [pods.check_claim(pod, pod_claim, claim) for pod_claim, claim in found]
        plugins = {driver: self._plugins.get(driver) for info in wanted for driver in info.drivers}
        infos = self.cache.reference(pod["metadata"]["uid"], wanted)
        unprepared = [info for info in infos if not info.prepared]
        for driver, plugin in plugins.items():
            self._prepare_with(plugin, [info for info in unprepared if driver in info.drivers])
        self.cache.change(lambda: _mark_prepared(unprepared))
        for (_, claim), info in zip(found, infos, strict=True):
            for finding in findings(claim, info.devices):
                self._records.find(finding)
        metadata = pod["metadata"]
        named = {pod_claim.name: info for (pod_claim, _), info in zip(found, infos, strict=True)}
        return pods.RunningPod(
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            {name: info.ref for name, info in named.items()},
            {name: info.devices for name, info in named.items()},
            pods.container_requests(pod),
        )

    def unprepare(self, pod_uid: str) -> None:
        """Lets go of the pod's claims; those that no other pod holds are unprepared. On an error the pod keeps them."""
        held = self.cache.of_pod(pod_uid)
        shared = [info for info in held if len(info.pod_uids) > 1]
        last = [info for info in held if len(info.pod_uids) == 1]

        def let_go() -> None:
            for info in shared:
                info.pod_uids.discard(pod_uid)

        self.cache.change(let_go)
        drivers = dict.fromkeys(driver for info in last for driver in info.drivers)
        for driver in drivers:
            claims = [info.ref for info in last if driver in info.drivers]
            self._caller.unprepare(self._plugins.get(driver), claims)
        self.cache.drop(last)

    def reconcile(self, active: Container[str]) -> list[KubeletError]:
        """Unprepares for every pod that holds claims and is not `active`; returns what went wrong."""
        gone = {uid for info in self.cache.all() for uid in info.pod_uids if uid not in active}
        errors: list[KubeletError] = []
        for uid in sorted(gone):
            try:
                self.unprepare(uid)
            except KubeletError as error:
                errors.append(error)
        return errors

    def _claim(self, pod: JSON, pod_claim: pods.PodClaim) -> JSON:
        namespace = pod["metadata"]["namespace"]
        try:
            return self._api.get("resourceclaims", pod_claim.claim, namespace)
        except StatusError as error:
            name = f"{namespace}/{pod_claim.claim}"
            raise PodClaimError(
                "claim-exists", f"fetch ResourceClaim {pod_claim.claim}: {error}", claim=name
            ) from error

    def _prepare_with(self, plugin: Plugin, infos: list[ClaimInfo]) -> None:
        if not infos:
            return
        answers = self._caller.prepare(plugin, [info.ref for info in infos])

        def remember() -> None:
            for info in infos:
                info.drivers[plugin.info.driver] = answers[info.ref.uid]

        self.cache.change(remember)


def _mark_prepared(infos: list[ClaimInfo]) -> None:
    for info in infos:
        info.prepared = True
