"""A driver that gives whole CPUs to containers; all others run on the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dra_sdk import Claim, Device, DriverInfo, HeldClaim, Node, PermanentError, PreparedDevice
from dra_sdk.nri import Container, ContainerAdjustment, ContainerResources, PodSandbox

NAME = "cores.example.com"
ALL = frozenset(range(8))


class CoreDriver:
    """Eight CPUs, `core-0` to `core-7`, each a device. It records the hooks that are called for pods."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        for number in sorted(ALL):
            yield Device(f"core-{number}")

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared()

    def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        self.seen.append(f"run {pod.name} with {len(pod.claims)}")

    def dra_stop_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        self.seen.append(f"stop {pod.name} with {len(pod.claims)}")

    def dra_create_container(
        self, container: Container, held: Sequence[HeldClaim], node: Node
    ) -> ContainerAdjustment | None:
        if "REFUSE" in container.env:
            raise PermanentError("as the container asks")
        if "FAIL" in container.env:
            raise OSError("as the container asks")
        return ContainerAdjustment(env={"CPUS": str(len(cores(container.claims) or ALL - cores(held)))})

    def dra_synchronize(
        self, containers: Sequence[Container], held: Sequence[HeldClaim], node: Node
    ) -> Mapping[str, ContainerResources]:
        shared = ContainerResources(cpus=ALL - cores(held))
        return {
            container.id: ContainerResources(cpus=cores(container.claims)) if container.claims else shared
            for container in containers
        }

    def dra_remove_container(self, container: Container, node: Node) -> None:
        self.seen.append(f"remove {container.name}")


def cores(claims: Sequence[HeldClaim]) -> frozenset[int]:
    return frozenset(int(device.name.removeprefix("core-")) for claim in claims for device in claim.devices)
