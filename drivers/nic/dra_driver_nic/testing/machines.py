"""Servers with network cards as their kernels show them, made of files: what discovery must understand.

    node = FakeNode(tmp_path)
    MACHINES["mlx5-switchdev"].write(node)

IDs, names of drivers, interfaces and RDMA devices, addresses of virtual functions, and which files a kernel refuses to
read are as in Linux 6.x with the card that a `Port` names; MAC addresses and GUIDs are made up. An interface that is
switched off has no readable `carrier` and `speed`, as in a capture of a real node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dra_driver_nic.testing.sysfs import write_interface, write_rdma_device
from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine

_MELLANOX, _INTEL, _BROADCOM, _AMAZON, _RED_HAT = 0x15B3, 0x8086, 0x14E4, 0x1D0F, 0x1AF4
_INFINIBAND: Final = 32
_SECOND_SOCKET: Final = 0x60  # the first bus of the second socket of a p5 instance


@dataclass(frozen=True, kw_only=True)
class Vfs:
    """The virtual functions of a port.

    number: how many are enabled.
    device: their PCI device ID.
    driver: their kernel driver; None for none.
    interface: the name of their interfaces with `{}` for the number; empty if the driver makes none.
    first, stride: the distance of their routing IDs: from the physical function to the first, and from one to the next.
    rdma: the name of their RDMA devices, with `{}` for the number; empty for none.
    up: whether their interfaces are switched on.
    """

    number: int
    device: int
    driver: str | None
    interface: str
    first: int
    stride: int = 1
    rdma: str = ""
    up: bool = False


@dataclass(frozen=True, kw_only=True)
class Port:
    """A physical function: a port of a card.

    address: its PCI address.
    vendor, device: its PCI IDs.
    driver: its kernel driver.
    interface: the name of its interface; empty for none.
    below: the directory of the interface's device below the function, as `virtio0`; empty for the function itself.
    bridges: PCI addresses of the bridges above it, the root port first.
    root: its PCIe root.
    numa_node: its NUMA node.
    speed: megabits per second; 0 if the interface has no carrier, None if the driver reports none.
    mtu: MTU of the interface.
    port_name: content of `phys_port_name`; None if the driver has none.
    switch_id: content of `phys_switch_id`, with which each virtual function has a representor; None in legacy mode.
    arp_type: 1 for Ethernet, 32 for InfiniBand.
    total_vfs: how many virtual functions it can have.
    vfs: its virtual functions.
    rdma: the name of its RDMA device; empty for none.
    layer: the link layer of its RDMA device.
    firmware: the firmware version of its RDMA device.
    guid: the GUID of its RDMA device.
    """

    address: str
    vendor: int
    device: int
    driver: str
    interface: str
    below: str = ""
    bridges: tuple[str, ...] = ()
    root: str = "pci0000:3a"
    numa_node: int = 0
    speed: int | None = None
    mtu: int = 1500
    port_name: str | None = None
    switch_id: str | None = None
    arp_type: int = 1
    total_vfs: int = 0
    vfs: Vfs | None = None
    rdma: str = ""
    layer: str = "Ethernet"
    firmware: str = ""
    guid: str = "0c42:a103:0065:1234"

    @property
    def functions(self) -> Iterator[FakePci]:
        """The physical function, then its virtual ones."""
        group = 20 + _routing_id(self.address) % 1000
        pf = FakePci(
            address=self.address,
            vendor=self.vendor,
            device=self.device,
            class_code=0x020700 if self.arp_type == _INFINIBAND else 0x020000,
            root=self.root,
            bridges=self.bridges,
            driver=self.driver,
            numa_node=self.numa_node,
            iommu_group=group,
            total_vfs=self.total_vfs,
        )
        yield pf
        for number, address in enumerate(self.vf_addresses, start=1):
            if self.vfs is not None:
                yield replace(
                    pf,
                    address=address,
                    device=self.vfs.device,
                    driver=self.vfs.driver,
                    iommu_group=group * 1000 + number,
                    total_vfs=0,
                    physical_function=self.address,
                )

    @property
    def vf_addresses(self) -> list[str]:
        """The PCI addresses of its virtual functions, by their number."""
        if self.vfs is None:
            return []
        start = _routing_id(self.address) + self.vfs.first
        domain = self.address.partition(":")[0]
        ids = [start + number * self.vfs.stride for number in range(self.vfs.number)]
        return [f"{domain}:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}" for number in ids]

    def directory(self, address: str) -> str:
        """Return the directory of a function below /sys/devices."""
        return "/".join((self.root, *self.bridges, address))


def _routing_id(address: str) -> int:
    _, bus, function = address.split(":")
    device, number = function.split(".")
    return int(bus, 16) << 8 | int(device, 16) << 3 | int(number)


@dataclass(frozen=True)
class NicMachine:
    """A server with two sockets.

    ports: its ports, in the order in which the kernel found them.
    software: interfaces in software: names with their kind, as `DEVTYPE` has it.
    """

    ports: tuple[Port, ...]
    software: Mapping[str, str]

    def write(self, node: FakeNode) -> None:
        """Write its files."""
        functions = tuple(function for port in self.ports for function in port.functions)
        node.machine(replace(regular_machine(sockets=2), pci=functions))
        writer = _NicWriter(node)
        for port in self.ports:
            writer.port(port)
        for port in self.ports:
            writer.virtual_functions(port)
        for name, kind in {"lo": "", **self.software}.items():
            writer.software(name, kind)


class _NicWriter:
    """Writes interfaces and RDMA devices, and counts them as the kernel does."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self._interfaces = self._verbs = 0

    def port(self, port: Port) -> None:
        """Write the interface and the RDMA device of a physical function."""
        device = port.directory(port.address)
        if port.interface:
            below = f"{device}/{port.below}" if port.below else device
            self._interface(
                port.interface,
                below,
                arp_type=port.arp_type,
                mtu=port.mtu,
                phys_port_name=port.port_name,
                phys_switch_id=port.switch_id,
                **_link(up=True, speed=port.speed),
            )
        if port.rdma:
            self._rdma(port, port.rdma, device, port.interface)

    def virtual_functions(self, port: Port) -> None:
        """Write those of its virtual functions, and their representors."""
        vfs = port.vfs
        if vfs is None:
            return
        for number, address in enumerate(port.vf_addresses):
            device, name = port.directory(address), vfs.interface.format(number)
            if name:
                self._interface(name, device, arp_type=port.arp_type, mtu=1500, **_link(up=vfs.up, speed=port.speed))
            if vfs.rdma:
                self._rdma(port, vfs.rdma.format(number + 2), device, name, up=vfs.up)
            if port.switch_id is not None:
                port_number = port.address[-1]
                self._interface(
                    f"{port.interface.partition('np')[0]}npf{port_number}vf{number}",
                    port.directory(port.address),
                    phys_port_name=f"pf{port_number}vf{number}",
                    phys_switch_id=port.switch_id,
                    **_link(up=True, speed=port.speed),
                )

    def software(self, name: str, kind: str) -> None:
        """Write an interface without a device."""
        loopback: dict[str, Any] = {"type": 772, "mtu": 65536} if name == "lo" else {}
        self._interfaces += 1
        write_interface(
            self._node, name, self._interfaces, uevent=f"DEVTYPE={kind}" if kind else "", speed=None, **loopback
        )

    def _interface(self, name: str, device: str, *, arp_type: int = 1, **files: object) -> None:
        self._interfaces += 1
        number = self._interfaces
        mac = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        if arp_type == _INFINIBAND:
            mac = f"00:00:10:29:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:65:{number >> 8:02x}:{number & 255:02x}"
        write_interface(self._node, name, number, device, mac=mac, type=arp_type, **files)

    def _rdma(self, port: Port, name: str, device: str, interface: str, *, up: bool = True) -> None:
        files: dict[str, object] = {"node_guid": port.guid, "fw_ver": port.firmware}
        if port.layer == "InfiniBand":
            files |= {"ports/1/gids/0": f"fe80:0000:0000:0000:{port.guid}", "ports/1/pkeys/1": "0x8001"}
        write_rdma_device(
            self._node,
            name,
            device,
            self._verbs,
            layer=port.layer,
            state="4: ACTIVE" if up and port.speed != 0 else "1: DOWN",
            interfaces=[interface] if interface and port.layer == "Ethernet" else [],
            **files,
        )
        self._verbs += 1


