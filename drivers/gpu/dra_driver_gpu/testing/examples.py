"""The nodes of the examples, as the driver publishes them: `python -m dra_driver_gpu.testing.examples DIRECTORY`.

Each node is a table of GPUs and of the driver's settings. From it a tree of files is written, with the GPUs in
`nvml.yaml`, in which the driver discovers them. So every slice of GPUs in `docs/examples` is what the driver
publishes. The slices of network cards, for examples that align GPUs with them, are made here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.gpu_record import JSON
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import FIXTURE_FILE, FakeGpu, fake_gpu, read_fixture
from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.sysfs import regular_machine

_WIDTH: Final = 130
_BUSES: Final = (0x18, 0x3E, 0x64, 0x9E)
_API: Final = "resource.k8s.io/v1"


@dataclass(frozen=True, kw_only=True)
class ExampleGpu:
    """One GPU.

    model: its model in `nvml.yaml`.
    numa: its NUMA node.
    mig: whether it is in MIG mode.
    instances: its MIG devices, as `nvml.yaml` has them.
    """

    model: str
    numa: int = 0
    mig: bool = False
    instances: Sequence[JSON] = ()


@dataclass(frozen=True, kw_only=True)
class ExampleNic:
    """A network card.

    name: the name of its device.
    interface: the name of its network interface.
    beside: the number of the GPU with the same PCIe root.
    rdma: whether it has RDMA.
    virtual: whether it is a virtual function.
    """

    name: str
    interface: str
    beside: int
    rdma: bool = True
    virtual: bool = False


@dataclass(frozen=True, kw_only=True)
class ExampleNode:
    """A node.

    name: the name of the Node object.
    text: the comment at the top of its file.
    gpus: its GPUs, in the order of their minor numbers.
    settings: the driver's settings, as environment variables.
    nics: its network cards, in the order of their devices.
    """

    name: str
    text: str
    gpus: Sequence[ExampleGpu]
    settings: Mapping[str, str] = field(default_factory=dict)
    nics: Sequence[ExampleNic] = ()

    def fakes(self) -> list[FakeGpu]:
        """Return its GPUs, for `GpuNode`."""
        made = [fake_gpu(gpu.model, minor, mig=gpu.mig) for minor, gpu in enumerate(self.gpus)]
        return [replace(gpu, pci_address=_address(gpu.minor)) for gpu in made]

    def complete(self, root: Path) -> None:
        """Add to a tree with these GPUs the NUMA node of each, and `nvml.yaml`."""
        for minor, gpu in enumerate(self.gpus):
            numa = root / "sys/bus/pci/devices" / _address(minor) / "numa_node"
            numa.write_text(f"{gpu.numa}\n", encoding="utf-8")
        entries = [_entry(minor, gpu) for minor, gpu in enumerate(self.gpus)]
        (root / FIXTURE_FILE).write_text(yaml.safe_dump({"gpus": entries}, sort_keys=False), encoding="utf-8")

    def write(self, root: Path) -> None:
        """Write the tree of files below `root`."""
        GpuNode(root, self.fakes(), machine=regular_machine(sockets=2, cores=1, threads=1))
        self.complete(root)

    def other_objects(self) -> list[JSON]:
        """Return the objects that the driver does not publish: the Node, and the slice of its network cards if any."""
        labels = {"kubernetes.io/hostname": self.name}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}}
        if not self.nics:
            return [node]
        spec = {
            "driver": "dra.net",
            "pool": {"name": self.name, "generation": 1, "resourceSliceCount": 1},
            "nodeName": self.name,
            "devices": [self._nic(nic) for nic in self.nics],
        }
        return [node, _slice(f"{self.name}-dra.net", spec)]

    def published(self, directory: Path) -> list[JSON]:
        """Return the slices that the driver publishes for it, on a tree below `directory`."""
        fake = FakeNode(directory, self.name)
        self.write(fake.root)
        nvml = read_fixture(fake.root / FIXTURE_FILE)
        make = partial(GpuDriver, GpuSettings.read(self.settings), nvml=lambda _root: nvml)
        harness = DriverHarness(make, fake)
        return [_slice(published["metadata"]["name"], published["spec"]) for published in harness.slices()]

    def _nic(self, nic: ExampleNic) -> JSON:
        attributes: JSON = {"dra.net/ifName": {"string": nic.interface}, "dra.net/rdma": {"bool": nic.rdma}}
        if nic.virtual:
            attributes["dra.net/isSriovVf"] = {"bool": True}
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:{_BUSES[nic.beside] - 1:02x}"}
        attributes["resource.kubernetes.io/numaNode"] = {"int": self.gpus[nic.beside].numa}
        return {"name": nic.name, "attributes": attributes}


def _pair(model: str, **fields: Any) -> tuple[ExampleGpu, ...]:
    return tuple(ExampleGpu(model=model, numa=numa, **fields) for numa in (0, 1))


def _four(*models: str) -> tuple[ExampleGpu, ...]:
    return tuple(ExampleGpu(model=model, numa=number // 2) for number, model in enumerate(models))


_A100_PARTITIONED: Final = (
    {"profile": "3g.20gb", "start": 0},
    {"profile": "2g.10gb", "start": 4},
    {"profile": "1g.5gb", "start": 6},
)
_SUBDIVIDED: Final = (
    {"profile": "3g.20gb", "start": 0, "compute": [2, 1]},
    {"profile": "3g.20gb", "start": 4, "compute": [1, 1, 1]},
)

NODES: Final = {
    "gpu-shared": ExampleNode(
        name="shared-1",
        text="Two GPUs; an administrator lets up to four claims share each, by memory.",
        gpus=_pair("A100-80GB"),
        settings={"DRA_GPU_SHARING": "4"},
    ),
    "gpu-rdma": ExampleNode(
        name="hpc-1",
        text="Four GPUs on four PCIe roots, and network cards on the same roots: an RDMA VF with the small gpu-0, a "
        "physical function with\ngpu-1, a VF without RDMA with gpu-2, two RDMA VFs with gpu-3.",
        gpus=_four("A100-40GB", "A100-80GB", "A100-80GB", "A100-80GB"),
        nics=(
            ExampleNic(name="pci-0000-19-00-1", interface="ens1v0", beside=0, virtual=True),
            ExampleNic(name="pci-0000-3f-00-0", interface="ens2", beside=1),
            ExampleNic(name="pci-0000-65-00-1", interface="ens3v0", beside=2, rdma=False, virtual=True),
            ExampleNic(name="pci-0000-9f-00-1", interface="ens4v0", beside=3, virtual=True),
            ExampleNic(name="pci-0000-9f-00-2", interface="ens4v1", beside=3, virtual=True),
        ),
    ),
    "gpu-mixed": ExampleNode(
        name="mixed-1",
        text="One node with two models of GPU: two L4 and two A100 with 80Gi.",
        gpus=_four("L4", "L4", "A100-80GB", "A100-80GB"),
    ),
    "gpu-vfio": ExampleNode(
        name="vm-1",
        text="Two GPUs, each available to containers or, bound to vfio-pci, to a virtual machine. A counter with the "
        "value 1 keeps it from\nbeing both at once.",
        gpus=_pair("A100-80GB"),
        settings={"DRA_GPU_PASSTHROUGH": "true"},
    ),
    "gpu-rails": ExampleNode(
        name="rail-1",
        text="Four GPUs and four NICs, one of each below every PCIe root, published in opposite order.",
        gpus=_four(*["H200-141GB"] * 4),
        nics=(
            ExampleNic(name="pci-0000-1a-00-0", interface="rail3", beside=3),
            ExampleNic(name="pci-0000-3f-00-0", interface="rail2", beside=2),
            ExampleNic(name="pci-0000-65-00-0", interface="rail1", beside=1),
            ExampleNic(name="pci-0000-9f-00-0", interface="rail0", beside=0),
        ),
    ),
    "mig-static": ExampleNode(
        name="mig-1",
        text="Two A100 that an administrator has partitioned: 3g.20gb, 2g.10gb and 1g.5gb each; an RDMA VF below the "
        "PCIe root of the second.",
        gpus=_pair("A100-40GB", mig=True, instances=_A100_PARTITIONED),
        nics=(ExampleNic(name="pci-0000-3f-00-1", interface="ens2v0", beside=1, virtual=True),),
    ),
    "mig-dynamic": ExampleNode(
        name="dyn-1",
        text="Two H100 that are partitioned on demand: a device for the whole GPU, and one for every MIG profile at "
        "every placement. Devices\nthat overlap consume the same counters.",
        gpus=_pair("H100-80GB"),
        settings={"DRA_GPU_DYNAMIC_MIG": "true"},
    ),
    "mig-subdivided": ExampleNode(
        name="sub-1",
        text="An A100-40GB whose two 3g.20gb instances an administrator has subdivided: each compute instance has its "
        "own multiprocessors,\nand all compute instances of a GPU instance share its memory.",
        gpus=(ExampleGpu(model="A100-40GB", mig=True, instances=_SUBDIVIDED),),
    ),
}
"""The nodes by the name of their file in `docs/examples/nodes`."""


def document(node: ExampleNode, directory: Path) -> str:
    """Return the text of a node's file in `docs/examples/nodes`; the driver runs on a tree below `directory`."""
    settings = " ".join(f"{name}={value}" for name, value in node.settings.items())
    comments = [*node.text.splitlines(), *([f"Published by the GPU driver with {settings}."] if settings else [])]
    head, *nics = node.other_objects()
    objects = [head, *node.published(directory), *nics]
    texts = [yaml.dump(item, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=_WIDTH) for item in objects]
    return "".join(f"# {line}\n" for line in comments) + "---\n".join(texts)


def main(directory: Path) -> None:
    """Write the files of all nodes to `directory`."""
    for file, node in NODES.items():
        with TemporaryDirectory() as tree:
            (directory / f"{file}.yaml").write_text(document(node, Path(tree)), encoding="utf-8")


def _address(minor: int) -> str:
    return f"0000:{_BUSES[minor]:02x}:00.0"


def _entry(minor: int, gpu: ExampleGpu) -> JSON:
    uuid = fake_gpu(gpu.model, minor).uuid
    entry: JSON = {"model": gpu.model, "uuid": uuid, "pciAddress": _address(minor), "mig": gpu.mig}
    return {**entry, "instances": [dict(instance) for instance in gpu.instances]}


def _slice(name: str, spec: JSON) -> JSON:
    return {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


class _Plain(yaml.SafeDumper):
    """YAML without anchors and aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        """Write an object in full each time it occurs."""
        return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
