"""Which network devices claims may have: what the node needs stays with it, and what an operator shares is shared.

Labels, and leaving out further devices by CEL, is done by an overlay of the SDK (`--overlay-file`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from dra_driver_nic.describe.nics import Nic
from dra_driver_nic.network.links import Link, NetworkSnapshot
from dra_driver_nic.settings import NicSettings

STACKED: Final = frozenset({"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "ipoib"})


def shared(nics: Sequence[Nic], snapshot: NetworkSnapshot, settings: NicSettings) -> tuple[Nic, ...]:
    """Return the devices, with those marked that the setting `shared` names. An uplink must be named without `*`."""
    uplinks = _uplinks(snapshot)

    def is_shared(nic: Nic) -> bool:
        if nic.link is None:
            return False
        name, is_uplink = nic.link.name, nic.link.index in uplinks
        return name in settings.shared or (not is_uplink and _pattern(name, settings.shared) is not None)

    return tuple(replace(nic, shared=True) if is_shared(nic) else nic for nic in nics)


def kept(nics: Sequence[Nic], snapshot: NetworkSnapshot, settings: NicSettings) -> dict[int, str]:
    """Return the interfaces that no claim may have, by index, each with the reason as the end of a sentence.

    nics: all devices, as `shared` marks them.
    """
    uplinks = _uplinks(snapshot)
    reasons = {}
    for nic in nics:
        if nic.link is not None:
            reason = _reason(nic, nic.link, snapshot, uplinks, settings)
            if reason:
                reasons[nic.link.index] = reason
    return {**_kept_for_their_vfs(nics, reasons), **reasons}


def _reason(nic: Nic, link: Link, snapshot: NetworkSnapshot, uplinks: set[int], settings: NicSettings) -> str:
    """Say why an interface stays with the node by itself; empty if a claim may have it."""
    protected = _pattern(link.name, settings.protect)
    if protected is not None:
        return f"is protected by the setting protect: {protected}"
    if link.index in uplinks and not nic.shared:
        return "is an uplink of the node: a default route goes through it"
    if link.master:
        master = next((other.name for other in snapshot.links if other.index == link.master), str(link.master))
        return f"belongs to interface {master}"
    if nic.shared:
        return "is InfiniBand, on which no macvlan can be, though shared names it" if nic.infiniband else ""
    if nic.pci is None and link.kind not in settings.software:
        return f"is of kind {link.kind or 'unknown'}, which the setting software does not name"
    above = sorted(other.name for other in snapshot.links if other.parent == link.index and other.kind in STACKED)
    return f"carries interface {', '.join(above)}" if above else _reason_of_physical_function(nic, settings)


def _reason_of_physical_function(nic: Nic, settings: NicSettings) -> str:
    if nic.pci is None or nic.pci.sriov is None or not nic.pci.sriov.vfs:
        return ""
    if settings.device_mode == "individual":
        return f"has {len(nic.pci.sriov.vfs)} virtual functions, which are devices of their own"
    return "is the uplink of its eswitch, which is in switchdev mode" if nic.eswitch_mode == "switchdev" else ""


def _kept_for_their_vfs(nics: Sequence[Nic], reasons: Mapping[int, str]) -> dict[int, str]:
    """Find physical functions whose virtual functions the node needs: they would lose their link with it."""
    needed = {}
    for nic in nics:
        if nic.pf is not None and nic.pf.link and nic.link is not None and nic.link.index in reasons:
            needed[nic.pf.link] = f"has a virtual function that the node needs: {nic} {reasons[nic.link.index]}"
    return {index: text for index, text in needed.items() if not _is_shared(nics, index)}


def _is_shared(nics: Sequence[Nic], index: int) -> bool:
    return any(nic.shared for nic in nics if nic.link is not None and nic.link.index == index)


def _pattern(name: str, patterns: Sequence[str]) -> str | None:
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


def _uplinks(snapshot: NetworkSnapshot) -> set[int]:
    """Return the interfaces of default routes, and all on which they stand or which belong to them."""
    links = {link.index: link for link in snapshot.links}
    uplinks: set[int] = set()
    queue = [index for index in snapshot.default_routes if index in links]
    while queue:
        index = queue.pop()
        if index in uplinks:
            continue
        uplinks.add(index)
        queue += [link.index for link in snapshot.links if link.master == index]
        if links[index].kind in STACKED and links[index].parent in links:
            queue.append(links[index].parent)
    return uplinks
