"""A machine made of files, with two devices. `python tests/machine.py` writes it to `tree/host`."""

from dra_sdk.testing import FakeNode, write_tree

from {{ cookiecutter.__package }}.driver import SUBSYSTEM

CLASS = f"/sys/class/{SUBSYSTEM}"
DEVICES = [f"{SUBSYSTEM}0", f"{SUBSYSTEM}1"]  # the kernel's names
NAMES = [name.lower().replace("_", "-") for name in DEVICES]
CHANGED = f"{CLASS}/{DEVICES[0]}/power/control"  # what a claim for the first device changes, and gives back


def plug(node: FakeNode) -> None:
    """Plug in the devices."""
    for minor, name in enumerate(DEVICES):
        node.device_node(f"/dev/{name}", minor=minor)
        node.file(f"{CLASS}/{name}/uevent", f"DEVNAME={name}\n")
        node.file(f"{CLASS}/{name}/power/control", "auto\n")
        node.file(f"{CLASS}/{name}/power/runtime_status", "active\n")


def unplug(node: FakeNode) -> None:
    """Unplug the first device."""
    node.remove(f"{CLASS}/{DEVICES[0]}")


def fail(node: FakeNode) -> None:
    """Let the first device fail."""
    node.file(f"{CLASS}/{DEVICES[0]}/power/runtime_status", "error\n")


def changed(node: FakeNode) -> str:
    """Return what a claim for the first device changes."""
    return node.path(CHANGED).read_text().strip()


if __name__ == "__main__":
    print(f"wrote {write_tree(plug)}: edit it, and give it to commands as --host-root")
