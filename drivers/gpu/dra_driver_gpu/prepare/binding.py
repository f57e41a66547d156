"""Which kernel driver a PCI function has, and giving it another, by the files of sysfs.

Source: Documentation/ABI/testing/sysfs-bus-pci (`driver_override`, `bind`, `unbind`, `drivers_probe`); for VFIO
drivers of certain devices `PCI_DRIVER_OVERRIDE_DEVICE_VFIO` of the kernel's linux/pci.h, whose aliases modprobe knows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from dra_driver_gpu.effects import Command
from dra_driver_gpu.site import Site
from dra_sdk import HardwareError, RetriableError
from dra_sdk.hardware import link_name, optional, read_text

log = logging.getLogger(__name__)
VFIO: Final = "vfio-pci"
_ALIAS: Final = "alias vfio_pci:"
_NONE: Final = "(null)"


@dataclass(frozen=True, slots=True)
class Former:
    """What a function was like: its driver (None for none) and its `driver_override` (empty for none)."""

    address: str
    driver: str | None
    override: str


def former(site: Site, address: str) -> Former:
    """What the function at a PCI address is like now."""
    path = _function(site, address)
    override = optional(read_text, path / "driver_override") or ""
    return Former(address, _driver(path), "" if override == _NONE else override)


def vfio_driver(site: Site, address: str) -> str:
    """The VFIO driver for a function: the kernel's own for such devices if it has one, else `vfio-pci`.

    HardwareError where that cannot be loaded.
    """
    module = _vfio_module(site, address)
    if module in {None, "vfio_pci"}:
        return VFIO
    drivers = site.host.sys / f"module/{module}/drivers"
    if not drivers.exists():
        _modprobe(site, str(module))
    names = sorted(path.name.removeprefix("pci:") for path in drivers.glob("pci:*"))
    if not names:
        raise HardwareError(f"kernel module {module} has no PCI driver, which is to give {address} to virtual machines")
    return names[0]


def _vfio_module(site: Site, address: str) -> str | None:
    """Of the aliases that fit the one with the fewest wildcards, as libvirt chooses; None where there is none."""
    identity = (optional(read_text, _function(site, address) / "modalias") or "").removeprefix("pci:")
    release = optional(read_text, site.host.proc / "sys/kernel/osrelease") or ""
    known = optional(read_text, site.here(f"/lib/modules/{release}/modules.alias")) or ""
    aliases = [line.removeprefix(_ALIAS).split() for line in known.splitlines() if line.startswith(_ALIAS)]
    fitting = [each for each in aliases if fnmatchcase(identity, each[0])]
    return min(fitting, key=lambda each: each[0].count("*"))[1].replace("-", "_") if fitting else None


def bind(site: Site, address: str, driver: str) -> None:
    """Give a function this driver, whichever it has. RetriableError where the driver does not take it."""
    path = _function(site, address)
    if _driver(path) == driver:
        return
    _load(site, driver)
    _unbind(site, path)
    site.effects.write(path / "driver_override", f"{driver}\n")
    site.effects.write(_drivers(site) / driver / "bind", address)
    if (found := _driver(path)) != driver:
        raise RetriableError(f"PCI function {address} has driver {found or 'none'} after it was bound to {driver}")


def restore(site: Site, was: Former) -> None:
    """Make a function what it was; nothing to do where it is, or where it is gone.

    A driver that was removed meanwhile takes the function by itself when it comes back: till then it has none.
    """
    path = _function(site, was.address)
    if not path.exists():
        return
    now, driver = former(site, was.address), was.driver
    if driver is not None and not (_drivers(site) / driver).exists():
        log.warning("PCI function %s stays without driver: the kernel has %s no more", was.address, driver)
        driver = None
    if now.driver != driver:
        _unbind(site, path)
        if driver is not None:
            # Its override must allow the driver, or the kernel refuses to bind.
            site.effects.write(path / "driver_override", f"{driver}\n")
            site.effects.write(_drivers(site) / driver / "bind", was.address)
    if former(site, was.address).override != was.override:
        site.effects.write(path / "driver_override", f"{was.override}\n")
    if (found := _driver(path)) != driver:
        raise RetriableError(f"PCI function {was.address} has driver {found or 'none'}, not {driver} as before")


def _unbind(site: Site, path: Path) -> None:
    if (path / "driver").is_symlink():
        site.effects.write(_drivers(site) / str(_driver(path)) / "unbind", path.name)


def _load(site: Site, driver: str) -> None:
    if not (_drivers(site) / driver).exists():
        _modprobe(site, driver)
    if not (_drivers(site) / driver).exists():
        raise HardwareError(f"the kernel has no PCI driver {driver}")


def _modprobe(site: Site, module: str) -> None:
    command = ["modprobe", module]
    site.run(Command(command if site.root == Path("/") else ["chroot", str(site.root), *command]))


def _drivers(site: Site) -> Path:
    return site.host.sys / "bus/pci/drivers"


def _function(site: Site, address: str) -> Path:
    return site.host.sys / "bus/pci/devices" / address


def _driver(path: Path) -> str | None:
    return link_name(path / "driver")
