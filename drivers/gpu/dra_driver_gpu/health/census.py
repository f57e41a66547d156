"""Which GPUs there are, and which of those that were there do not answer any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from dra_driver_gpu.describe import Card, Offer, read_cards
from dra_driver_gpu.describe.passthrough import PassthroughGpu, read_passthrough
from dra_driver_gpu.health.history import Reach
from dra_driver_gpu.health.sites import SitedDevice, sited
from dra_driver_gpu.nvml.api import Gpu, Nvml
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError, NvmlError, ResetRequiredError
from dra_driver_gpu.nvml.profiles import mig_enabled
from dra_sdk.errors import HardwareError
from dra_sdk.hardware import Host, read_pci_device

log = logging.getLogger(__name__)
_OURS = "nvidia"


@dataclass(slots=True)
class Census:
    """The GPUs of a node. `cards` holds each that was ever read, as it was then, by UUID."""

    offer: Offer
    gives: Callable[[PassthroughGpu], bool]
    survey: float
    clock: Callable[[], float]
    cards: dict[str, Card] = field(default_factory=dict)
    devices: tuple[SitedDevice, ...] = ()
    _shape: frozenset[tuple[str, int, bool]] = frozenset()
    _due: float = float("-inf")

    def look(self, nvml: Nvml, host: Host) -> dict[str, Gpu]:
        """The GPUs that answer, by UUID; reads all of them anew if one came, went or changed, or if it is time.

        Raises NvmlError where the library itself does not answer.
        """
        gpus: dict[str, Gpu] = {}
        shape = set()
        for index in range(nvml.device_count()):
            try:
                gpu = nvml.device_by_index(index)
                shape.add((uuid := gpu.uuid(), gpu.minor_number(), mig_enabled(gpu)))
                gpus[uuid] = gpu
            except NvmlError as error:
                log.debug("the GPU with index %d does not answer: %s", index, error)
        if shape != self._shape or self.clock() >= self._due:
            self._survey(nvml, host)
            self._shape, self._due = frozenset(shape), self.clock() + self.survey
        return gpus

    def reach(self, nvml: Nvml, uuid: str, host: Host) -> tuple[Reach, str]:
        """Why a GPU does not answer, and in which words NVML says so."""
        try:
            nvml.device_by_uuid(uuid).minor_number()
        except GpuIsLostError as error:
            return Reach.LOST, str(error)
        except ResetRequiredError as error:
            return Reach.RESET, str(error)
        except NotFoundError as error:
            return (Reach.AWAY if self._given_away(uuid, host) else Reach.LOST), str(error)
        except NvmlError as error:
            return Reach.UNREADABLE, str(error)
        return Reach.UNREADABLE, "it answers only now and then"

    def reach_without(self, uuid: str, host: Host) -> tuple[Reach, str]:
        """Whether a GPU is passed through, where NVML says nothing of any."""
        reach = Reach.AWAY if self._given_away(uuid, host) else Reach.UNREADABLE
        return reach, "there is no NVIDIA driver"

    def _survey(self, nvml: Nvml, host: Host) -> None:
        found = read_cards(nvml, host)
        for card in found.cards:
            # A GPU that was reset may have another minor number, which then is no longer that of the one it had.
            self.cards = {uuid: each for uuid, each in self.cards.items() if each.pci_address != card.pci_address}
            self.cards[card.uuid] = card
        self.look_without(host)

    def look_without(self, host: Host) -> None:
        """What can be seen without NVML: which GPUs are passed through."""
        found = read_passthrough(host) if self.offer.passthrough else ()
        others = [gpu for gpu in found if self.gives(gpu)]
        cards = sorted(self.cards.values(), key=lambda card: card.minor)
        self.devices = sited(cards, others, self.offer)

    def _given_away(self, uuid: str, host: Host) -> bool:
        """Whether another driver than NVIDIA's has the GPU, or none, as in the middle of a change."""
        try:
            return uuid in self.cards and read_pci_device(host, self.cards[uuid].pci_address).driver != _OURS
        except HardwareError:
            return False
