"""A machine made of files, with three network cards. `python tests/machine.py` writes it to `tree/host`."""

from dataclasses import replace

from dra_sdk.testing import FakeNode, write_tree
from dra_sdk.testing.sysfs import FakePci, regular_machine

INTERFACES = {"0000:3b:00.0": "eth1", "0000:5e:00.0": "eth2", "0000:00:1f.6": "eth0"}  # the node uses eth0
ROOT = "/sys/devices/pci0000:00"
NAMES = ["nic-0000-3b-00-0", "nic-0000-5e-00-0"]
UP, DOWN = "0x1003\n", "0x1002\n"


def plug(node: FakeNode) -> None:
    """Plug in the cards."""
    functions = (FakePci(address=address, driver="ice", numa_node=0) for address in INTERFACES)
    node.machine(replace(regular_machine(), pci=tuple(functions)))
    for address, name in INTERFACES.items():
        node.file(f"{ROOT}/{address}/net/{name}/flags", UP if name == "eth0" else DOWN)
        node.file(f"{ROOT}/{address}/net/{name}/mtu", "1500\n")
        node.file(f"{ROOT}/{address}/power/runtime_status", "active\n")


def unplug(node: FakeNode) -> None:
    """Unplug the first card."""
    node.remove("/sys/bus/pci/devices/0000:3b:00.0")


def fail(node: FakeNode) -> None:
    """Let the first card fail."""
    node.file(f"{ROOT}/0000:3b:00.0/power/runtime_status", "error\n")


def changed(node: FakeNode) -> str:
    """Return what a claim for the first card changes."""
    return node.path(f"{ROOT}/0000:3b:00.0/net/eth1/mtu").read_text().strip()


if __name__ == "__main__":
    print(f"wrote {write_tree(plug)}: edit it, and give it to commands as --host-root")
