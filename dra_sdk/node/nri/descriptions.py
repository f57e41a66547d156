"""What a runtime describes: pods and containers, and the claims that a container names by its variables.

Runtimes before NRI 0.10 do not say which CDI devices a container has. So the SDK puts a variable into the containers of
each request, `DRA_CLAIM_<driver>_<claim's UID>_<request>`, and finds the claims of a container by its variables. Names
of drivers and requests have no underscore.

Source: containerd/nri pkg/api/api.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from dra_sdk.model.claim import Claim
from dra_sdk.model.container import Container, ContainerResources, PodSandbox, Report
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.node.files import safe_id
from dra_sdk.node.nri.messages import resources_of
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

_NETWORK: Final = "network"
_END: Final = "\0"  # no variable contains it
_SETS: Final = 256  # sets of CPUs that are kept: most containers have the same one
Requests = Mapping[str, frozenset[str]]
"""The requests that a container uses, by the claim's `safe_id`."""


def claim_variables(driver: str, claim: Claim[Any]) -> dict[str, ContainerEdits]:
    """Return for each request of a claim the variable for its containers."""
    requests = dict.fromkeys(device.base_request for device in claim.devices)
    begin = f"{prefix_of(driver)}{safe_id(claim.uid)}"
    return {request: ContainerEdits(env={f"{begin}_{request}": claim.name}) for request in requests}


def prefix_of(driver: str) -> str:
    """Return how the variables of a driver's claims begin."""
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
        return dict(variable.partition("=")[::2] for variable in self._text.split(_END) if variable)


@dataclass(frozen=True, slots=True)
class KnownContainer:
    """A container as the runtime describes it.

    container: the container without its claims.
    requests: what it uses; nothing if a variable is malformed.
    problem: what is wrong with its variables; empty if nothing is.
    adjusted: the resources that the driver has wanted for it so far.
    """

    container: Container
    requests: Requests
    problem: str = ""
    adjusted: ContainerResources = field(default_factory=ContainerResources)

    def changed(self, to: ContainerResources, *, adjusted: bool) -> KnownContainer:
        """Return the container with these resources; adjusted: they are what the driver wants for it."""
        to = replace(to, cpus=_same(to.cpus), mems=_same(to.mems))
        resources = self.container.resources.changed(to)
        wanted = self.adjusted.changed(to) if adjusted else self.adjusted
        return replace(self, container=replace(self.container, resources=resources), adjusted=wanted)


def described_pod(message: pb.PodSandbox, report: Report) -> PodSandbox:
    """Return a pod without its claims."""
    namespaces = message.linux.namespaces
    network = next((namespace.path for namespace in namespaces if namespace.type == _NETWORK), "")
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
        report,
    )


def described_container(message: pb.Container, pod: PodSandbox | None, prefix: str) -> KnownContainer:
    """Return a container with the claims that variables with this prefix name."""
    requests, problem = _requests(message, prefix)
    return KnownContainer(
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
        problem,
    )


def _requests(message: pb.Container, prefix: str) -> tuple[Requests, str]:
    """Return what a container uses by its variables, and what is wrong with them."""
    requests: dict[str, frozenset[str]] = {}
    for variable in message.env:
        if variable.startswith(prefix):
            name = variable.partition("=")[0]
            claim, _, request = name.removeprefix(prefix).rpartition("_")
            if not claim or not request:
                return {}, f"variable {name} does not end with a claim's UID and request"
            requests[claim] = requests.get(claim, frozenset()) | {request}
    return requests, ""


@lru_cache(maxsize=_SETS)
def _same(numbers: frozenset[int] | None) -> frozenset[int] | None:
    """Return an equal set that other containers have: with 128 CPUs each takes 8 KiB."""
    return numbers
