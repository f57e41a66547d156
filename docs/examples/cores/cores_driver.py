"""A driver that gives whole CPUs to containers: nobody else runs on them."""

from collections.abc import Iterator, Mapping, Sequence

from dra_sdk import Claim, Device, DriverInfo, HeldClaim, Node, PermanentError, PreparedDevice
from dra_sdk.hardware import CpuSet, read_cpuset
from dra_sdk.nri import Container, ContainerResources

SHARED = 1  # CPUs that are left for all other containers


class CoresDriver:
    """Each CPU that is online is a device."""

    def dra_driver_info(self) -> DriverInfo:
        """Return the driver's name."""
        return DriverInfo("cores.example.com")

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Return the CPUs that are online."""
        for number in sorted(online(node)):
            yield Device(f"cpu-{number}")

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        """Nothing is changed before a container starts."""
        wanted = {number(device.name) for device in claim.devices}
        if len(online(claim.node) - wanted - numbers(claim.held())) < SHARED:
            raise PermanentError(f"{SHARED} CPU must stay free for containers without claims")
        for device in claim.devices:
            yield device.prepared()

    def dra_synchronize(
        self, containers: Sequence[Container], held: Sequence[HeldClaim], node: Node
    ) -> Mapping[str, ContainerResources]:
        """Give a container with claims their CPUs, and all others the rest."""
        shared = ContainerResources(cpus=online(node) - numbers(held))
        return {
            container.id: ContainerResources(cpus=numbers(container.claims)) if container.claims else shared
            for container in containers
        }


def online(node: Node) -> CpuSet:
    return read_cpuset(node.sys / "devices/system/cpu/online")


def number(name: str) -> int:
    return int(name.removeprefix("cpu-"))


def numbers(claims: Sequence[HeldClaim]) -> CpuSet:
    return frozenset(number(device.name) for claim in claims for device in claim.devices)