def _link(*, up: bool, speed: int | None) -> dict[str, Any]:
    """Return the files of an interface that show its state."""
    if not up:
        return {"flags": "0x1002", "operstate": "down", "carrier": None, "speed": None}
    carrier = speed != 0
    state = "up" if carrier else "down"
    return {"flags": "0x1003", "operstate": state, "carrier": int(carrier), "speed": speed if carrier else -1}


# -- the cards


def connectx(
    port: int = 0, *, bus: str = "3b", vfs: int = 0, switchdev: bool = False, up: bool = True, name: str = "ens1f"
) -> Port:
    """Make a port of an NVIDIA ConnectX-6 Dx (mlx5) behind a PCIe switch."""
    first, names = 2 if port == 0 else 1 + 8, f"{name}{port}v{{}}"
    virtual = Vfs(number=vfs, device=0x101E, driver="mlx5_core", interface=names, first=first, rdma="mlx5_{}")
    return Port(
        address=f"0000:{bus}:00.{port}",
        vendor=_MELLANOX,
        device=0x101D,
        driver="mlx5_core",
        interface=f"{name}{port}np{port}",
        bridges=("0000:3a:00.0", "0000:38:00.0", "0000:39:04.0"),
        speed=100000 if up else 0,
        mtu=9000,
        port_name=f"p{port}",
        switch_id=f"341265a103420c0{port}" if switchdev else None,
        total_vfs=max(vfs, 8),
        vfs=virtual if vfs else None,
        rdma=f"mlx5_{port}",
        firmware="22.41.1000",
    )


