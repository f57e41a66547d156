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
    """The pool with `gpuModuleID`, and `partition1` to `partition8`, of GPUs and VFIO devices.

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
    """The partitions that the machine supports, or how the Fabric Manager fails: if that differs, publish again."""
    try:
        yield from ((each.id, each.modules) for each in manager.partitions())
    except DraError as error:  # the next discovery reports it
        yield ("fabric", type(error))


def read_modules(node: NvidiaNode) -> dict[str, int]:
    """The module numbers of GPUs by PCI address: of those that NVML sees, and of those that it saw since the boot."""
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
    mine = [each for each in partitions if module in each.modules]
    by_size = {size: [each.id for each in mine if len(each.modules) == size] for size in _SIZES}
    found = {f"partition{size}": ids[0] for size, ids in by_size.items() if len(ids) == 1}
    return {"gpuModuleID": module, **found}


def activate(node: NvidiaNode, manager: FabricManager, claim: Claim[Any], addresses: Iterable[str]) -> None:
    """Activate the partition of the GPUs at these PCI addresses.

    Raises PermanentError if they are no partition, FabricError if it cannot be activated now.
    """
    wanted, known = sorted(addresses), read_modules(node)
    if missing := [each for each in wanted if each not in known]:
        raise RetriableError(
            f"the NVSwitch module of GPU {missing[0]} is not known; NVML has not seen it since the boot"
        )
    modules = frozenset(known[each] for each in wanted)
    partitions = manager.partitions()
    found = next((each for each in partitions if each.modules == modules), None)
    if found is None:
        sets = "; ".join(", ".join(map(str, sorted(each.modules))) for each in partitions)
        raise PermanentError(
            f"GPUs {', '.join(wanted)} (modules {', '.join(map(str, sorted(modules)))}) are no partition of the "
            f"NVSwitch fabric; there are {sets or 'none'}. Select GPUs with the same attribute partition{len(modules)}"
        )
    records = fabric_records(node)
    with records.locked(_NODE) as record:
        owner = record.partitions.get(str(found.id))
        if found.active and owner is None:  # an operator activated it, and it stays
            return
        if owner not in {None, claim.uid}:
            raise RetriableError(f"partition {found.id} of the NVSwitch fabric belongs to claim {owner}")
        claim.journal({"step": FABRIC_STEP, "partition": found.id})
        record.partitions[str(found.id)] = claim.uid
        records.save(_NODE, record)
        if not found.active:
            manager.activate(found.id)


def deactivate(node: NvidiaNode, manager: FabricManager, uid: str, entry: JSON) -> None:
    """Undo `activate` for the claim `uid` with `entry` in its journal."""
    key, records = str(entry["partition"]), fabric_records(node)
    with records.locked(_NODE) as record:
        if record.partitions.get(key) != uid:
            return
        if any(each.active for each in manager.partitions() if str(each.id) == key):
            manager.deactivate(entry["partition"])
        del record.partitions[key]
        records.save(_NODE, record)


def fabric_steps(node: NvidiaNode) -> Iterator[tuple[str, JSON]]:
    """The claims that hold a partition, each with the step that undoes it."""
    for key, uid in fabric_records(node).read(_NODE).partitions.items():
        yield uid, {"step": FABRIC_STEP, "partition": int(key)}


def fabric_records(node: NvidiaNode) -> Records[FabricRecord]:
    """The records of a node."""
    directory = node.local(f"{node.settings.state_dir}/fabric")
    return Records(directory, FabricRecord, node.boot_id, node.clock)
