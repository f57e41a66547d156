"""Interfaces on shared ones: a claim's share of a parent is a macvlan or ipvlan, and the parent stays with the node.

It exists from the start of the pod's sandbox until its stop. Its name on the node and the MAC address of a macvlan come
from the tag of the attachment. So after a crash the next call finds it, and a new sandbox of the pod gets the same
address. An ipvlan has the MAC address of its parent. The kernel has only one of the two kinds on a parent at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Final

from dra_driver_nic.config import IPVLAN, MACVLAN, EthtoolConfig, NicConfig
from dra_driver_nic.describe.nics import OWN_SHARE_PREFIX
from dra_driver_nic.network.links import Link, Network, NetworkError, NetworkNamespace, named
from dra_driver_nic.prepare.attachment import Attachment, HostState
from dra_sdk import PermanentError

_LOCAL_STATION: Final = "02"  # the first byte of a MAC address that no vendor has given away


def share_kind(config: NicConfig) -> str:
    """Return the kind of interface that a claim gets on a shared one."""
    return config.shared_mode or MACVLAN


def share_state(parent: Link, tag: str, config: NicConfig, label: str) -> HostState:
    """Return the share of an attachment with this tag, as it will be on the node before it moves.

    Raises PermanentError with the field for what it cannot have.
    """
    kind, mtu = share_kind(config), config.interface.mtu
    if mtu is not None and mtu > parent.mtu:
        raise PermanentError(f"{label}: interface.mtu {mtu} exceeds {parent.mtu}, the MTU of {parent.name}")
    if config.ethtool != EthtoolConfig():
        raise PermanentError(f"{label}: ethtool cannot be given, because the claim gets a {kind} on a shared interface")
    if config.interface.dhcp:
        raise PermanentError(
            f"{label}: interface.dhcp cannot be given, because the address is asked for before the sandbox starts, and "
            f"only then the claim has a {kind} on the shared interface; give addresses"
        )
    if config.interface.hardware_addr is not None and kind == IPVLAN:
        raise PermanentError(f"{label}: interface.hardwareAddr cannot be given: an ipvlan has that of {parent.name}")
    digest = hashlib.sha256(tag.encode()).hexdigest()
    own = ":".join([_LOCAL_STATION, *(digest[place : place + 2] for place in range(0, 10, 2))])
    mac = parent.mac if kind == IPVLAN else own
    return HostState(index=0, name=f"{OWN_SHARE_PREFIX}{digest[:10]}", mac=mac, mtu=parent.mtu, up=False)


def make_shares(node: NetworkNamespace, attachments: Iterable[Attachment]) -> None:
    """Make the shares that do not exist yet. Raises NetworkError."""
    for attachment in attachments:
        if attachment.parent:
            node.run(partial(_make, attachment=attachment))


def _make(network: Network, attachment: Attachment) -> None:
    state = attachment.host
    if named(network, state.name) is not None:
        return
    parent = named(network, attachment.parent)
    if parent is None:
        raise NetworkError(f"{attachment}: interface {attachment.parent}, which is shared, is not on the node")
    if attachment.kind == IPVLAN:
        network.add_ipvlan(state.name, parent.index)
    else:
        network.add_macvlan(state.name, parent.index, state.mac)


def remove_share(node: NetworkNamespace, attachment: Attachment) -> None:
    """Remove the share of an attachment from the node, if it is there. Raises NetworkError."""
    if attachment.parent:
        node.run(partial(_remove, attachment=attachment))


def _remove(network: Network, attachment: Attachment) -> None:
    link = named(network, attachment.host.name) or network.find(attachment.tag)
    if link is not None:
        network.remove_link(link.index)
