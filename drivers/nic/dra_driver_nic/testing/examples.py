"""The node of the examples, as the driver publishes it.

`python -m dra_driver_nic.testing.examples docs/examples/nodes` writes `nic-cards.yaml`, so every slice of network
devices in it is what the driver publishes. The slice of GPUs, for the example that aligns a card with one, is made
here.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from dra_driver_nic.driver import NicDriver
from dra_driver_nic.settings import NicSettings
from dra_driver_nic.testing.machines import NicMachine, Vfs, connectx, i40e, ixgbe
from dra_sdk.testing import DriverHarness, FakeNode

FILE: Final = "nic-cards.yaml"
_NODE: Final = "net-1"
_WIDTH: Final = 130
_TEXT: Final = """\
# Two NVIDIA ConnectX cards with RDMA and two VFs each, both beside a GPU; an Intel X710 whose VFs are bound to
# vfio-pci; a port of an Intel 82599ES that claims share (DRA_NIC_SHARED=enp4s0f0).
"""
_SECOND_CARD: Final = replace(
    connectx(bus="9e", vfs=2, name="ens5f"),
    root="pci0000:9d",
    bridges=("0000:9d:00.0",),
    numa_node=1,
    rdma="mlx5_10",
    vfs=Vfs(number=2, device=0x101E, driver="mlx5_core", interface="ens5f0v{}", first=2, rdma="mlx5_1{}"),
)
MACHINE: Final = NicMachine((connectx(vfs=2), _SECOND_CARD, i40e(1), replace(ixgbe(0), vfs=None)), {})
SETTINGS: Final = NicSettings(shared=("enp4s0f0",))
_ROOTS: Final = {"gpu-0": ("pci0000:9d", 1), "gpu-1": ("pci0000:3a", 0)}


def document(directory: Path) -> str:
    """Make the content of the file, by an empty directory."""
    node = FakeNode(directory, _NODE)
    MACHINE.write(node)
    slices = DriverHarness(NicDriver, node, settings=SETTINGS).slices()
    own = [_named(published, f"{_NODE}-dra.net-{number}") for number, published in enumerate(slices)]
    meta = {"name": _NODE, "labels": {"kubernetes.io/hostname": _NODE}}
    objects = [{"apiVersion": "v1", "kind": "Node", "metadata": meta}, _gpus(), *own]
    texts = [
        yaml.dump(value, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=_WIDTH) for value in objects
    ]
    return _TEXT + "---\n".join(texts)


def _gpus() -> dict[str, Any]:
    devices = [
        {
            "name": name,
            "attributes": {
                "type": {"string": "gpu"},
                "resource.kubernetes.io/pcieRoot": {"string": root},
                "resource.kubernetes.io/numaNode": {"int": numa},
            },
        }
        for name, (root, numa) in _ROOTS.items()
    ]
    pool = {"name": _NODE, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{_NODE}-gpu.nvidia.com"},
        "spec": {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": _NODE, "devices": devices},
    }


def _named(published: dict[str, Any], name: str) -> dict[str, Any]:
    spec = {**published["spec"], "pool": {**published["spec"]["pool"], "generation": 1}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


class _Plain(yaml.SafeDumper):
    """Without references to equal parts."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def main(directory: Path) -> None:
    """Write the file."""
    with TemporaryDirectory() as tree:
        (directory / FILE).write_text(document(Path(tree)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