def infiniband() -> Port:
    """Make a port of an NVIDIA ConnectX-7 (mlx5) in InfiniBand mode, with four virtual functions."""
    return Port(
        address="0000:5e:00.0",
        vendor=_MELLANOX,
        device=0x1021,
        driver="mlx5_core",
        interface="ibs2",
        root="pci0000:5d",
        bridges=("0000:5d:00.0",),
        numa_node=1,
        speed=400000,
        mtu=4092,
        arp_type=_INFINIBAND,
        total_vfs=16,
        vfs=Vfs(number=4, device=0x101E, driver="mlx5_core", interface="ibs2v{}", first=1, rdma="mlx5_{}", up=True),
        rdma="mlx5_0",
        layer="InfiniBand",
        firmware="28.41.1000",
    )


def ixgbe(port: int) -> Port:
    """Make a port of an Intel 82599ES with four virtual functions: every second routing ID, both ports in turn."""
    return Port(
        address=f"0000:04:00.{port}",
        vendor=_INTEL,
        device=0x10FB,
        driver="ixgbe",
        interface=f"enp4s0f{port}",
        root="pci0000:00",
        bridges=("0000:00:02.0",),
        speed=10000,
        total_vfs=63,
        vfs=Vfs(number=4, device=0x10ED, driver="ixgbevf", interface=f"enp4s0f{port}v{{}}", first=128, stride=2),
    )


def i40e(port: int) -> Port:
    """Make a port of an Intel X710; the virtual functions of port 1 wait for virtual machines."""
    vfs = Vfs(number=4, device=0x154C, driver="iavf", interface="enp24s0f0v{}", first=16, up=True)
    if port:
        vfs = replace(vfs, number=2, driver="vfio-pci", interface="", first=79, up=False)
    return Port(
        address=f"0000:18:00.{port}",
        vendor=_INTEL,
        device=0x1572,
        driver="i40e",
        interface=f"enp24s0f{port}",
        root="pci0000:17",
        bridges=("0000:17:00.0",),
        speed=10000,
        total_vfs=64,
        vfs=vfs,
    )


