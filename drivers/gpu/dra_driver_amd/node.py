"""A node with AMD GPUs: the driver's settings for it, its record of each GPU, and the GPUs as they are published.

While a claim has changed a GPU, the GPU is published as it was before, so that no device changes under its claim.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dra_driver_amd.gpus import KERNEL_DRIVER, AmdGpu, read_gpus
from dra_driver_amd.settings import AmdSettings
from dra_sdk import RetriableError
from dra_sdk.hardware import link_target_name, read_pci_device
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.records import RecordError, Records

log = logging.getLogger(__name__)
JSON: TypeAlias = dict[str, Any]


@dataclass
class AmdGpuRecord:
    """The record of a PCI function that a claim has changed, by its PCI address. A GPU has one claim that may do so.

    claim: the UID of the claim.
    entry: the entry of the claim's journal, by which the change is undone.
    divided: for a GPU that is divided for the claim, the whole GPU before that, see `AmdGpu.to_json`.
    product: for a GPU that is bound to VFIO, its product name; empty if the board does not report it.
    capacity: for a GPU that is bound to VFIO, its capacities.
    """

    claim: str = ""
    entry: JSON = field(default_factory=dict)
    divided: JSON = field(default_factory=dict)
    product: str = ""
    capacity: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AmdNode(NodeAccess):
    """A node, and the driver's settings for it.

    settings: the settings.
    """

    settings: AmdSettings = field(kw_only=True)

    @property
    def records(self) -> Records[AmdGpuRecord]:
        """The records of the node."""
        return Records(self.local(f"{self.settings.state_dir}/gpus"), AmdGpuRecord, self.boot_id, self.clock)

    @contextmanager
    def record(self, address: str, claim: str) -> Iterator[AmdGpuRecord]:
        """Lock the record of a function for a claim. Raises RetriableError if another claim has changed it."""
        with self.records.locked(address) as record:
            if record.claim not in {"", claim}:
                raise RetriableError(f"GPU {address} is still changed for claim {record.claim}")
            yield record

    @contextmanager
    def undoing(self, address: str, claim: str) -> Iterator[bool]:
        """Lock the record of a function to undo what a claim changed; False if another claim has changed it since."""
        with self.records.locked(address) as record:
            yield record.claim in {"", claim}

    def recorded(self) -> dict[str, AmdGpuRecord | None]:
        """Read the records of all functions that claims have changed, by PCI address; None for an unreadable one."""
        records, by_address = self.records, dict[str, AmdGpuRecord | None]()
        for address in records.devices():
            try:
                by_address[address] = records.read(address)
            except RecordError as error:
                log.warning("what a claim has changed on GPU %s is not known: %s", address, error)
                by_address[address] = None
        return by_address

    def gpus(self) -> tuple[AmdGpu, ...]:
        """Return all GPUs and partitions that can be published, by card.

        A GPU that is divided for a claim is the whole GPU that the claim asked for, also in the moment of the change,
        in which KFD does not know it. A GPU whose record cannot be read is left out.
        """
        recorded = self.recorded()
        divided = {at: record.divided for at, record in recorded.items() if record is not None and record.divided}
        hidden = divided.keys() | {at for at, record in recorded.items() if record is None}
        gpus = [gpu for gpu in read_gpus(self.host) if gpu.pci.address not in hidden]
        for address, gpu in divided.items():
            if link_target_name(self.host.sys / "bus/pci/devices" / address / "driver") == KERNEL_DRIVER:
                gpus.append(AmdGpu.from_json(gpu, read_pci_device(self.host, address)))
        return tuple(sorted(gpus, key=lambda gpu: (gpu.card, gpu.render)))
