"""The driver: publishes the GPUs of a node, prepares them for claims, and notices changes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

from dra_driver_gpu.config import CONFIGS
from dra_driver_gpu.describe import GpuInfo, PublishOptions, make_pool, read_inventory
from dra_driver_gpu.describe.devices import DRIVER_NAME
from dra_driver_gpu.describe.inventory import GpuInventory, MigDeviceInfo, missing, snapshot
from dra_driver_gpu.describe.passthrough import PassthroughGpu, read_passthrough
from dra_driver_gpu.describe.pool import with_numa_lists, without_devices
from dra_driver_gpu.fabric_manager import FabricManager, RealFabricManager
from dra_driver_gpu.gpu_record import JSON, gpu_records
from dra_driver_gpu.health import GpuHealthMonitor, HealthRules
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.library import NoDriverError, NvmlLibraries
from dra_driver_gpu.prepare.claim import prepare, sweep, unprepare
from dra_driver_gpu.prepare.fabric import partitions_seen, with_partitions
from dra_driver_gpu.prepare.mps import mps_daemons
from dra_driver_gpu.settings import GpuIdentity, GpuSettings
from dra_sdk import Claim, DeviceHealth, DraError, DriverInfo, HeldClaim, Node, PreparedDevice, ResourcePool
from dra_sdk.hardware import polling
from dra_sdk.hardware.daemons import DaemonWatch
from dra_sdk.hardware.host_paths import follow
from dra_sdk.hardware.node_access import NodeEffects, SystemEffects
from dra_sdk.hardware.polling import Clock

log = logging.getLogger(__name__)
CDI_KIND: Final = "k8s.gpu.nvidia.com/claim"
WATCH_SECONDS: Final = 5.0
CALL_SECONDS: Final = 40.0  # for all waits of one call together: the kubelet gives up after 45 without a reason
SWEEP_SECONDS: Final = 10.0


class GpuDriver:
    """DRA driver `gpu.nvidia.com`. Without `settings` it has their defaults.

    `nvml` makes the NVML for a node's root, by default the real library. `effects` is everything else that is done to
    the node, by default for real. `fabric` makes the Fabric Manager for a node's root and the path of its socket, if
    the settings have one.
    """

    settings_class = GpuSettings

    def __init__(
        self,
        settings: GpuSettings | None = None,
        *,
        nvml: Callable[[Path], Nvml] | None = None,
        effects: NodeEffects | None = None,
        clock: Clock | None = None,
        fabric: Callable[[Path, str], FabricManager] | None = None,
    ) -> None:
        self._settings = settings or GpuSettings()
        self._libraries = NvmlLibraries(self._settings.driver_root, nvml)
        self._effects = effects or SystemEffects()
        self._clock = clock or Clock()
        self._make_fabric = fabric or self._real_fabric
        self._sweep_seconds: dict[Path, float | None] = {}  # for the next sweep of a node; None if nothing is left
        self._sweep_lock = Lock()
        self._last: defaultdict[Path, GpuInventory] = defaultdict(GpuInventory)  # of the last discovery
        self._monitors: dict[Path, GpuHealthMonitor] = {}
        self._daemon_watches: defaultdict[Path, DaemonWatch] = defaultdict(DaemonWatch)

    def dra_driver_info(self) -> DriverInfo:
        """Return name, configuration and CDI kind; virtual machines read the PCI address from the metadata file."""
        return DriverInfo(DRIVER_NAME, configs=CONFIGS, cdi_kind=CDI_KIND, metadata=self._settings.passthrough)

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """Yield one pool with all GPUs of the node."""
        nvidia = self.nvidia_node(node)
        passthrough = self._passthrough(nvidia)
        gpus = self._gpus(nvidia, passthrough)
        accepted = [gpu for gpu in passthrough if self._accepts(nvidia, gpu)]
        pool = make_pool(node.name, gpus, accepted, self._options(nvidia))
        for gpu in without_devices(filter(self._selected, gpus), pool):
            log.warning("GPU %s has MIG on and no MIG device, so nothing of it is published", gpu.uuid)
        pool = with_numa_lists(pool, nvidia.host) if self._settings.list_attributes else pool
        yield with_partitions(pool, nvidia, nvidia.fabric) if nvidia.fabric else pool

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Check GPUs and their kernel drivers for changes every few seconds, and supervise MPS daemons."""
        nvidia = self.nvidia_node(node)

        def check() -> Hashable:
            self._daemon_watches[node.root].check(mps_daemons(nvidia), self._clock.now())
            return self.snapshot(node)

        polling.watch(check, changed, stop, WATCH_SECONDS)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Watch events and error counters of all GPUs."""
        if node.root not in self._monitors:
            nvidia, rules = self.nvidia_node(node), self._health_rules()
            self._monitors[node.root] = GpuHealthMonitor(
                nvidia.library,
                self._options(nvidia),
                rules,
                accepts=partial(self._accepts, nvidia),
                troubles=lambda: self._daemon_watches[node.root].troubles,
            )
        return self._monitors[node.root].watch(node, stop)

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        """Set up the claim's devices; at the first claim also undo what no claim owns."""
        nvidia = self.nvidia_node(claim.node).within(CALL_SECONDS)
        self._sweep(nvidia, claim)
        yield from prepare(nvidia, claim)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Undo what the claim's journal lists."""
        unprepare(self.nvidia_node(node).within(CALL_SECONDS), claim)

    def nvidia_node(self, node: Node) -> NvidiaNode:
        """Return the node as this driver works on it."""
        library = self._libraries.of(node.root)
        socket = self._settings.fabric_manager
        fabric = self._make_fabric(node.root, socket) if socket else None
        return NvidiaNode(
            node.root, self._effects, self._clock, settings=self._settings, library=library, fabric=fabric
        )

    def snapshot(self, node: Node) -> frozenset[tuple[object, ...]]:
        """Return what determines the published devices: GPUs, what others did to them, drivers of PCI functions."""
        nvidia = self.nvidia_node(node)
        bound: set[tuple[object, ...]] = {(gpu.pci.address, gpu.pci.driver) for gpu in self._passthrough(nvidia)}
        bound |= set(partitions_seen(nvidia.fabric)) if nvidia.fabric else set()
        try:
            with nvidia.nvml() as nvml:
                bound |= set(missing(nvml, nvidia.host, self._last[node.root], nvidia.library.optional))
                return frozenset(bound.union(snapshot(nvml, gpu_records(nvidia), nvidia.library.optional)))
        except DraError as error:  # the next discovery reports it
            return frozenset({*bound, (type(error),)})

    def _health_rules(self) -> HealthRules:
        return HealthRules(also_benign=self._settings.benign_xids, trust_counters=self._settings.ecc_counters)

    def _real_fabric(self, root: Path, socket: str) -> FabricManager:
        return RealFabricManager(follow(root, self._settings.driver_root), follow(root, socket))

    def _sweep(self, nvidia: NvidiaNode, claim: Claim[Any]) -> None:
        """Sweep a node once. What cannot be undone is tried again at the next claim, which does not wait for it."""
        with self._sweep_lock:
            seconds = self._sweep_seconds.get(nvidia.root, SWEEP_SECONDS)
            if seconds is not None:
                done = sweep(nvidia.within(seconds), claim)
                self._sweep_seconds[nvidia.root] = None if done else 0.0

    def _passthrough(self, nvidia: NvidiaNode) -> tuple[PassthroughGpu, ...]:
        return read_passthrough(nvidia.host) if self._settings.passthrough else ()

    def _gpus(self, nvidia: NvidiaNode, passthrough: tuple[PassthroughGpu, ...]) -> tuple[GpuInfo, ...]:
        try:
            with nvidia.nvml() as nvml:
                inventory = self._last[nvidia.root] = read_inventory(nvml, nvidia.host, nvidia.library.optional)
        except NoDriverError:
            self._last[nvidia.root] = GpuInventory(incomplete=frozenset({0}))  # it may have a driver the next time
            if any(gpu.bound for gpu in passthrough):  # a node for virtual machines needs no NVIDIA driver
                return ()
            raise
        return inventory.gpus

    def _options(self, nvidia: NvidiaNode) -> PublishOptions:
        records = gpu_records(nvidia)

        def created_by_us(gpu: GpuInfo, mig: MigDeviceInfo) -> bool:
            return records.read(gpu.uuid).has_instance(mig.profile.profile.id, mig.placement.start)

        return PublishOptions(
            dynamic_mig=self._settings.dynamic_mig,
            passthrough=self._settings.passthrough,
            sharing=self._settings.sharing,
            selected=self._selected,
            created_by_us=created_by_us,
            mig_turned_on_by_us=lambda gpu: records.read(gpu.uuid).mig_mode,
            product_of=lambda gpu: _recorded_name(nvidia, gpu).get("product"),
        )

    def _selected(self, gpu: GpuInfo) -> bool:
        identity = GpuIdentity(gpu.minor, gpu.uuid, gpu.pci_address, gpu.product)
        return self._settings.selection.includes(identity)

    def _accepts(self, nvidia: NvidiaNode, gpu: PassthroughGpu) -> bool:
        """Return whether a GPU that is bound to VFIO is published; of others NVML knows more, and `_selected` decides.

        If we bound it, its record has its name; if an operator did, only its address is known, and its product if the
        host has a PCI ID database.
        """
        if not gpu.bound:
            return True
        name = {"product": gpu.product or "", **_recorded_name(nvidia, gpu)}
        return self._settings.selection.includes(GpuIdentity(pci_address=gpu.pci.address, **name))


def _recorded_name(nvidia: NvidiaNode, gpu: PassthroughGpu) -> JSON:
    """Return what NVML reported of a GPU before we bound it to VFIO; empty if we did not."""
    name: JSON = gpu_records(nvidia).read(gpu.pci.address).vfio.get("name", {})
    return name
