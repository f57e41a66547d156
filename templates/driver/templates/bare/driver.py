"""A DRA driver for devices that are no hardware, such as seats of a licence."""

from collections.abc import Iterator

from dra_sdk import Claim, ContainerEdits, Device, DriverInfo, Node, OpaqueConfig, PreparedDevice
from pydantic import Field

NAME = "{{ cookiecutter.driver_name }}"
SEATS = 4


class {{ cookiecutter.__class }}Config(OpaqueConfig, api_version=f"{NAME}/v1"):
    """What a claim may set: how urgent the work is."""

    priority: int = Field(default=0, ge=0, le=9)


class {{ cookiecutter.__class }}Driver:
    """The three hooks that every driver has. The others are below, as comments."""

    def dra_driver_info(self) -> DriverInfo:
        """Return the name, and the classes of configuration."""
        return DriverInfo(NAME, configs=[{{ cookiecutter.__class }}Config])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield what is published. Claims select devices by attributes; `hardware` comes back in `dra_prepare`."""
        for number in range(SEATS):
            yield Device(f"seat-{number}", attributes={"number": number}, hardware=number)

    def dra_prepare(self, claim: Claim[{{ cookiecutter.__class }}Config]) -> Iterator[PreparedDevice]:
        """Say what the containers get. Variables have the name of the request, as a container may have several."""
        for device in claim.devices:
            name = device.base_request.upper().replace("-", "_")
            env = {f"{name}_SEAT": str(device.hardware), f"{name}_PRIORITY": str(device.config.priority)}
            yield device.prepared(ContainerEdits(env=env))

    # A driver that changes something on the node undoes it. Before the change: claim.journal({"file": …, "before": …})
    #
    # def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
    #     """Restore what the journal records, newest first."""
    #     for entry in reversed(claim.journal):
    #         Path(entry["file"]).write_text(entry["before"])
    #
    # A driver whose devices come and go says so (`from dra_sdk.hardware import polling`):
    #
    # def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
    #     """Discover again when the snapshot has changed; it is taken every two seconds."""
    #     polling.watch(lambda: tuple(sorted(node.dev.glob("seat*"))), changed, stop, 2)
    #
    # A driver whose devices may fail says so (`from dra_sdk.hardware.health import watch`; HealthTracker has history):
    #
    # def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
    #     """Yield the health of all devices every second."""
    #     seats = [f"seat-{number}" for number in range(SEATS)]
    #     return watch(lambda: [DeviceHealth(seat, HealthStatus.HEALTHY) for seat in seats], stop, 1, "the seats")
    #
    # A driver that acts when pods and containers start says so; the container runtime must have NRI on:
    #
    # def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
    #     """Act before the containers of a pod with claims of this driver are created."""
    #
    # def dra_stop_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
    #     """Act when such a pod ends; not after a crash of the node, so `dra_unprepare` undoes what must be undone."""
    #
    # def dra_create_container(
    #     self, container: Container, held: Sequence[HeldClaim], node: Node
    # ) -> ContainerAdjustment | None:
    #     """Return what changes in a container that is created, also in one without claims."""
    #     return ContainerAdjustment(env={"SEATS_TAKEN": str(len(held))})
    #
    # def dra_synchronize(
    #     self, containers: Sequence[Container], held: Sequence[HeldClaim], node: Node
    # ) -> Mapping[str, ContainerResources]:
    #     """Return the resources that containers must have now, by id, such as CPUs; called after every change."""
    #     return {}
    #
    # def dra_remove_container(self, container: Container, node: Node) -> None:
    #     """Act after a container was removed, perhaps more than once."""
    #
    # A driver that can draw who uses what does so for `dra-sdk {{ cookiecutter.__project }} top`:
    #
    # def dra_top(self, node: Node, held: Sequence[HeldClaim]) -> Iterator[str]:
    #     """Yield the lines of the picture."""
    #     yield f"{len(held)} of {SEATS} seats are taken"
    #
    # A driver that measures something adds it to `/metrics`:
    #
    # def dra_metrics(self, node: Node, held: Sequence[HeldClaim]) -> Iterator[Gauge]:
    #     """Yield the values now, whenever the page is read."""
    #     yield Gauge("seats_taken", "Seats that claims have", sum(len(claim.devices) for claim in held))
