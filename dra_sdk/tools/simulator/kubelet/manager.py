"""What the kubelet does with a pod's claims: check them, call each driver, remember, unprepare with the last pod.

Source: Kubernetes 1.36 pkg/kubelet/cm/dra/manager.go. `findings` adds what the kubelet itself does not check.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.claim import base_request
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_results
from dra_sdk.tools.simulator.kubelet import pods
from dra_sdk.tools.simulator.kubelet.claims import ClaimCache, ClaimInfo
from dra_sdk.tools.simulator.kubelet.plugins import Plugins, RegisteredPlugin
from dra_sdk.tools.simulator.kubelet.records import (
    AnsweredDevice,
    AnswerFinding,
    KubeletError,
    PodClaimError,
)
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.statuses import StatusError
from dra_sdk.wire.cdi import parse_qualified_name


class ClaimManager:
    """Prepares and unprepares the claims of pods. Methods raise any `KubeletError`."""

    def __init__(self, api: LocalClient, plugins: Plugins, cache: ClaimCache) -> None:
        self._api = api
        self._plugins = plugins
        self.cache = cache

    def prepare(self, pod: JSON) -> pods.RunningPod:
        """Prepare the claims that are not prepared, with one call per driver for all of them; end at the first error.

        Nothing is remembered unless the pod may use all claims and all drivers are registered: a pod that cannot start
        can then be deleted. Claims count as prepared when all drivers have succeeded.
        """
        claims = [(pod_claim, self._claim(pod, pod_claim)) for pod_claim in pods.pod_claims(pod)]
        wanted = [pods.check_claim(pod, pod_claim, claim) for pod_claim, claim in claims]
        plugins = {driver: self._plugins.get(driver) for info in wanted for driver in info.drivers}
        infos = self.cache.add_pod(pod["metadata"]["uid"], wanted)
        unprepared = [info for info in infos if not info.prepared]
        for driver, plugin in plugins.items():
            self._prepare_with(plugin, [info for info in unprepared if driver in info.drivers])
        with self.cache.changing():
            for info in unprepared:
                info.prepared = True
        for (_, claim), info in zip(claims, infos, strict=True):
            for finding in findings(claim, info.devices):
                self._plugins.records.add_finding(finding)
        metadata = pod["metadata"]
        named = {pod_claim.name: info for (pod_claim, _), info in zip(claims, infos, strict=True)}
        return pods.RunningPod(
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            {name: info.ref for name, info in named.items()},
            {name: info.devices for name, info in named.items()},
            pods.container_requests(pod),
        )

    def unprepare(self, pod_uid: str) -> None:
        """Remove the pod from its claims and unprepare those that no other pod uses; on an error these stay."""
        held = self.cache.of_pod(pod_uid)
        shared = [info for info in held if len(info.pod_uids) > 1]
        last = [info for info in held if len(info.pod_uids) == 1]
        with self.cache.changing():
            for info in shared:
                info.pod_uids.discard(pod_uid)
        for driver in dict.fromkeys(driver for info in last for driver in info.drivers):
            claims = [info.ref for info in last if driver in info.drivers]
            self._plugins.get(driver).unprepare(claims)
        self.cache.delete(last)

    def reconcile(self, active: Container[str]) -> list[KubeletError]:
        """Unprepare for every pod that has claims and is not `active`; return the errors."""
        ended = {uid for info in self.cache.all() for uid in tuple(info.pod_uids) if uid not in active}
        errors: list[KubeletError] = []
        for uid in sorted(ended):
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
            why = f"fetch ResourceClaim {pod_claim.claim}: {error}"
            raise PodClaimError("claim-exists", why, claim=f"{namespace}/{pod_claim.claim}") from error

    def _prepare_with(self, plugin: RegisteredPlugin, infos: list[ClaimInfo]) -> None:
        if not infos:
            return
        answers = plugin.prepare([info.ref for info in infos])
        with self.cache.changing():
            for info in infos:
                info.drivers[plugin.info.driver] = answers[info.ref.uid]


def findings(claim: JSON, devices: Iterable[AnsweredDevice]) -> Iterator[AnswerFinding]:
    """Compare the devices that drivers answered for a claim with its allocation."""
    name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    for device in devices:
        for rule, why in _broken_rules(claim_results(claim), device):
            yield AnswerFinding(rule, device.driver, name, f"device {device.pool}/{device.device}: {why}")


def _broken_rules(results: list[JSON], device: AnsweredDevice) -> Iterator[tuple[str, str]]:
    own = [result for result in results if result["driver"] == device.driver]
    requests = {base_request(result["request"]) for result in own}
    for request in device.requests:
        if "/" in request:
            yield "base-request", f"request {request!r} must be given as {base_request(request)!r}"
        elif request not in requests:
            yield "known-request", f"the driver's allocation has no request {request!r}, only {sorted(requests)}"
    same = [result for result in own if (result["pool"], result["device"]) == (device.pool, device.device)]
    if not same:
        yield "allocated-device", "it is not among the claim's allocation results"
    elif device.share_id not in {result.get("shareID") for result in same}:
        shares = sorted(str(result.get("shareID")) for result in same)
        yield "share-id", f"share_id is {device.share_id!r}, the allocation has {', '.join(shares)}"
    for cdi_id in device.cdi_ids:
        try:
            parse_qualified_name(cdi_id)
        except InvalidObjectError as error:
            yield "cdi-name", str(error)
