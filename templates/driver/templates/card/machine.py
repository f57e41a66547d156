"""A machine made of files, with two cards. `python tests/machine.py` writes it to `tree/host`."""

from dataclasses import replace

from dra_sdk.testing import FakeNode, write_tree
from dra_sdk.testing.sysfs import FakePci, regular_machine

ADDRESSES = ["0000:3b:00.0", "0000:5e:00.0"]
ROOT = "/sys/devices/pci0000:00"
NAMES = ["pci-0000-3b-00-0", "pci-0000-5e-00-0"]


def plug(node: FakeNode) -> None:
    """Plug in the cards."""
    cards = (FakePci(address=address, class_code=0x120000, driver="accel", numa_node=0) for address in ADDRESSES)
    node.machine(replace(regular_machine(), pci=tuple(cards)))
    for minor, address in enumerate(ADDRESSES):
        node.device_node(f"/dev/accel/accel{minor}", major=261, minor=minor)
        node.file(f"{ROOT}/{address}/accel/accel{minor}/uevent", f"DEVNAME=accel/accel{minor}\n")
        node.file(f"{ROOT}/{address}/power/runtime_status", "active\n")
{% block more %}{% endblock %}

def unplug(node: FakeNode) -> None:
    """Unplug the first card."""
    node.remove(f"/sys/bus/pci/devices/{ADDRESSES[0]}")


def fail(node: FakeNode) -> None:
    """Let the first card fail."""
    node.file(f"{ROOT}/{ADDRESSES[0]}/power/runtime_status", "error\n")

{% block changed %}{% endblock %}
if __name__ == "__main__":
    print(f"wrote {write_tree(plug)}: edit it, and give it to commands as --host-root")
