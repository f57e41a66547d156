"""The driver: publishes the GPUs of a node, sets them up for claims, and notices when they come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

from dra_driver_gpu.config import CONFIGS
from dra_driver_gpu.describe import Card, Offer, pool, read_cards
from dra_driver_gpu.describe.cards import ExistingMig
from dra_driver_gpu.describe.names import NAME
from dra_driver_gpu.describe.passthrough import PassthroughGpu, read_passthrough
from dra_driver_gpu.effects import Effects, SystemEffects
from dra_driver_gpu.health import HealthMonitor, HealthRules
from dra_driver_gpu.library import Libraries, NoDriverError
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.prepare import claim as claims
from dra_driver_gpu.prepare.mps import MpsDaemons
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.selection import GpuName
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.site import Clock, Site
from dra_sdk import Claim, DeviceHealth, DraError, DriverInfo, HeldClaim, Node, PreparedDevice, ResourcePool

log = logging.getLogger(__name__)
CDI_KIND: Final = "k8s.gpu.nvidia.com/claim"
WATCH_SECONDS: Final = 5.0


class GpuDriver:
    """DRA driver `gpu.nvidia.com`.

    `nvml` makes the NVML of a node's root, `effects` is everything else that is done to the node; by default the real
    ones, and GPUs in memory where the root has a file `nvml.yaml`.
    """

    def __init__(
        self,
        settings: GpuSettings | None = None,
        *,
        nvml: Callable[[Path], Nvml] | None = None,
        effects: Effects | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings or GpuSettings.read()
        self._libraries = Libraries(self._settings.driver_root, nvml)
        self._effects = effects or SystemEffects()
        self._clock = clock or Clock()
        self._swept: set[Path] = set()
        self._monitors: dict[Path, HealthMonitor] = {}
        self._sweeping = Lock()

    def dra_driver_info(self) -> DriverInfo:
        """Name, configuration and CDI kind; virtual machines need the PCI address, which is in the metadata file."""
        return DriverInfo(NAME, configs=CONFIGS, cdi_kind=CDI_KIND, metadata=self._settings.passthrough)

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """One pool with all GPUs of the node."""
        site = self._site(node)
        others = read_passthrough(site.host) if self._settings.passthrough else ()
        cards = self._cards(site, others)
        yield pool(node.name, cards, [each for each in others if self._gives(each)], self._offer(site))

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Look every few seconds: which GPUs there are, with which kernel driver, and whether MPS daemons run."""
        site, last = self._site(node), None
        while not stop.wait(WATCH_SECONDS if last is not None else 0):
            MpsDaemons(site).revive()
            now = self._glance(site)
            if last is not None and now != last:
                log.info("GPUs have come, gone or changed their driver")
                changed()
            last = now

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Watch events and error counters of all GPUs."""
        if node.root not in self._monitors:
            site, rules = self._site(node), HealthRules(also_benign=self._settings.benign_xids)
            self._monitors[node.root] = HealthMonitor(site.library, self._offer(site), rules, gives=self._gives)
        return self._monitors[node.root].watch(node, stop)

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        """Set up the claim's devices; at the first claim also undo what no claim owns."""
        site = self._site(claim.node)
        with self._sweeping:
            if site.root not in self._swept:
                claims.sweep(site, claim)
                self._swept.add(site.root)
        yield from claims.prepare(site, claim)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Undo it, by the claim's journal."""
        claims.unprepare(self._site(node), claim)

    def _site(self, node: Node) -> Site:
        return Site(node.root, self._settings, self._libraries.of(node.root), self._effects, self._clock)

    def _cards(self, site: Site, others: tuple[PassthroughGpu, ...]) -> tuple[Card, ...]:
        try:
            with site.library.use() as nvml:
                found = read_cards(nvml, site.host)
        except NoDriverError:
            if any(each.bound for each in others):  # a node for virtual machines needs no NVIDIA driver
                return ()
            raise
        for index, error in found.problems.items():
            log.warning("GPU with index %d cannot be read and is not published: %s", index, error)
        return found.cards

    def _offer(self, site: Site) -> Offer:
        settings, records = self._settings, Records(site)

        def ours(card: Card, mig: ExistingMig) -> bool:
            return f"{mig.size.profile.id}-{mig.placement.start}" in records.read(card.uuid).instances

        return Offer(settings.dynamic_mig, settings.passthrough, settings.sharing, self._wants, ours)

    def _wants(self, card: Card) -> bool:
        return self._settings.selection.wants(GpuName(card.minor, card.uuid, card.pci_address, card.product))

    def _gives(self, gpu: PassthroughGpu) -> bool:
        """Of a GPU that is with VFIO only the address is known; of others the card decides."""
        return not gpu.bound or self._settings.selection.wants(GpuName(pci_address=gpu.pci.address))

    def _glance(self, site: Site) -> frozenset[tuple[object, ...]]:
        """What is published follows from this: PCI functions and their drivers, GPUs, MIG devices of others."""
        seen: set[tuple[object, ...]] = {(each.pci.address, each.pci.driver) for each in read_passthrough(site.host)}
        ours = self._offer(site).ours
        try:
            with site.library.use() as nvml:
                cards = read_cards(nvml, site.host).cards
        except DraError as error:  # whoever discovers will tell
            return frozenset({*seen, (type(error),)})
        for card in cards:
            others = tuple(each.uuid for each in card.existing if not ours(card, each))
            seen.add((card.uuid, card.minor, others, card.mig and not self._settings.dynamic_mig))
        return frozenset(seen)
