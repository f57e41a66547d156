"""A device that is set up: what its containers get, and what is remembered of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dra_driver_gpu.config import VfioDeviceConfig
from dra_driver_gpu.edits import nodes
from dra_driver_gpu.edits.container import VOID, mps_client
from dra_driver_gpu.edits.graphics import graphics_edits
from dra_driver_gpu.prepare.mig import MigInstance
from dra_driver_gpu.prepare.plan import Kind, Wanted
from dra_driver_gpu.prepare.vfio import Vfio
from dra_driver_gpu.site import Site
from dra_sdk import ContainerEdits, DeviceNode

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One device of a claim, set up.

    `uuid` and `minor` are of the GPU, `mig` of the MIG device on it; for VFIO there is only `vfio`. All may be missing
    where a claim may only look at what is not there.
    """

    wanted: Wanted
    uuid: str = ""
    minor: int = -1
    address: str = ""
    mig: MigInstance | None = None
    vfio: Vfio | None = None

    @property
    def cuda_uuid(self) -> str:
        """By which CUDA and MPS know it."""
        return self.mig.uuid if self.mig else self.uuid

    @property
    def data(self) -> JSON:
        """What is kept with the claim, for people and monitors; undoing needs the journal alone."""
        known: JSON = {"type": self.wanted.kind.value, "pciBusID": self.address}
        if self.mig:
            known |= {"uuid": self.mig.uuid, "gi": self.mig.gpu_instance, "ci": self.mig.compute_instance}
        if self.uuid:
            known["parentUUID" if self.wanted.kind is Kind.MIG else "uuid"] = self.uuid
        return known

    def edits(self, site: Site, daemon_id: str | None) -> ContainerEdits:
        """Its own edits, without those that a container needs once for all its GPUs."""
        if self.wanted.kind is Kind.VFIO:
            return self._vfio_edits(site)
        monitor = nodes.monitor_nodes(site) if self.wanted.admin else []
        edits = ContainerEdits(device_nodes=[*self._own_nodes(site), *monitor])
        if self.wanted.kind is Kind.GPU or (self.mig and self.wanted.graphics):
            edits += graphics_edits(site, self.address)
        return edits + mps_client(site, daemon_id) if daemon_id else edits

    def _own_nodes(self, site: Site) -> list[DeviceNode]:
        if self.mig is None:
            return nodes.gpu_nodes(site, self.minor)
        return nodes.mig_nodes(site, self.minor, self.mig.gpu_instance, self.mig.compute_instance)

    def _vfio_edits(self, site: Site) -> ContainerEdits:
        if self.vfio is None or not isinstance(self.wanted.config, VfioDeviceConfig):
            return VOID
        iommu = self.wanted.config.iommu
        prefer = iommu.backend_policy == "PreferIommuFD"
        found = nodes.vfio_nodes(site, self.vfio, iommufd=prefer, api=iommu.enable_api_device)
        return VOID + ContainerEdits(device_nodes=found)
