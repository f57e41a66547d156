"""What the machine is made of, as QEMU's command line.

Two sockets, each a NUMA node with a PCI root complex of its own; CPUs with two threads a core; an IOMMU with interrupt
remapping, without which VFIO refuses; functions of real device models, so that real kernel drivers have them:

- slot A and slot B, on one node each: an igb NIC with virtual functions (SR-IOV), alone in its IOMMU group;
- slot C: two functions, .0 and .1, of one card, an e1000e each;
- slot D: two e1000 behind a bridge to conventional PCI, so in one IOMMU group, with that bridge.

No network interface is connected to anything. Sources: QEMU's manual, docs/pcie.txt and docs/pci_expander_bridge.txt;
the kernel's Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

from dataclasses import dataclass

_PROGRAM = "/usr/bin/qemu-system-x86_64"


@dataclass(frozen=True)
class Hardware:
    """`sockets` NUMA nodes with one core of `threads` threads and `memory` MiB each."""

    sockets: int = 2
    threads: int = 2
    memory: int = 1024

    def arguments(self) -> list[str]:
        """Of QEMU, without what to boot."""
        return [*self._processors(), *self._memory(), *_BOARD, *self._roots(), *_functions()]

    def _processors(self) -> list[str]:
        total = self.sockets * self.threads
        # One thread runs all CPUs in turn. With a thread for each, QEMU 10.0.13 looks up the device of an access in the
        # newest map of memory, by a number from an older one, if another CPU turns on a PCI function meanwhile: ends of
        # interrupts went to other devices, and the kernel hung (README). The IOMMU's model goes with Intel's CPUs.
        return [
            *("-accel", "tcg,thread=single", "-cpu", "max,vendor=GenuineIntel"),
            *("-smp", f"{total},sockets={self.sockets},cores=1,threads={self.threads}"),
        ]

    def _memory(self) -> list[str]:
        words = ["-m", str(self.sockets * self.memory)]
        for node in range(self.sockets):
            first = node * self.threads
            words += ["-object", f"memory-backend-ram,size={self.memory}M,id=memory{node}"]
            words += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={first}-{first + self.threads - 1}"]
        return words

    def _roots(self) -> list[str]:
        """Expander bridges, which are root complexes to the kernel, each on the node of its number."""
        words = []
        for node in range(self.sockets):
            words += ["-device", f"pxb-pcie,id=root{node},bus=pcie.0,bus_nr={0x40 * (node + 1)},numa_node={node}"]
        return words


_BOARD = [
    *("-machine", "q35,kernel-irqchip=split", "-nodefaults", "-no-user-config"),
    *("-device", "intel-iommu,intremap=on,device-iotlb=on"),
]


def _functions() -> list[str]:
    words = [word for number, (slot, root) in enumerate(_SLOTS.items(), 1) for word in _port(slot, root, number)]
    for device in _DEVICES:
        words += ["-device", device]
    return words


def _port(slot: str, root: str, number: int) -> list[str]:
    return ["-device", f"pcie-root-port,id={slot},bus={root},chassis={number},slot={number}"]


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


def command(hardware: Hardware, *, kernel: str, initrd: str, results: str) -> list[str]:
    """QEMU's whole command line; paths are as QEMU sees them, whose own root is the machine's, which it reads only."""
    shares = {"root": ("/", "readonly=on,"), "results": (results, "")}
    words = [_PROGRAM, *hardware.arguments(), *("-display", "none", "-monitor", "none", "-serial", "stdio")]
    for name, (path, option) in shares.items():
        words += ["-fsdev", f"local,id={name},path={path},{option}security_model=none,multidevs=remap"]
        words += ["-device", f"virtio-9p-pci,bus=pcie.0,fsdev={name},mount_tag={name}"]
    return [*words, "-kernel", kernel, "-initrd", initrd, "-append", " ".join(_KERNEL), "-no-reboot"]


_KERNEL = (
    *("console=ttyS0", "quiet", "rdinit=/init", "intel_iommu=on", "iommu=pt"),
    "no_timer_check",  # it counts ticks in 40 ms, and panics if QEMU had no processor then
    # one that hangs panics after two minutes (thresholds are in seconds, that of the watchdog is half of it), and with
    # it the machine ends
    *("panic=-1", "oops=panic", "softlockup_panic=1", "watchdog_thresh=60", "hung_task_panic=1"),
    *("sysctl.kernel.panic_on_rcu_stall=1", "rcupdate.rcu_cpu_stall_timeout=120"),
)
