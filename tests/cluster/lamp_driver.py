"""The driver of the cluster tests: a lamp is a device node, a mount, and a variable for its brightness."""

from __future__ import annotations

from collections.abc import Iterator

from dra_sdk import AllocatedDevice, ContainerEdits, Device, DeviceNode, Mount, Node
from tests.lamps import LampConfig, LampDriver


class NodeLamps(LampDriver):
    """Lamps of two colours; containers tell those of their requests apart."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield from lamps()

    def edits(self, device: AllocatedDevice[LampConfig]) -> ContainerEdits:
        key = device.base_request.upper().replace("-", "_")
        env = {f"LAMP_{key}": device.name, f"BRIGHTNESS_{key}": str(device.config.brightness)}
        node = DeviceNode(f"/dev/{device.name}", host_path="/dev/null")
        return ContainerEdits(env=env, device_nodes=[node], mounts=[Mount("/etc/os-release", f"/etc/{device.name}")])


def lamps() -> list[Device]:
    return [
        Device(f"lamp-{number}", {"colour": "red" if number < 4 else "blue", "number": number}) for number in range(8)
    ]
