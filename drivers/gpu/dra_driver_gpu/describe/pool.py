"""The pool that a node publishes: which devices of which GPU, and which of them exclude each other.

| GPU | published |
|---|---|
| MIG off, static | the whole GPU |
| MIG on, static | the MIG devices that exist; what is not cut is stranded |
| dynamic, from Hopper on | the whole GPU and every possible MIG device |
| dynamic, before Hopper | MIG off: the whole GPU; on: every possible MIG device; switching needs a reset |
| dynamic, MIG turned on by somebody else | every possible MIG device; we do not turn it off for a whole GPU |
| dynamic, with MIG devices that somebody else made | these, and every possible one that leaves them alone |
| MIG turned on by us, with nothing on it | the whole GPU, for which MIG is turned off |
| passthrough | a VFIO device besides, unless MIG devices exist |

Devices of one GPU that exclude each other take from one counter set, so the scheduler never gives out both, and nothing
has to be withdrawn when one is prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dra_driver_gpu.describe import amounts, attributes, passthrough
from dra_driver_gpu.describe.cards import Card, ExistingMig, Size
from dra_driver_gpu.describe.names import counter_set_name, gpu_name, mig_name
from dra_driver_gpu.describe.passthrough import PassthroughGpu
from dra_driver_gpu.describe.sharing import Sharing
from dra_driver_gpu.nvml.values import Placement
from dra_sdk import AttributeValue, Capacity, CounterConsumption, CounterSet, Device, Quantity, ResourcePool

_WHOLE: Final = {"whole": 1}
_MOST: Final = 32  # attributes and capacities of one device (resource.k8s.io/v1)


def _everything(*_: object) -> bool:
    return True


def _nothing(*_: object) -> bool:
    return False


def _unknown(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node's operator wants published.

    `ours` tells MIG devices that we made, and may remove, from others'; `switched` GPUs on which we turned MIG on, and
    so may turn it off; `product` the name of a GPU that is with VFIO, None where we did not bring it there.
    """

    dynamic_mig: bool = False
    passthrough: bool = False
    sharing: Sharing = field(default_factory=Sharing)
    wants: Callable[[Card], bool] = _everything
    ours: Callable[[Card, ExistingMig], bool] = _everything
    switched: Callable[[Card], bool] = _nothing
    product: Callable[[PassthroughGpu], str | None] = _unknown


def pool(name: str, cards: Iterable[Card], others: Sequence[PassthroughGpu], offer: Offer) -> ResourcePool:
    """All devices of a node, GPU by GPU, with one counter set for each GPU that can be used in several ways."""
    devices: list[Device] = []
    counter_sets: list[CounterSet] = []
    seen = {card.pci_address: card for card in cards}
    for card in seen.values():
        if offer.wants(card):
            found, counters = _of_card(card, _sibling(card, others) if offer.passthrough else None, offer)
            devices += found
            counter_sets += [counters] if counters else []
    if offer.passthrough:
        away = [each for each in others if each.bound and each.pci.address not in seen]
        devices += [passthrough.device(each, offer.product(each)) for each in away]
    return ResourcePool(name, devices, counter_sets)


def stranded(cards: Iterable[Card], published: ResourcePool) -> Iterator[Card]:
    """The GPUs with MIG on of which nothing is published, because nobody cut them."""
    used = {each.attributes.get("parentUUID") for each in published.devices}
    used |= {each.attributes.get("uuid") for each in published.devices}
    yield from (card for card in cards if card.mig and card.uuid not in used)


