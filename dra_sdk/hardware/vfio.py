"""VFIO: PCI functions for virtual machines, their drivers, IOMMU groups and device nodes.

`Passthrough` has the whole way of a function to VFIO and back. A driver keeps it in the claim's journal:

    step = Passthrough.plan(node, read_pci_device(node.host, "0000:65:00.0"))
    claim.journal(step.entry)
    step.bind(node)
    …
    step = Passthrough.from_entry(entry)        # in dra_unprepare
    step.wait_until_free(node, "FPGA 3", 30)
    step.restore(node)

Variant drivers, `nvgrace_gpu_vfio_pci` for instance, replace `vfio-pci` for certain devices. Source: the kernel's
Documentation/driver-api/vfio.rst, and `PCI_DRIVER_OVERRIDE_DEVICE_VFIO` of linux/pci.h for the aliases of variants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from dra_sdk.errors import DraError, HardwareError, PermanentError, RetriableError
from dra_sdk.hardware.host import entries, exists, link_target_name, read_if_exists, read_large_text, read_text
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.pci import PciDevice, read_pci_devices
from dra_sdk.hardware.pci_driver import (
    PciBinding,
    bind,
    function_path,
    load_module,
    read_binding,
    restore,
    wait_until_free,
)
from dra_sdk.model.edits import DeviceNode

BackendPolicy = Literal["LegacyOnly", "PreferIommuFD"]
VFIO_PCI: Final = "vfio-pci"
_MODULE: Final = "vfio_pci"
_ALIAS: Final = "alias vfio_pci:"
_WITHOUT_DMA: Final = frozenset({None, "pci-stub", "pcieport"})
"""Drivers that may share an IOMMU group with VFIO; the kernel refuses a group with any other."""


def _null_is(default: Any, kind: Any) -> BeforeValidator:
    """Let `null` mean the default, as for every optional field of Kubernetes; `kind` is the type of other values."""
    return BeforeValidator(lambda value: default if value is None else value, json_schema_input_type=kind | None)


class Iommu(BaseModel):
    """The interface by which a virtual machine gets a device, as users configure it.

    It is a field of a driver's configuration class:

        class VfioDeviceConfig(OpaqueConfig, api_version="lights.example.com/v1"):
            iommu: IommuField = Field(default_factory=Iommu)

    backend_policy: `LegacyOnly`: the IOMMU group. `PreferIommuFD`: IOMMUFD if the kernel has it.
    enable_api_device: add `/dev/vfio/vfio` or `/dev/iommu`, by which devices are opened; `enableAPIDevice` in a claim.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    backend_policy: Annotated[BackendPolicy, _null_is("LegacyOnly", BackendPolicy)] = "LegacyOnly"
    enable_api_device: Annotated[bool, Field(strict=True), _null_is(False, bool)] = Field(
        default=False, alias="enableAPIDevice"
    )

    def device_nodes(self, node: NodeAccess, device: VfioDevice | None) -> list[DeviceNode]:
        """Return the device nodes for a virtual machine; none without a device. See `device_nodes` of this module."""
        if device is None:
            return []
        prefer = self.backend_policy == "PreferIommuFD"
        return device_nodes(node, device, iommufd=prefer, api=self.enable_api_device)


IommuField: TypeAlias = Annotated[Iommu, _null_is({}, Iommu)]
"""An `Iommu` as the field of a configuration class; `null` means the default."""


@dataclass(frozen=True, slots=True)
class VfioDevice:
    """A PCI function with a VFIO driver.

    group: its IOMMU group.
    device: its `vfioN` device for IOMMUFD; None if the kernel has none.
    """

    group: int
    device: str | None


