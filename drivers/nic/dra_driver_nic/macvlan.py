"""Interfaces on shared ones: a claim's share of a parent is a macvlan of its own, and the parent stays with the node.

The macvlan exists from the start of the pod's sandbox until its stop. Its name on the node and its MAC address come
from the tag of the attachment. So after a crash the next call finds it, and a new sandbox of the pod gets the same
address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Final

from dra_driver_nic.attach import Attachment, HostState
from dra_driver_nic.config import EthtoolConfig, NicConfig
from dra_driver_nic.links import Link, Namespace, Network, NetworkError, named
from dra_driver_nic.nics import OWN_MACVLAN_PREFIX
from dra_sdk import PermanentError

_LOCAL_STATION: Final = "02"  # the first byte of a MAC address that no vendor has given away


def macvlan_state(parent: Link, tag: str, config: NicConfig, label: str) -> HostState:
    """The macvlan of an attachment with this tag, as it will be on the node before it moves.

    Raises PermanentError with the field for what a macvlan cannot have.
    """
    mtu = config.interface.mtu
    if mtu is not None and mtu > parent.mtu:
        raise PermanentError(f"{label}: interface.mtu {mtu} exceeds {parent.mtu}, the MTU of {parent.name}")
    if config.ethtool != EthtoolConfig():
        raise PermanentError(
            f"{label}: ethtool cannot be given, because the claim gets a macvlan on a shared interface"
        )
    if config.interface.dhcp:
        raise PermanentError(
            f"{label}: interface.dhcp cannot be given, because the address is asked for before the sandbox starts, and "
            "only then the claim has a macvlan on the shared interface; give addresses"
        )
    digest = hashlib.sha256(tag.encode()).hexdigest()
    mac = ":".join([_LOCAL_STATION, *(digest[each : each + 2] for each in range(0, 10, 2))])
    return HostState(index=0, name=f"{OWN_MACVLAN_PREFIX}{digest[:10]}", mac=mac, mtu=parent.mtu, up=False)


def make_macvlans(node: Namespace, attachments: Iterable[Attachment]) -> None:
    """Make the macvlans that do not exist yet. Raises NetworkError."""
    for each in attachments:
        if each.parent:
            node.run(partial(_make, attachment=each))


def _make(network: Network, attachment: Attachment) -> None:
    state = attachment.host
    if named(network, state.name) is not None:
        return
    parent = named(network, attachment.parent)
    if parent is None:
        raise NetworkError(f"{attachment}: interface {attachment.parent}, which is shared, is not on the node")
    network.add_macvlan(state.name, parent.index, state.mac)


def remove_macvlan(node: Namespace, attachment: Attachment) -> None:
    """Remove the macvlan of an attachment from the node, if it is there. Raises NetworkError."""
    if attachment.parent:
        node.run(partial(_remove, attachment=attachment))


def _remove(network: Network, attachment: Attachment) -> None:
    link = named(network, attachment.host.name) or network.find(attachment.tag)
    if link is not None:
        network.remove_link(link.index)
