"""A machine made of files, with two PCI functions. `python tests/machine.py` writes it to `tree/host`."""

from dataclasses import replace

from dra_sdk.testing import FakeNode, write_tree
from dra_sdk.testing.sysfs import FakePci, regular_machine

ADDRESSES = ["0000:3b:00.0", "0000:5e:00.0"]
ROOT = "/sys/devices/pci0000:00"
NAMES = ["pci-0000-3b-00-0", "pci-0000-5e-00-0"]


def plug(node: FakeNode) -> None:
    """Plug in the functions."""
    functions = (FakePci(address=address, class_code=0x120000, driver="accel", numa_node=0) for address in ADDRESSES)
    node.machine(replace(regular_machine(), pci=tuple(functions)))
    for minor, address in enumerate(ADDRESSES):
        node.device_node(f"/dev/accel/accel{minor}", major=261, minor=minor)
        node.file(f"{ROOT}/{address}/accel/accel{minor}/uevent", f"DEVNAME=accel/accel{minor}\n")
        node.file(f"{ROOT}/{address}/power/control", "auto\n")
        node.file(f"{ROOT}/{address}/power/runtime_status", "active\n")


def unplug(node: FakeNode) -> None:
    """Unplug the first function."""
    node.remove(f"/sys/bus/pci/devices/{ADDRESSES[0]}")


def fail(node: FakeNode) -> None:
    """Let the first function fail."""
    node.file(f"{ROOT}/{ADDRESSES[0]}/power/runtime_status", "error\n")


def changed(node: FakeNode) -> str:
    """Return what a claim for the first function changes."""
    return node.path(f"{ROOT}/{ADDRESSES[0]}/power/control").read_text().strip()


if __name__ == "__main__":
    print(f"wrote {write_tree(plug)}: edit it, and give it to commands as --host-root")