@dataclass(frozen=True, slots=True)
class Passthrough:
    """A PCI function that is passed through, with those that go with it: other functions of its card, such as audio.

    These are the physical functions of its slot in its IOMMU group. A virtual function is passed through alone.

    functions: how they were bound before, the function itself first.
    ids: vendor and device of each function by PCI address, so that another card at the address is left alone.
    """

    functions: Sequence[PciBinding]
    ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def plan(
        cls,
        node: NodeAccess,
        pci: PciDevice,
        *,
        functions: Iterable[PciDevice] | None = None,
        together: Iterable[str] = (),
    ) -> Self:
        """Return what must be bound to pass a function through; changes nothing.

        functions: all functions of the node, if the caller has read them.
        together: the PCI addresses of all functions that the claim passes through.

        Raises PermanentError if it cannot be passed through (see `check_group`), RetriableError while a write for it is
        pending.
        """
        number = _group(pci)
        known = read_pci_devices(node.host) if functions is None else functions
        group = [function for function in known if function.iommu_group == number]
        _check_all_read(node, number, {function.address for function in group})
        check_group(pci, group, frozenset(together))
        addresses = [other.address for other in group if _goes_with(pci, other) and other.address != pci.address]
        bindings = [read_binding(node, address) for address in (pci.address, *addresses)]
        return cls(bindings, {binding.address: _identity(node, binding.address) for binding in bindings})

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """Return the passthrough that a journal keeps."""
        return cls([PciBinding(**function) for function in entry["functions"]], entry.get("ids", {}))

    @property
    def entry(self) -> dict[str, Any]:
        """What a journal keeps, as JSON; a driver may add keys of its own."""
        return {"functions": [asdict(function) for function in self.functions], "ids": dict(self.ids)}

    def bind(self, node: NodeAccess) -> None:
        """Bind every function to its VFIO driver. Raises RetriableError; then `restore` those that were bound."""
        for function in self.functions:
            bind(node, function.address, vfio_driver(node, function.address))

    def changed(self, node: NodeAccess) -> bool:
        """Return whether a function is not bound as before. Raises RetriableError while a write is pending."""
        return bool(self._changed(node))

    def is_there(self, node: NodeAccess) -> bool:
        """Return whether the function itself is there; False also for another card at its address."""
        return self.functions[0] in self._left(node) and exists(function_path(node, self.functions[0].address))

    def wait_until_free(self, node: NodeAccess, name: str, seconds: float) -> None:
        """Wait until no virtual machine uses the functions. Raises RetriableError with `name` and the processes."""
        nodes = machine_nodes(node, (function.address for function in self._changed(node)))
        wait_until_free(node, name, nodes, seconds)

    def restore(self, node: NodeAccess) -> None:
        """Bind every function as before, also after one that is refused; see `pci_driver.restore`."""
        refused: list[DraError] = []
        for function in self._left(node):
            try:
                restore(node, function)
            except (RetriableError, HardwareError) as error:
                refused.append(error)
        if refused:
            raise RetriableError("; ".join(map(str, refused))) from refused[0]

    def _changed(self, node: NodeAccess) -> list[PciBinding]:
        return [function for function in self._left(node) if read_binding(node, function.address) != function]

    def _left(self, node: NodeAccess) -> list[PciBinding]:
        """Return the functions whose card was not replaced; one that is missing may come back."""
        known = ((function, self.ids.get(function.address)) for function in self.functions)
        return [function for function, was in known if not was or _identity(node, function.address) in {was, ""}]


def vfio_device(pci: PciDevice) -> VfioDevice:
    """Return a function that has a VFIO driver. Raises PermanentError without an IOMMU group."""
    names = _vfio_devices(pci.path)
    return VfioDevice(_group(pci), names[0] if names else None)


def _vfio_devices(path: Path) -> list[str]:
    return [name for name in entries(path / "vfio-dev") if name.startswith("vfio")]


def _group(pci: PciDevice) -> int:
    """Return the number of a function's IOMMU group. Raises PermanentError without one."""
    if pci.iommu_group is None:
        raise PermanentError(f"PCI function {pci.address} is in no IOMMU group")
    return pci.iommu_group


def is_vfio_driver(driver: str | None) -> bool:
    """Return whether this is `vfio-pci` or a variant of it."""
    return driver is not None and driver.replace("-", "_").endswith(_MODULE)


def vfio_driver(node: NodeAccess, address: str) -> str:
    """Return the VFIO driver for a function: a variant if the kernel has one for it, else `vfio-pci`.

    Raises HardwareError if the module of the variant has no driver.
    """
    module = _variant_module(node, address)
    if module in {None, _MODULE}:
        return VFIO_PCI
    drivers = node.host.sys / f"module/{module}/drivers"
    if not exists(drivers):
        load_module(node, str(module))
    names = [name.removeprefix("pci:") for name in entries(drivers) if name.startswith("pci:")]
    if not names:
        raise HardwareError(f"kernel module {module} has no PCI driver, but is the VFIO variant for {address}")
    return names[0]


def slot(address: str) -> str:
    """Return the slot of a PCI function: its address without the function number."""
    return address.rpartition(".")[0]


