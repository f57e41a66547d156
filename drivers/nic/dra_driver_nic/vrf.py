"""The VRF of a pod, to which its interfaces may belong: made with the first of them, removed with the last.

An interface in a VRF uses the VRF's routing table alone, so its routes never conflict with those of the pod's network.
The functions work in the pod's namespace. Source: Documentation/networking/vrf.rst of the kernel.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final

from dra_driver_nic.links import Link, Network, NetworkError, Vrf

_TAG: Final = "dra-vrf-"  # and its name: the alternative name of a VRF that the driver has made


def check_vrf(vrf: Vrf, links: Iterable[Link]) -> None:
    """Refuse a VRF whose name another interface of the pod has. Raises NetworkError."""
    for link in links:
        if vrf.name in {link.name, *link.altnames} and link.table != vrf.table:
            other = f"VRF of table {link.table}" if link.table else f"interface of kind {link.kind or 'device'}"
            raise NetworkError(
                f"VRF {vrf.name} of table {vrf.table} cannot be made: the pod has another {other} of this name",
                errno.EEXIST,
            )


def enter_vrf(network: Network, link: int, vrf: Vrf) -> None:
    """Make an interface, which is down, belong to a VRF, which is made if it does not exist. Raises NetworkError.

    `check_vrf` was called before: what has the name, also as an alternative one, is this VRF.
    """
    found = network.find(vrf.name)
    if found is None:
        network.add_vrf(vrf)
        found = network.find(vrf.name)
        if found is None:
            raise NetworkError(f"VRF {vrf.name} was added, but is not in the pod")
        network.add_altname(found.index, _TAG + vrf.name)
    network.set_master(link, found.index)


def leave_vrf(network: Network, link: Link, vrf: Vrf) -> None:
    """Take an interface out of its VRF, and remove the VRF if the driver made it and no other interface is in it."""
    if link.master:
        network.set_master(link.index, 0)
    links = network.links()
    for each in links:
        is_ours = each.table and _TAG + vrf.name in each.altnames
        if is_ours and not any(other.master == each.index for other in links):
            network.remove_link(each.index)