def _of_card(card: Card, vfio: PassthroughGpu | None, offer: Offer) -> tuple[list[Device], CounterSet | None]:
    foreign = [each for each in card.existing if not offer.ours(card, each)]
    parts = list(_partitions(card, foreign)) if _cuts(card, offer) else []
    existing = list(_existing(card, [each for each in foreign if each.shared] if parts else card.existing))
    whole = not existing and not foreign and (not card.mig or offer.switched(card))
    counters = amounts.whole(card) if parts else _WHOLE
    taken = [CounterConsumption(counter_set_name(card.minor), counters)]
    alternatives = bool(parts) or (whole and vfio is not None)
    devices = [_gpu(card, taken if alternatives else [])] if whole else []
    devices = [offer.sharing.applied(each) for each in [*devices, *parts, *existing]]
    if vfio is not None and whole:
        sibling = passthrough.device(vfio, card.product)
        devices.append(Device(sibling.name, sibling.attributes, sibling.capacity, consumes=taken))
    return devices, CounterSet(counter_set_name(card.minor), counters) if alternatives else None


def _cuts(card: Card, offer: Offer) -> bool:
    """Whether MIG devices are made on demand: not in a vGPU guest, and before Hopper only where MIG is on already."""
    return offer.dynamic_mig and bool(card.sizes) and not card.guest and (card.mig or card.switches_freely)


def _gpu(card: Card, consumes: Sequence[CounterConsumption]) -> Device:
    capacity = {} if card.memory_bytes is None else {amounts.MEMORY: amounts.bytes_(card.memory_bytes)}
    return Device(gpu_name(card.minor), attributes.of_gpu(card), capacity, consumes=consumes)


def _partitions(card: Card, foreign: Sequence[ExistingMig]) -> Iterator[Device]:
    """Every profile at every place, the smallest first, each first where it leaves the most room for others.

    The scheduler takes the first that fits, so this order keeps a GPU from being cut into what nothing large fits
    between. It is the order in which NVIDIA's driver itself chooses places.
    """
    possible = [
        (size, placement)
        for size in card.sizes
        for placement in size.placements
        if not any(_in_the_way(each, size, placement) for each in foreign)
    ]

    def order(one: tuple[Size, Placement]) -> tuple[int, ...]:
        size, placement = one
        lost = sum(placement.overlaps(other) for _, other in possible)
        return size.profile.slices, size.profile.memory_mib, size.profile.id, lost, placement.start

    for size, placement in sorted(possible, key=order):
        yield _partition(card, size, placement)


def _partition(card: Card, size: Size, placement: Placement) -> Device:
    taken = CounterConsumption(counter_set_name(card.minor), amounts.consumed(size, placement))
    return Device(
        mig_name(card.minor, size.name, size.profile.id, placement.start),
        attributes.of_mig(card, size.name),
        amounts.of_profile(size.profile),
        consumes=[taken],
    )


def _in_the_way(mig: ExistingMig, size: Size, placement: Placement) -> bool:
    """Whether a MIG device that is not ours takes the place; one that is just what is wanted can be used."""
    same = mig.size.profile.id == size.profile.id and mig.placement == placement and not mig.shared
    return mig.placement.overlaps(placement) and not same


def _existing(card: Card, devices: Iterable[ExistingMig]) -> Iterator[Device]:
    """MIG devices as they are; several that are cut from one GPU instance have its number in common.

    Their memory slices are told where there is room: the whole of an RTX PRO 6000 has 12 of them.
    """
    for mig in (each for each in devices if not each.bare):
        profile, compute = mig.size.name, None
        capacity: dict[str, Capacity | Quantity | int | str] = {**amounts.of_profile(mig.size.profile)}
        own: dict[str, AttributeValue] = {}
        if mig.shared:
            profile, compute = f"{mig.compute_slices}c.{profile}", mig.compute_instance
            capacity["multiprocessors"] = mig.multiprocessors
            own = {"gpuInstance": mig.gpu_instance}
        name = mig_name(card.minor, profile, mig.size.profile.id, mig.placement.start, compute)
        described = {**attributes.of_mig(card, profile, mig.uuid), **own}
        if len(described) + len(capacity) + mig.placement.size < _MOST:  # one is left for shares
            capacity |= amounts.slices(mig.placement)
        yield Device(name, described, capacity)


def _sibling(card: Card, others: Sequence[PassthroughGpu]) -> PassthroughGpu | None:
    return next((gpu for gpu in others if gpu.pci.address == card.pci_address), None)
