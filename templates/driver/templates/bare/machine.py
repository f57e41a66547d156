"""A machine made of files. `python tests/machine.py` writes it to `tree/host`."""

from dra_sdk.testing import FakeNode, write_tree

NAMES = ["seat-0", "seat-1", "seat-2", "seat-3"]


def plug(node: FakeNode) -> None:
    """Add what the driver reads: `node.file`, `link`, `device_node` and `machine` of `FakeNode`."""


if __name__ == "__main__":
    print(f"wrote {write_tree(plug)}: edit it, and give it to commands as --host-root")
