"""The hardware of the virtual machine, as QEMU's command line.

There are two sockets. Each is a NUMA node with a PCI root complex of its own, and has two cores of two threads. An
IOMMU offers interrupt remapping, which VFIO requires. The PCI functions are real device models, so that real kernel
drivers bind to them:

- slot A and slot B, one on each node: an igb NIC with virtual functions (SR-IOV), alone in its IOMMU group;
- slot C: two functions of one card, .0 and .1, an e1000e each;
- slot D: two e1000 behind a bridge to conventional PCI, in one IOMMU group with that bridge.

No network interface of these is connected. A further one, of virtio, is there if the machine joins a cluster: QEMU's
user network then forwards one address to the API server, and reaches nothing else. It also has a disk then, for what a
node keeps when it boots again.

Sources: QEMU's manual, docs/pcie.txt and docs/pci_expander_bridge.txt; the kernel's
Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROGRAM, _BUSYBOX = "/usr/bin/qemu-system-x86_64", "/usr/bin/busybox"
_BOARD = (
    *("-machine", "q35,kernel-irqchip=split", "-nodefaults", "-no-user-config"),
    *("-device", "intel-iommu,intremap=on,device-iotlb=on"),
)
_SLOTS = {"slotA": "root0", "slotB": "root1", "slotC": "root0", "slotD": "root1"}
_DEVICES = (
    "igb,bus=slotA,mac=52:54:00:00:00:0a",
    "igb,bus=slotB,mac=52:54:00:00:00:0b",
    "e1000e,bus=slotC,addr=0.0,multifunction=on,mac=52:54:00:00:00:c0",
    "e1000e,bus=slotC,addr=0.1,mac=52:54:00:00:00:c1",
    "pcie-pci-bridge,id=bridge,bus=slotD",
    "e1000,bus=bridge,addr=1,mac=52:54:00:00:00:d1",
    "e1000,bus=bridge,addr=2,mac=52:54:00:00:00:d2",
)
_KERNEL = (
    *("console=ttyS0", "quiet", "rdinit=/init", "intel_iommu=on", "iommu=pt"),
    "hugepages=0:16,1:16",  # of 2 MiB, of each NUMA node
    # The kernel counts timer ticks during 40 ms, and panics if QEMU got no processor in that time.
    "no_timer_check",
    # A kernel that hangs panics after two minutes, and the machine ends with it. The thresholds are in seconds; the
    # watchdog waits twice as long as its own.
    *("panic=-1", "oops=panic", "softlockup_panic=1", "watchdog_thresh=60", "hung_task_panic=1"),
    *("sysctl.kernel.panic_on_rcu_stall=1", "rcupdate.rcu_cpu_stall_timeout=120"),
)


@dataclass(frozen=True)
class Hardware:
    """The size of the machine.

    sockets: the number of sockets, each a NUMA node.
    cores: the number of cores of each socket.
    threads: the number of threads of each core.
    memory: the memory of each NUMA node, MiB.
    counts: whether its clock counts instructions, a nanosecond each on whichever CPU, and not the time of this machine.
        While all its CPUs are idle, it goes on with that time.
    """

    sockets: int = 2
    cores: int = 2
    threads: int = 2
    memory: int = 2048
    counts: bool = False

    def arguments(self) -> list[str]:
        """Returns QEMU's arguments for the hardware, without what to boot."""
        return [*self._processors(), *self._memory(), *_BOARD, *self._roots(), *_functions()]

    def _processors(self) -> list[str]:
        total = self.sockets * self.cores * self.threads
        # One thread runs all CPUs in turn. With a thread for each CPU, QEMU 10.0.13 loses interrupts and the kernel
        # hangs: see "When it hangs" in the README. The model of the IOMMU expects a CPU of Intel.
        return [
            *("-accel", "tcg,thread=single", "-cpu", "max,vendor=GenuineIntel"),
            *("-smp", f"{total},sockets={self.sockets},cores={self.cores},threads={self.threads}"),
            *(("-icount", "shift=0") if self.counts else ()),
        ]

    def _memory(self) -> list[str]:
        words, cpus = ["-m", str(self.sockets * self.memory)], self.cores * self.threads
        for node in range(self.sockets):
            first = node * cpus
            words += ["-object", f"memory-backend-ram,size={self.memory}M,id=memory{node}"]
            words += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={first}-{first + cpus - 1}"]
        return words

    def _roots(self) -> list[str]:
        """Returns an expander bridge for each node, which the kernel sees as a root complex of that node."""
        words = []
        for node in range(self.sockets):
            words += ["-device", f"pxb-pcie,id=root{node},bus=pcie.0,bus_nr={0x40 * (node + 1)},numa_node={node}"]
        return words


def network(address: str, port: int, host_port: int) -> list[str]:
    """Returns the arguments for a network in which `address` and `port` is a port of this machine's loopback device."""
    forward = f"guestfwd=tcp:{address}:{port}-cmd:{_BUSYBOX} nc 127.0.0.1 {host_port}"
    return ["-netdev", f"user,id=network,restrict=on,{forward}", "-device", "virtio-net-pci,bus=pcie.0,netdev=network"]


def disk(path: str) -> list[str]:
    """Returns the arguments for a disk in a file. It outlives a boot, but not this machine's loss of power."""
    return [
        "-drive",
        f"file={path},format=raw,if=none,id=disk,cache=unsafe",
        "-device",
        "virtio-blk-pci,bus=pcie.0,drive=disk",
    ]


def command(hardware: Hardware, *, kernel: str, initrd: str, results: str, more: Sequence[str] = ()) -> list[str]:
    """Returns QEMU's whole command line; `more` are further arguments.

    All paths are as QEMU sees them: its root directory is the machine's own system, which it only reads.
    """
    shares = {"root": ("/", "readonly=on,"), "results": (results, "")}
    words = [_PROGRAM, *hardware.arguments(), *more, *("-display", "none", "-monitor", "none", "-serial", "stdio")]
    for name, (path, option) in shares.items():
        words += ["-fsdev", f"local,id={name},path={path},{option}security_model=none,multidevs=remap"]
        words += ["-device", f"virtio-9p-pci,bus=pcie.0,fsdev={name},mount_tag={name}"]
    return [*words, "-kernel", kernel, "-initrd", initrd, "-append", " ".join(_KERNEL), "-no-reboot"]


def _functions() -> list[str]:
    ports = [
        f"pcie-root-port,id={slot},bus={root},chassis={number},slot={number}"
        for number, (slot, root) in enumerate(_SLOTS.items(), 1)
    ]
    return [word for device in (*ports, *_DEVICES) for word in ("-device", device)]
