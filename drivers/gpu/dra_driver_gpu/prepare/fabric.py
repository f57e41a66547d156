"""Partitions of the NVSwitch fabric for virtual machines: published, activated for a claim, and deactivated after it.

A claim for GPUs with VFIO gets the partition that consists of exactly these GPUs. It is activated before they are
bound, and deactivated after they have their driver again. The Fabric Manager numbers GPUs by module, as NVML does. NVML
does not see a GPU that is bound to VFIO, so the module of each GPU is recorded when it is seen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dra_driver_gpu.fabric_manager import FabricManager, Partition
from dra_driver_gpu.gpu_record import FABRIC_STEP, JSON
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml.library import NoDriverError
from dra_driver_gpu.nvml.queries import ask_each_gpu
from dra_sdk import Claim, DraError, PermanentError, ResourcePool, RetriableError
from dra_sdk.hardware import PCI_BUS_ID
from dra_sdk.hardware.records import Records

log = logging.getLogger(__name__)
_SIZES: Final = (1, 2, 4, 8)  # of partitions that have an attribute, as the existing driver publishes them
_NODE: Final = "node"  # the one lock for partitions of a node


@dataclass
class FabricRecord:
    """What is known of a GPU, by PCI address, or of the partitions of a node, under `node`.

    module: the module number of a GPU; None for the node.
    partitions: the claims that hold a partition, by its number as text.
    """

    module: int | None = None
    partitions: dict[str, str] = field(default_factory=dict)


def with_partitions(pool: ResourcePool, node: NvidiaNode, manager: FabricManager) -> ResourcePool:
    """Return the pool with `gpuModuleID`, and `partition1` to `partition8`, of GPUs and VFIO devices.

    `partition4` is the partition of four GPUs that this GPU belongs to; absent if there is none, or several.
    """
    try:
        modules, partitions = read_modules(node), manager.partitions()
    except DraError as error:
        log.warning("partitions of the NVSwitch fabric are not published: %s", error)
        return pool
    devices = []
    for device in pool.devices:
        module = modules.get(str(device.attributes.get(PCI_BUS_ID)))
        if module is not None and device.attributes["type"] != "mig":
            device = replace(device, attributes={**device.attributes, **_attributes(module, partitions)})  # noqa: PLW2901
        devices.append(device)
    return replace(pool, devices=devices)


def partitions_seen(manager: FabricManager) -> Iterator[tuple[object, ...]]:
    """Yield the partitions that the machine supports, or how the Fabric Manager fails: a change is published."""
    try:
        yield from ((partition.id, partition.modules) for partition in manager.partitions())
    except DraError as error:  # the next discovery reports it
        yield ("fabric", type(error))


def read_modules(node: NvidiaNode) -> dict[str, int]:
    """Read the module numbers of GPUs by PCI address: of those that NVML sees, or has seen since the boot."""
    records = fabric_records(node)
    try:
        with node.nvml() as nvml:
            seen, _ = ask_each_gpu(nvml, lambda gpu: (gpu.pci().address, gpu.module_id()))
    except NoDriverError:
        seen = {}
    for address, module in seen.values():
        if records.read(address).module != module:
            with records.locked(address) as record:
                record.module = module
                records.save(address, record)
    known = {address: records.read(address).module for address in records.devices()}
    return {address: module for address, module in known.items() if module is not None}


def _attributes(module: int, partitions: Iterable[Partition]) -> dict[str, int]:
    mine = [partition for partition in partitions if module in partition.modules]
    by_size = {size: [partition.id for partition in mine if len(partition.modules) == size] for size in _SIZES}
    unique = {f"partition{size}": ids[0] for size, ids in by_size.items() if len(ids) == 1}
    return {"gpuModuleID": module, **unique}


def activate(node: NvidiaNode, manager: FabricManager, claim: Claim[Any], addresses: Iterable[str]) -> None:
    """Activate the partition of the GPUs at these PCI addresses.

    Raises PermanentError if they are no partition, FabricError if it cannot be activated now.
    """
    wanted, known = sorted(addresses), read_modules(node)
    if missing := [address for address in wanted if address not in known]:
        raise RetriableError(
            f"the NVSwitch module of GPU {missing[0]} is not known; NVML has not seen it since the boot"
        )
    modules = frozenset(known[address] for address in wanted)
    partitions = manager.partitions()
    chosen = next((partition for partition in partitions if partition.modules == modules), None)
    if chosen is None:
        sets = "; ".join(", ".join(map(str, sorted(partition.modules))) for partition in partitions)
        raise PermanentError(
            f"GPUs {', '.join(wanted)} (modules {', '.join(map(str, sorted(modules)))}) are no partition of the "
            f"NVSwitch fabric; there are {sets or 'none'}. Select GPUs with the same attribute partition{len(modules)}"
        )
    records = fabric_records(node)
    with records.locked(_NODE) as record:
        owner = record.partitions.get(str(chosen.id))
        if chosen.active and owner is None:  # an operator activated it, and it stays
            return
        if owner not in {None, claim.uid}:
            raise RetriableError(f"partition {chosen.id} of the NVSwitch fabric belongs to claim {owner}")
        claim.journal({"step": FABRIC_STEP, "partition": chosen.id})
        record.partitions[str(chosen.id)] = claim.uid
        records.save(_NODE, record)
        if not chosen.active:
            manager.activate(chosen.id)


def deactivate(node: NvidiaNode, manager: FabricManager, uid: str, entry: JSON) -> None:
    """Undo `activate` for the claim `uid` with `entry` in its journal."""
    key, records = str(entry["partition"]), fabric_records(node)
    with records.locked(_NODE) as record:
        if record.partitions.get(key) != uid:
            return
        if any(partition.active for partition in manager.partitions() if str(partition.id) == key):
            manager.deactivate(entry["partition"])
        del record.partitions[key]
        records.save(_NODE, record)


def fabric_steps(node: NvidiaNode) -> Iterator[tuple[str, JSON]]:
    """Yield the claims that hold a partition, each with the step that undoes it."""
    for key, uid in fabric_records(node).read(_NODE).partitions.items():
        yield uid, {"step": FABRIC_STEP, "partition": int(key)}


def fabric_records(node: NvidiaNode) -> Records[FabricRecord]:
    """Return the records of a node."""
    directory = node.local(f"{node.settings.state_dir}/fabric")
    return Records(directory, FabricRecord, node.boot_id, node.clock)
