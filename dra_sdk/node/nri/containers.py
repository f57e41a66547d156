"""The pods and containers of the node as the container runtime describes them, and the claims that each uses.

Anybody can write the variable of a claim into a pod (`descriptions`), so a claim counts for a pod only if the claim is
reserved for it; where that is not known yet, the claim is read again (`Preparer.admit`).

Source: containerd/nri pkg/api/api.proto.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock

from dra_sdk.errors import ClaimError, DraError, NriError, RetriableError
from dra_sdk.model.claim import HeldClaim
from dra_sdk.model.container import Container, ContainerResources, PodSandbox, Report
from dra_sdk.node.files import safe_id
from dra_sdk.node.nri.descriptions import KnownContainer, described_container, described_pod, prefix_of
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)
Updates = Mapping[str, ContainerResources]
"""Resources that change, by container id."""
Admit = Callable[[HeldClaim, PodSandbox, Collection[str]], None]
"""Records that a pod uses a claim, given the UIDs of all pods; ClaimError if not, another error if unknown."""


def admit_none(claim: HeldClaim, pod: PodSandbox, _pods: Collection[str]) -> None:
    """Raise ClaimError: no pod uses a claim but those that it was reserved for when it was prepared."""
    raise ClaimError(f"{claim} is not reserved for {pod} ({pod.uid})")


class DamagedClaimError(ClaimError):
    """A container uses a claim whose state file is damaged."""


@dataclass(frozen=True, slots=True)
class ContainerSnapshot:
    """The claims and containers of the node at one moment: what hooks about containers get.

    held: all claims that hold devices of the driver.
    containers: containers with their claims, by id. Their claims are among `held`.
    """

    held: Sequence[HeldClaim]
    containers: Mapping[str, Container]

    def changed(self, name: str, resources: ContainerResources) -> ContainerSnapshot:
        """Return the snapshot in which a container has these resources too. Ignore an unknown id."""
        if name not in self.containers or resources == ContainerResources():
            return self
        container = self.containers[name]
        changed = replace(container, resources=container.resources.changed(resources))
        return replace(self, containers={**self.containers, name: changed})


class ContainerTable:
    """The pods and containers of the node, without those that have ended, and their claims. Safe for threads.

    driver: the name of the driver whose variables count.
    held: returns all claims that hold devices of the driver; must be quick. Its DraErrors are those of methods that
        return pods or containers with claims.
    report: takes the statuses of devices that hooks report (`PodSandbox.report`).
    admit: decides whether a pod that is not among a claim's pods uses it.
    """

    def __init__(
        self,
        driver: str,
        held: Callable[[], Sequence[HeldClaim]],
        report: Report = lambda _claim, _device, _status: None,
        admit: Admit = admit_none,
    ) -> None:
        self._driver, self._held, self._report, self._admit = driver, held, report, admit
        self._prefix = prefix_of(driver)
        self._lock = RLock()
        self._pods: dict[str, PodSandbox] = {}
        self._containers: dict[str, KnownContainer] = {}
        self._ended: dict[str, set[str]] = {}  # the claims that containers used which have ended, by the pod's id
        self._refused: dict[tuple[str, str], ClaimError] = {}  # by claim and pod, of containers that run nevertheless

    # -- what the runtime says

    def replace(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> None:
        """Begin again with what a runtime describes when it connects."""
        with self._lock:
            self._pods = {pod.id: self._pod(pod) for pod in pods}
            self._containers = {
                container.id: self._known(container, self._pods.get(container.pod_sandbox_id))
                for container in containers
            }
            self._ended, self._refused = {}, {}
            for container in containers:
                if container.state == pb.CONTAINER_STOPPED:
                    self.remove(container.id)

    def add_pod(self, message: pb.PodSandbox) -> None:
        """Add a pod whose sandbox has started."""
        with self._lock:
            self._pods[message.id] = self._pod(message)

    def remove_pod(self, pod: str) -> None:
        """Remove a pod whose sandbox was removed, with its containers."""
        with self._lock:
            self._pods.pop(pod, None)
            self._ended.pop(pod, None)
            self._containers = {
                name: known for name, known in self._containers.items() if known.container.pod.id != pod
            }

    def add(self, pod: pb.PodSandbox, message: pb.Container) -> None:
        """Add a container that is being created."""
        with self._lock:
            if pod.id not in self._pods:
                self._pods[pod.id] = self._pod(pod)
            self._containers[message.id] = self._known(message, self._pods[pod.id])

    def remove(self, container: str, *, refused: bool = False) -> bool:
        """Remove a container that has stopped, was removed or was refused. Return whether it was known.

        Unless it was refused, its pod is known to use its claims until the pod ends.
        """
        with self._lock:
            known = self._containers.pop(container, None)
            if known is not None and not refused and known.requests and known.container.pod.id in self._pods:
                self._ended.setdefault(known.container.pod.id, set()).update(known.requests)
            return known is not None

    # -- resources of containers; those that are not known are ignored

    def update(self, container: str, resources: ContainerResources) -> None:
        """Record that some resources of a container have changed."""
        self._change({container: resources}, adjusted=False)

    def record(self, updates: Updates) -> None:
        """Record that containers have what the driver wanted for them."""
        self._change(updates, adjusted=True)

    def forget_resources(self, containers: Iterable[str]) -> None:
        """Forget which resources containers have, so that they get all that the driver wants."""
        with self._lock:
            for name in containers:
                if known := self._containers.get(name):
                    forgotten = replace(known.container, resources=ContainerResources())
                    self._containers[name] = replace(known, container=forgotten)

    def differences(self, wanted: Updates) -> dict[str, ContainerResources]:
        """Return what containers lack of these resources, without those that lack nothing."""
        differences = {}
        with self._lock:
            for container, resources in wanted.items():
                known = self._containers.get(container)
                if known and (lacking := known.container.resources.different(resources)):
                    differences[container] = lacking
        return differences

    def adjusted(self, container: str) -> ContainerResources:
        """Return the resources that the driver has wanted for a container so far."""
        with self._lock:
            known = self._containers.get(container)
            return known.adjusted if known else ContainerResources()

    def cgroup(self, container: str) -> str:
        """Return the cgroup of a container; empty if it is not known."""
        with self._lock:
            known = self._containers.get(container)
            return known.container.cgroup if known else ""

    # -- claims

    def names_claim(self, message: pb.Container) -> bool:
        """Return whether a container has a variable of this driver, be it valid or not."""
        return any(variable.startswith(self._prefix) for variable in message.env)

    def is_reserved(self, pod: str) -> bool:
        """Return whether a claim is known to be reserved for the pod with this UID."""
        return any(pod in claim.pods for claim in self._held())

    def admit(self, container: Container) -> bool:
        """Find out whether the pod of a container that is being created uses its claims; False if it was known.

        Raises ClaimError if it does not, another DraError if that is not known.
        """
        unknown = [claim for claim in container.claims if container.pod.uid not in claim.pods]
        for claim in unknown:
            self._admit(claim, container.pod, self._pod_uids())
        return bool(unknown)

    def admit_running(self) -> bool:
        """Find out the same for all containers, and keep in mind which claims do not count. True if there are any new.

        They were created while the driver was away. Until it is known, their claims count. Raises the last DraError of
        those that are no decision.
        """
        refused = False
        undecided: DraError | None = None
        for claim, pod in self._unknown():
            try:
                self._admit(claim, pod, self._pod_uids())
            except RetriableError as error:
                undecided = error
            except ClaimError as error:
                log.warning("%s; a container that names it was created without the driver", error)
                self._refused[safe_id(claim.uid), pod.uid] = error
                refused = True
            except DraError as error:
                undecided = error
        if undecided is not None:
            raise undecided
        return refused

    def admit_pod(self, message: pb.PodSandbox) -> None:
        """Find out which prepared claims of its namespace a pod uses whose sandbox starts."""
        pod = self._pod(message)
        for claim in self._held():
            if claim.namespace == pod.namespace and pod.uid not in claim.pods and claim.complete:
                try:
                    self._admit(claim, pod, self._pod_uids())
                except DraError as error:  # a container that uses the claim asks again
                    log.debug("%s", error)

    def snapshot(self, only: str = "") -> ContainerSnapshot:
        """Return all claims, and all containers with theirs, or only the one with this id."""
        held = self._held()
        claims = _by_id(held)
        with self._lock:
            of_pods = self._claims_of_pods(claims)
            names = self._containers.keys() & {only} if only else self._containers
            return ContainerSnapshot(
                held, {name: self._with_claims(self._containers[name], claims, of_pods) for name in names}
            )

    def check(self, container: str, snapshot: ContainerSnapshot) -> Container:
        """Return a container of the snapshot. ClaimError if it uses a claim or request that is not prepared.

        DamagedClaimError if it is not known what is prepared.
        """
        with self._lock:
            known = self._containers.get(container)
        if known is None or container not in snapshot.containers:
            raise NriError(f"container {container} has ended while it was created")
        name, namespace = f"container {known.container.name}", known.container.pod.namespace
        if known.problem:
            raise ClaimError(f"{name}: {known.problem}")
        claims = _by_id(snapshot.held) if known.requests else {}
        for uid, requests in known.requests.items():
            claim = claims.get(uid)
            if claim is not None and claim.damaged:
                raise DamagedClaimError(
                    f"{name} uses claim {uid}, whose state file is damaged: `dra-sdk state {self._driver}` shows, "
                    f"repairs or forgets it"
                )
            if refusal := self._refused.get((uid, known.container.pod.uid)):
                raise ClaimError(f"{name}: {refusal}")
            if claim is None or claim.namespace != namespace:
                raise ClaimError(f"{name} uses claim {uid}, which driver {self._driver} does not hold")
            if not claim.complete or claim.rebooted:
                raise ClaimError(f"{name} uses {claim}, which is not prepared")
            if unknown := requests - {device.base_request for device in claim.devices}:
                raise ClaimError(
                    f"{name} uses request {min(unknown)!r} of {claim}, which has no device of driver {self._driver}"
                )
        return snapshot.containers[container]

    def container(self, pod: pb.PodSandbox, message: pb.Container) -> Container:
        """Return a container with its claims; it need not be in the table."""
        claims = _by_id(self._held())
        with self._lock:
            known = self._known(message, self._pods.get(pod.id) or self._pod(pod))
            return self._with_claims(known, claims, self._claims_of_pods(claims))

    def pod(self, message: pb.PodSandbox) -> PodSandbox:
        """Return a pod with its claims; it need not be in the table."""
        claims = _by_id(self._held())
        with self._lock:
            pod = self._pods.get(message.id) or self._pod(message)
            return replace(pod, claims=self._claims_of_pods(claims).get(pod.uid, ()))

    # -- inside

    def _pod(self, message: pb.PodSandbox) -> PodSandbox:
        return described_pod(message, self._report)

    def _known(self, message: pb.Container, pod: PodSandbox | None) -> KnownContainer:
        return described_container(message, pod, self._prefix)

    def _change(self, changes: Updates, *, adjusted: bool) -> None:
        with self._lock:
            for name, resources in changes.items():
                if known := self._containers.get(name):
                    self._containers[name] = known.changed(resources, adjusted=adjusted)

    def _claims_of_pods(self, claims: Mapping[str, HeldClaim]) -> dict[str, tuple[HeldClaim, ...]]:
        """Return by the UID of the pod the claims that were reserved for it, then others that its containers used."""
        of_pods: dict[str, dict[str, HeldClaim]] = {}
        for name, claim in claims.items():
            for pod in claim.pods:
                of_pods.setdefault(pod, {})[name] = claim
        used = [(known.container.pod, name) for known in self._containers.values() for name in known.requests]
        used += [(self._pods[pod], name) for pod, names in self._ended.items() for name in sorted(names)]
        for user, name in used:
            if claim_of := self._claim(claims, name, user):
                of_pods.setdefault(user.uid, {})[name] = claim_of
        return {pod: tuple(by_name.values()) for pod, by_name in of_pods.items()}

    def _with_claims(
        self, known: KnownContainer, claims: Mapping[str, HeldClaim], of_pods: Mapping[str, tuple[HeldClaim, ...]]
    ) -> Container:
        pod = known.container.pod
        if not known.requests and pod.uid not in of_pods:
            return known.container
        used = []
        for name, requests in known.requests.items():
            if claim := self._claim(claims, name, pod):
                devices = tuple(device for device in claim.devices if device.base_request in requests)
                used.append(replace(claim, devices=devices))
        pod = replace(pod, claims=of_pods.get(pod.uid, ()))
        return replace(known.container, pod=pod, claims=tuple(used))

    def _claim(self, claims: Mapping[str, HeldClaim], name: str, pod: PodSandbox) -> HeldClaim | None:
        """Return the claim that a container of a pod names, unless the pod does not use it."""
        claim = claims.get(name)
        if claim is None or (name, pod.uid) in self._refused:
            return None
        if claim.damaged and not claim.namespace:  # nobody but the runtime knows whose it is
            return claim
        return claim if claim.namespace == pod.namespace else None

    def _unknown(self) -> list[tuple[HeldClaim, PodSandbox]]:
        """Return the claims that containers name whose pods are not known to use them."""
        claims = _by_id(self._held())
        with self._lock:
            used = [(known.container.pod, name) for known in self._containers.values() for name in known.requests]
            named = {(name, pod.uid): (self._claim(claims, name, pod), pod) for pod, name in used}
        return [(claim, pod) for claim, pod in named.values() if claim and claim.complete and pod.uid not in claim.pods]

    def _pod_uids(self) -> set[str]:
        with self._lock:
            return {pod.uid for pod in self._pods.values()}


def _by_id(held: Iterable[HeldClaim]) -> dict[str, HeldClaim]:
    return {safe_id(claim.uid): claim for claim in held}