def ice(port: int, vfs: int = 4) -> Port:
    """Make a port of an Intel E810-C with RDMA (irdma), which its virtual functions do not have."""
    return Port(
        address=f"0000:31:00.{port}",
        vendor=_INTEL,
        device=0x1592,
        driver="ice",
        interface=f"ens3f{port}np{port}",
        root="pci0000:30",
        bridges=("0000:30:02.0",),
        numa_node=1,
        speed=100000,
        port_name=f"p{port}",
        total_vfs=128,
        vfs=Vfs(number=vfs, device=0x1889, driver="iavf", interface=f"ens3f{port}v{{}}", first=8 if port == 0 else 135),
        rdma=f"irdma{port}",
        firmware="1.63",
        guid="669c:6fff:fe8a:1c10",
    )


def bnxt() -> Port:
    """Make a Broadcom BCM57508 with RDMA on the physical and the virtual functions."""
    return Port(
        address="0000:65:00.0",
        vendor=_BROADCOM,
        device=0x1750,
        driver="bnxt_en",
        interface="ens4f0np0",
        root="pci0000:64",
        bridges=("0000:64:00.0",),
        speed=100000,
        port_name="p0",
        total_vfs=64,
        vfs=Vfs(number=3, device=0x1806, driver="bnxt_en", interface="ens4f0v{}", first=16, rdma="bnxt_re{}", up=True),
        rdma="bnxt_re0",
        firmware="230.0.157.0",
        guid="be97:e1ff:fe3c:9a20",
    )


def efa(slot: int) -> Port:
    """Make an Elastic Fabric Adapter of an AWS p5 instance: RDMA without an interface, and without a GUID."""
    return Port(
        address=f"0000:{slot:02x}:1b.0",
        vendor=_AMAZON,
        device=0xEFA2,
        driver="efa",
        interface="",
        root=f"pci0000:{slot:02x}",
        numa_node=0 if slot < _SECOND_SOCKET else 1,
        rdma=f"rdmap{slot}s27",
        layer="Unspecified",
        firmware="0.0.0.0",  # noqa: S104 (a version)
        guid="0000:0000:0000:0000",
    )


def ena() -> Port:
    """Make the Elastic Network Adapter of an AWS instance, its uplink; it reports no speed."""
    return Port(
        address="0000:00:05.0",
        vendor=_AMAZON,
        device=0xEC20,
        driver="ena",
        interface="ens5",
        root="pci0000:00",
        mtu=9001,
    )


def virtio() -> Port:
    """Make the interface of a virtual machine."""
    return Port(
        address="0000:00:03.0",
        vendor=_RED_HAT,
        device=0x1041,
        driver="virtio-pci",
        interface="enp0s3",
        below="virtio1",
        root="pci0000:00",
        numa_node=-1,
    )


def _only(*ports: Port) -> NicMachine:
    return NicMachine(ports, {})


MACHINES: Final[Mapping[str, NicMachine]] = {
    "mlx5": _only(connectx(0, vfs=4), connectx(1, up=False)),
    "mlx5-switchdev": _only(connectx(0, vfs=4, switchdev=True), connectx(1, switchdev=True)),
    "mlx5-infiniband": _only(infiniband()),
    "ixgbe": _only(ixgbe(0), ixgbe(1)),
    "i40e": _only(i40e(0), i40e(1)),
    "ice": _only(ice(0), ice(1)),
    "bnxt": _only(bnxt()),
    "efa": _only(ena(), efa(0x4F), efa(0x52), efa(0x80)),
    "hundreds-of-vfs": _only(connectx(0, vfs=250)),
    "virtio": NicMachine((virtio(),), {"docker0": "bridge", "br0": "bridge", "dummy0": ""}),
}
"""One machine of each kind, by name."""
