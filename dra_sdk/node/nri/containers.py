"""The pods and containers of the node as the container runtime describes them, and the claims that each uses.

Runtimes before NRI 0.10 do not say which CDI devices a container has. So the SDK puts a variable into the containers of
each request, `DRA_CLAIM_<driver>_<claim's UID>_<request>`, and finds the claims of a container by its variables. Names
of drivers and requests have no underscore. A pod can use only claims of its own namespace, so a variable that somebody
wrote into another namespace's pod has no effect.

Source: containerd/nri pkg/api/api.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from dra_sdk.errors import ClaimError
from dra_sdk.hardware.cpuset import format_cpuset, parse_cpuset
from dra_sdk.model.claim import Claim, HeldClaim
from dra_sdk.model.container import Container, ContainerAdjustment, ContainerResources, PodSandbox, Report
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.node.files import safe_id
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

_NETWORK: Final = "network"
_END: Final = "\0"  # no variable contains it
_SETS: Final = 256
"""CPU lists that are kept: most containers have the same one."""
Requests = Mapping[str, frozenset[str]]
"""The requests that a container uses, by the claim's `safe_id`."""


def claim_variables(driver: str) -> Callable[[Claim[Any]], dict[str, ContainerEdits]]:
    """A function that returns, for each request of a claim, the variable for its containers."""

    def of(claim: Claim[Any]) -> dict[str, ContainerEdits]:
        requests = dict.fromkeys(each.base_request for each in claim.devices)
        return {each: ContainerEdits(env={_variable(driver, claim.uid, each): claim.name}) for each in requests}

    return of


def _variable(driver: str, uid: str, request: str) -> str:
    return f"{_prefix(driver)}{safe_id(uid)}_{request}"


def _prefix(driver: str) -> str:
    return f"DRA_CLAIM_{driver}_"


class _Environment(Mapping[str, str]):
    """A container's variables as one text: as a dict, those of 500 containers take some MiB."""

    __slots__ = ("_text",)

    def __init__(self, variables: Iterable[str]) -> None:
        self._text = _END.join(variables)

    def __getitem__(self, name: str) -> str:
        return self._variables()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables())

    def __len__(self) -> int:
        return len(self._variables())

    def __repr__(self) -> str:
        return repr(self._variables())

    def _variables(self) -> dict[str, str]:
        return dict(each.partition("=")[::2] for each in self._text.split(_END) if each)


@dataclass(frozen=True, slots=True)
class _Known:
    """A container of the table.

    container: the container without its claims.
    requests: what it uses.
    adjusted: the resources that the driver has wanted for it so far.
    """

    container: Container
    requests: Requests
    adjusted: ContainerResources = field(default_factory=ContainerResources)


