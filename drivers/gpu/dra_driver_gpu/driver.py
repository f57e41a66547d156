"""The driver: publishes the GPUs of a node, sets them up for claims, and notices when they come and go."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

from dra_driver_gpu.config import CONFIGS
from dra_driver_gpu.describe import Card, Offer, pool, read_cards
from dra_driver_gpu.describe.cards import ExistingMig
from dra_driver_gpu.describe.names import NAME
from dra_driver_gpu.describe.passthrough import PassthroughGpu, read_passthrough
from dra_driver_gpu.describe.pool import stranded
from dra_driver_gpu.effects import Effects, SystemEffects
from dra_driver_gpu.glance import glance
from dra_driver_gpu.health import HealthMonitor, HealthRules
from dra_driver_gpu.library import Libraries, NoDriverError
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.prepare.claim import prepare
from dra_driver_gpu.prepare.mps_watch import MpsWatch
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.prepare.undo import sweep, unprepare
from dra_driver_gpu.selection import GpuName
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.site import Clock, Site
from dra_sdk import Claim, DeviceHealth, DraError, DriverInfo, HeldClaim, Node, PreparedDevice, ResourcePool

log = logging.getLogger(__name__)
CDI_KIND: Final = "k8s.gpu.nvidia.com/claim"
WATCH_SECONDS: Final = 5.0
CALL_SECONDS: Final = 40.0  # all waits of one call together: the kubelet hears no reason after 45
SWEEP_SECONDS: Final = 10.0


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
        self._to_sweep: dict[Path, float | None] = {}  # how long it may take, None once it is done
        self._monitors: dict[Path, HealthMonitor] = {}
        self._daemons: defaultdict[Path, MpsWatch] = defaultdict(MpsWatch)
        self._sweeping = Lock()

    def dra_driver_info(self) -> DriverInfo:
        """Name, configuration and CDI kind; virtual machines need the PCI address, which is in the metadata file."""
        return DriverInfo(NAME, configs=CONFIGS, cdi_kind=CDI_KIND, metadata=self._settings.passthrough)

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """One pool with all GPUs of the node."""
        site = self._site(node)
        others = self._others(site)
        cards = self._cards(site, others)
        found = pool(node.name, cards, [each for each in others if self._gives(site, each)], self._offer(site))
        for card in stranded(filter(self._wants, cards), found):
            log.warning("GPU %s has MIG on and no MIG device, so nothing of it is published", card.uuid)
        yield found

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Look every few seconds: which GPUs there are, with which kernel driver, and whether MPS daemons live."""
        site, last = self._site(node), None
        while not stop.wait(WATCH_SECONDS if last is not None else 0):
            self._daemons[node.root].look(site)
            now = self._glance(site)
            if last is not None and now != last:
                log.info("GPUs have come, gone or changed their driver")
                changed()
            last = now

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Watch events and error counters of all GPUs."""
        if node.root not in self._monitors:
            site, rules = self._site(node), HealthRules(also_benign=self._settings.benign_xids)
            self._monitors[node.root] = HealthMonitor(
                site.library,
                self._offer(site),
                rules,
                gives=partial(self._gives, site),
                troubles=lambda: self._daemons[node.root].troubles,
            )
        return self._monitors[node.root].watch(node, stop)

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        """Set up the claim's devices; at the first claim also undo what no claim owns."""
        site = self._site(claim.node).within(CALL_SECONDS)
        self._sweep(site, claim)
        yield from prepare(site, claim)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Undo it, by the claim's journal."""
        unprepare(self._site(node).within(CALL_SECONDS), claim)

    def _sweep(self, site: Site, claim: Claim[Any]) -> None:
        """Once; but what could not be undone is tried again at the next claim, which does not wait for it."""
        with self._sweeping:
            seconds = self._to_sweep.get(site.root, SWEEP_SECONDS)
            if seconds is not None:
                done = sweep(site.within(seconds), claim)
                self._to_sweep[site.root] = None if done else 0.0

    def _site(self, node: Node) -> Site:
        return Site(node.root, self._settings, self._libraries.of(node.root), self._effects, self._clock)

    def _others(self, site: Site) -> tuple[PassthroughGpu, ...]:
        return read_passthrough(site.host) if self._settings.passthrough else ()

    def _cards(self, site: Site, others: tuple[PassthroughGpu, ...]) -> tuple[Card, ...]:
        try:
            with site.nvml() as nvml:
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
            return records.read(card.uuid).made(mig.size.profile.id, mig.placement.start)

        def switched(card: Card) -> bool:
            return records.read(card.uuid).mig_mode

        def product(gpu: PassthroughGpu) -> str | None:
            return _name(records, gpu).get("product")

        sharing, wants = settings.sharing, self._wants
        return Offer(settings.dynamic_mig, settings.passthrough, sharing, wants, ours, switched, product)

    def _wants(self, card: Card) -> bool:
        return self._settings.selection.wants(GpuName(card.minor, card.uuid, card.pci_address, card.product))

    def _gives(self, site: Site, gpu: PassthroughGpu) -> bool:
        """What we know of a GPU that we gave to VFIO; of one that an operator gave only its address.

        Of others the card decides.
        """
        if not gpu.bound:
            return True
        return self._settings.selection.wants(GpuName(pci_address=gpu.pci.address, **_name(Records(site), gpu)))

    def _glance(self, site: Site) -> frozenset[tuple[object, ...]]:
        """What is published follows from this: GPUs, what others did to them, and the drivers of PCI functions."""
        seen: set[tuple[object, ...]] = {(each.pci.address, each.pci.driver) for each in self._others(site)}
        try:
            with site.nvml() as nvml:
                return frozenset(seen.union(glance(nvml, Records(site))))
        except DraError as error:  # whoever discovers will tell
            return frozenset({*seen, (type(error),)})


def _name(records: Records, gpu: PassthroughGpu) -> dict[str, Any]:
    """What NVML told of a GPU before we gave it to VFIO; nothing of others."""
    found: dict[str, Any] = records.read(gpu.pci.address).vfio.get("name", {})
    return found