def _check_all_read(node: NodeAccess, number: int, read: Collection[str]) -> None:
    """Raise RetriableError if a function of a group cannot be read: it may be one that another driver uses."""
    unread = set(entries(node.host.sys / f"kernel/iommu_groups/{number}/devices")).difference(read)
    if unread:
        raise RetriableError(f"PCI function {min(unread)} of IOMMU group {number} cannot be read")


def check_group(pci: PciDevice, functions: Iterable[PciDevice], together: frozenset[str]) -> None:
    """Check that a function can be passed through, with those that go with it (see `Passthrough`).

    functions: those of its IOMMU group.
    together: the PCI addresses of other functions that are passed through at the same time, with those that go with
        them.

    Raises PermanentError if it has virtual functions, or if its group has a function that another driver uses.
    """
    if pci.sriov is not None and pci.sriov.vfs:
        raise PermanentError(
            f"PCI function {pci.address} has {len(pci.sriov.vfs)} virtual functions; it cannot be passed through"
        )
    group = tuple(functions)
    passed = [pci, *(function for function in group if function.address in together)]
    for other in group:
        if any(_goes_with(function, other) for function in passed):
            continue
        if other.driver not in _WITHOUT_DMA and not is_vfio_driver(other.driver):
            raise PermanentError(
                f"PCI function {pci.address} cannot be passed through alone: function {other.address} with driver "
                f"{other.driver} is in the same IOMMU group {pci.iommu_group}"
            )


def _identity(node: NodeAccess, address: str) -> str:
    """Return vendor and device of a function, such as `0x10de:0x2330`; empty if it is not there."""
    files = (read_if_exists(read_text, function_path(node, address) / name) for name in ("vendor", "device"))
    return ":".join(filter(None, files))


def _goes_with(pci: PciDevice, other: PciDevice) -> bool:
    """Return whether a function is passed through with `pci`: itself, or both are physical functions of one slot.

    Virtual functions of one card may share a slot, and each is a device of its own (SR-IOV 1.1, section 2.1.2).
    """
    physical = pci.physical_function is None and other.physical_function is None
    return other.address == pci.address or (physical and slot(other.address) == slot(pci.address))


def machine_nodes(node: NodeAccess, addresses: Iterable[str]) -> list[str]:
    """Return the device nodes by which a virtual machine uses the functions at these PCI addresses."""
    paths = [function_path(node, address) for address in addresses]
    bound = [path for path in paths if is_vfio_driver(link_target_name(path / "driver"))]
    groups = {name for path in bound if (name := link_target_name(path / "iommu_group"))}
    devices = sorted(device for path in bound for device in _vfio_devices(path))
    return [*(f"/dev/vfio/{name}" for name in sorted(groups)), *(f"/dev/vfio/devices/{name}" for name in devices)]


def device_nodes(node: NodeAccess, vfio: VfioDevice, *, iommufd: bool, api: bool) -> list[DeviceNode]:
    """Return the device nodes for a virtual machine.

    iommufd: prefer IOMMUFD to the IOMMU group if the kernel has it.
    api: add `/dev/iommu` or `/dev/vfio/vfio`, by which devices are opened.

    Raises RetriableError if one is missing.
    """
    if iommufd and vfio.device is not None and exists(node.host.dev / "iommu"):
        device, api_device = f"/dev/vfio/devices/{vfio.device}", "/dev/iommu"
    else:
        device, api_device = f"/dev/vfio/{vfio.group}", "/dev/vfio/vfio"
    paths = [device, *([api_device] if api else [])]
    for path in paths:
        if not exists(node.local(path)):
            raise RetriableError(f"device node {path} is missing on the node")
    return [DeviceNode(path) for path in paths]


def _variant_module(node: NodeAccess, address: str) -> str | None:
    """Return the module whose alias fits with the fewest wildcards, as libvirt chooses; None if no alias fits."""
    modalias = (read_if_exists(read_text, function_path(node, address) / "modalias") or "").removeprefix("pci:")
    release = read_if_exists(read_text, node.host.proc / "sys/kernel/osrelease") or ""
    known = read_if_exists(read_large_text, node.local(f"/lib/modules/{release}/modules.alias")) or ""
    aliases = [line.removeprefix(_ALIAS).split() for line in known.splitlines() if line.startswith(_ALIAS)]
    fitting = [alias for alias in aliases if fnmatchcase(modalias, alias[0])]
    return min(fitting, key=lambda alias: alias[0].count("*"))[1].replace("-", "_") if fitting else None