class ContainerTable:
    """The pods and containers of the node, without those that have ended. Callers lock.

    driver: the name of the driver whose variables count.
    report: takes the statuses of devices that hooks report (`PodSandbox.report`).
    """

    def __init__(self, driver: str, report: Report = lambda _claim, _device, _status: None) -> None:
        self._prefix = _prefix(driver)
        self._driver = driver
        self._report = report
        self._pods: dict[str, PodSandbox] = {}
        self._containers: dict[str, _Known] = {}
        self._ended: dict[str, set[str]] = {}  # the claims that containers used which have ended, by the pod's id

    def replace(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> None:
        """Begin again with what a runtime describes when it connects."""
        self._pods = {each.id: self._pod(each) for each in pods}
        self._containers = {each.id: self._known(each, self._pods.get(each.pod_sandbox_id)) for each in containers}
        self._ended = {}
        for each in containers:
            if each.state == pb.CONTAINER_STOPPED:
                self.remove(each.id)

    def add_pod(self, message: pb.PodSandbox) -> None:
        """A pod's sandbox has started."""
        self._pods[message.id] = self._pod(message)

    def remove_pod(self, pod: str) -> None:
        """A pod's sandbox was removed, and so were its containers."""
        self._pods.pop(pod, None)
        self._ended.pop(pod, None)
        self._containers = {name: each for name, each in self._containers.items() if each.container.pod.id != pod}

    def add(self, pod: pb.PodSandbox, message: pb.Container) -> None:
        """A container is being created."""
        self._pods.setdefault(pod.id, self._pod(pod))
        self._containers[message.id] = self._known(message, self._pods[pod.id])

    def remove(self, container: str, *, refused: bool = False) -> bool:
        """A container has stopped, was removed or was refused; whether it was known.

        Unless it was refused, its pod is known to use its claims until the pod ends.
        """
        known = self._containers.pop(container, None)
        if known is not None and not refused and known.requests and known.container.pod.id in self._pods:
            self._ended.setdefault(known.container.pod.id, set()).update(known.requests)
        return known is not None

    def update(self, container: str, resources: ContainerResources, *, adjusted: bool) -> None:
        """Some resources of a container have changed; `adjusted` if the driver wanted it. Unknown ids are ignored."""
        if known := self._containers.get(container):
            resources = replace(resources, cpus=_same(resources.cpus), mems=_same(resources.mems))
            self._containers[container] = _Known(
                replace(known.container, resources=known.container.resources.changed(resources)),
                known.requests,
                known.adjusted.changed(resources) if adjusted else known.adjusted,
            )

    def forget_resources(self, container: str) -> None:
        """It is not known which resources a container has, so that it gets all that the driver wants."""
        if known := self._containers.get(container):
            self._containers[container] = replace(
                known, container=replace(known.container, resources=ContainerResources())
            )

    def difference(self, container: str, wanted: ContainerResources) -> ContainerResources | None:
        """What a container lacks of the wanted resources; None if nothing, or if the container is not known."""
        known = self._containers.get(container)
        return known.container.resources.different(wanted) if known else None

    def cgroup(self, container: str) -> str:
        """The cgroup of a container; empty if it is not known."""
        known = self._containers.get(container)
        return known.container.cgroup if known else ""

    def adjusted(self, container: str) -> ContainerResources:
        """The resources that the driver has wanted for a container so far."""
        known = self._containers.get(container)
        return known.adjusted if known else ContainerResources()

    def names_claim(self, message: pb.Container) -> bool:
        """Whether a container has a variable of this driver, be it valid or not."""
        return any(each.startswith(self._prefix) for each in message.env)

    def check(self, message: pb.Container, namespace: str, held: Sequence[HeldClaim]) -> None:
        """ClaimError if a container uses a claim or request that is not prepared, or has a malformed variable."""
        claims = {safe_id(each.uid): each for each in held}
        for name, requests in self._requests(message).items():
            claim = claims.get(name)
            if claim is None or claim.namespace != namespace:
                raise ClaimError(
                    f"container {message.name} uses claim {name}, which driver {self._driver} does not hold"
                )
            if not claim.complete or claim.rebooted:
                raise ClaimError(f"container {message.name} uses {claim}, which is not prepared")
            if unknown := requests - {each.base_request for each in claim.devices}:
                raise ClaimError(
                    f"container {message.name} uses request {min(unknown)!r} of {claim}, "
                    f"which has no device of driver {self._driver}"
                )

    def containers(self, held: Sequence[HeldClaim]) -> list[Container]:
        """All containers with their claims."""
        claims = {safe_id(each.uid): each for each in held}
        of_pods = self._claims_of_pods(claims)
        return [_with_claims(each, claims, of_pods) for each in self._containers.values()]

    def container(self, pod: pb.PodSandbox, message: pb.Container, held: Sequence[HeldClaim]) -> Container:
        """One container with its claims; it need not be in the table."""
        claims = {safe_id(each.uid): each for each in held}
        known = self._known(message, self._pods.get(pod.id) or self._pod(pod))
        return _with_claims(known, claims, self._claims_of_pods(claims))

    def pod(self, message: pb.PodSandbox, held: Sequence[HeldClaim]) -> PodSandbox:
        """A pod with its claims."""
        claims = {safe_id(each.uid): each for each in held}
        pod = self._pods.get(message.id) or self._pod(message)
        return replace(pod, claims=self._claims_of_pods(claims).get(pod.uid, ()))

    def _pod(self, message: pb.PodSandbox) -> PodSandbox:
        network = next((each.path for each in message.linux.namespaces if each.type == _NETWORK), "")
        return PodSandbox(
            message.id,
            message.namespace,
            message.name,
            message.uid,
            dict(message.labels),
            dict(message.annotations),
            (),
            message.linux.cgroup_parent,
            network,
            self._report,
        )

    def _known(self, message: pb.Container, pod: PodSandbox | None) -> _Known:
        try:
            requests = self._requests(message)
        except ClaimError:  # `check` has refused its creation, unless the driver was away then
            requests = {}
        return _Known(
            Container(
                message.id,
                message.name,
                pod or PodSandbox(message.pod_sandbox_id, "", "", ""),
                (),
                _Environment(message.env),
                resources_of(message.linux.resources),
                message.linux.cgroups_path,
            ),
            requests,
        )

    def _requests(self, message: pb.Container) -> Requests:
        found: dict[str, frozenset[str]] = {}
        for name in (each.partition("=")[0] for each in message.env if each.startswith(self._prefix)):
            claim, _, request = name.removeprefix(self._prefix).rpartition("_")
            if not claim or not request:
                raise ClaimError(
                    f"container {message.name}: variable {name} does not end with a claim's UID and request"
                )
            found[claim] = found.get(claim, frozenset()) | {request}
        return found

    def _claims_of_pods(self, claims: Mapping[str, HeldClaim]) -> dict[str, tuple[HeldClaim, ...]]:
        """By the UID of the pod: the claims that were reserved for it, then others that its containers use or used."""
        found: dict[str, dict[str, HeldClaim]] = {}
        for name, claim in claims.items():
            for pod in claim.pods:
                found.setdefault(pod, {})[name] = claim
        used = [(each.container.pod, name) for each in self._containers.values() for name in each.requests]
        used += [(self._pods[pod], name) for pod, names in self._ended.items() for name in sorted(names)]
        for user, name in used:
            if claim_of := _claim(claims, name, user):
                found.setdefault(user.uid, {})[name] = claim_of
        return {pod: tuple(each.values()) for pod, each in found.items()}


def _with_claims(
    known: _Known, claims: Mapping[str, HeldClaim], of_pods: Mapping[str, tuple[HeldClaim, ...]]
) -> Container:
    container = known.container
    if of_pod := of_pods.get(container.pod.uid):
        container = replace(container, pod=replace(container.pod, claims=of_pod))
    if not known.requests:
        return container
    used = []
    for name, requests in known.requests.items():
        if claim := _claim(claims, name, container.pod):
            devices = tuple(each for each in claim.devices if each.base_request in requests)
            used.append(replace(claim, devices=devices))
    return replace(container, claims=tuple(used))


def _claim(claims: Mapping[str, HeldClaim], name: str, pod: PodSandbox) -> HeldClaim | None:
    found = claims.get(name)
    return found if found is not None and found.namespace == pod.namespace else None


def resources_of(message: pb.LinuxResources) -> ContainerResources:
    """The resources of a message; None for those that it does not state, or not in a form that can be read."""
    cpu = message.cpu
    return ContainerResources(
        _numbers(cpu.cpus),
        _numbers(cpu.mems),
        cpu.quota.value if cpu.HasField("quota") else None,
        {each.page_size: each.limit for each in message.hugepage_limits},
    )


@lru_cache(maxsize=_SETS)
def _numbers(text: str) -> frozenset[int] | None:
    try:
        return parse_cpuset(text) or None
    except ValueError:
        return None


@lru_cache(maxsize=_SETS)
def _same(numbers: frozenset[int] | None) -> frozenset[int] | None:
    """An equal set that other containers have: with 128 CPUs each takes 8 KiB."""
    return numbers


def fill(message: pb.LinuxResources, resources: ContainerResources) -> None:
    """Write resources into a message."""
    if resources.cpus is not None:
        message.cpu.cpus = format_cpuset(resources.cpus)
    if resources.mems is not None:
        message.cpu.mems = format_cpuset(resources.mems)
    if resources.cpu_quota is not None:
        message.cpu.quota.value = resources.cpu_quota
    for size, limit in resources.hugepage_limits.items():
        message.hugepage_limits.add(page_size=size, limit=limit)


def update_of(container: str, resources: ContainerResources, *, ignore_failure: bool = True) -> pb.ContainerUpdate:
    """The update that gives a container these resources."""
    update = pb.ContainerUpdate(container_id=container, ignore_failure=ignore_failure)
    fill(update.linux.resources, resources)
    return update


def adjustment_of(adjustment: ContainerAdjustment, resources: ContainerResources | None) -> pb.ContainerAdjustment:
    """The adjustment of a container that is being created, with these resources."""
    message = pb.ContainerAdjustment(annotations=adjustment.annotations)
    for name, value in adjustment.env.items():
        message.env.add(key=name, value=value)
    if resources is not None:
        fill(message.linux.resources, resources)
    return message
