"""An interface comes back from a pod's network namespace, and is made what it was.

It goes down, gets a temporary name that no other interface has, moves, and then gets its name and all else. The tag is
removed last: an interface without it is as it was, as far as the kernel allows. What it refuses once the interface is
back is only a setting: a warning, and the claim ends. An interface whose name another one has got in the meantime keeps
the temporary one. Source: `__dev_change_net_namespace` and `do_setlink` of the kernel.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, TypeVar

from dra_driver_nic.config import IPVLAN
from dra_driver_nic.network.links import Link, Network, NetworkError, NetworkNamespace, Vrf
from dra_driver_nic.prepare.attachment import Attachment, HostState, in_order
from dra_sdk import HeldClaim

T = TypeVar("T")
log = logging.getLogger(__name__)
_ETHERNET: Final = len("02:00:00:00:00:01")
VRF_TAG: Final = "dra-vrf-"  # and its name: the alternative name of a VRF that the driver has made
_TAKEN: Final = frozenset({errno.EBUSY, errno.EEXIST})


def detach(
    node: NetworkNamespace, pod: NetworkNamespace | None, attachment: Attachment, claim: HeldClaim | None = None
) -> str:
    """Bring an interface back from a pod, and restore it; its name, or empty if neither namespace has one with the tag.

    pod: the namespace in which it may be; None if that does not exist any more.
    claim: whose undo it is: settings that are refused then do not hold it. None: they raise.

    It may be called at any time and again. Raises NetworkError.
    """
    setting = _Setting(attachment, claim)
    if pod is not None and not is_tagged(node, attachment):
        pod.run(lambda network: _return(network, setting, node))
    return node.run(lambda network: _restore(network, setting))


def is_tagged(namespace: NetworkNamespace, attachment: Attachment) -> bool:
    """Return whether the interface is in a namespace with its tag: in a pod, or on the node and not yet as it was."""
    return namespace.run(lambda network: network.index(attachment.tag)) != 0


class _Setting:
    """Steps for settings of one interface, called with the name of the setting."""

    def __init__(self, attachment: Attachment, claim: HeldClaim | None) -> None:
        self.attachment, self._claim = attachment, claim

    def __call__(self, name: str) -> AbstractContextManager[None]:
        if self._claim is None:
            return nullcontext()
        return self._claim.undoing(f"{name} of {self.attachment}", harmless=True)


# -- out of the pod


def _return(network: Network, setting: _Setting, node: NetworkNamespace) -> None:
    """Move an interface, if it is here, to the node under its temporary name.

    Its rules go first, and a VRF that was made for it and has no other interface; both end with the pod.
    """
    attachment = setting.attachment
    link = network.find(attachment.tag)
    if link is None:
        return
    network.change(link.index, up=False)
    for rule in attachment.pod.rules:
        with setting(f"rule {rule.priority} in the pod"):
            network.remove_rule(rule)
    if attachment.pod.vrf is not None:
        with setting(f"VRF {attachment.pod.vrf.name} in the pod"):
            leave_vrf(network, link, attachment.pod.vrf)
    network.change(link.index, name=attachment.temporary_name)
    for name in node.run(partial(_names_of_others, names=link.altnames)):
        network.remove_altname(link.index, name)  # the kernel would refuse the move
    _move(network, link, attachment, node)


def _names_of_others(network: Network, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if network.index(name)]


def _move(network: Network, link: Link, attachment: Attachment, node: NetworkNamespace) -> None:
    """Move an interface to the node, with its index if that is free."""
    try:
        network.move(link.index, node.handle, attachment.host.index)
    except NetworkError as error:
        if error.errno not in _TAKEN:
            raise
        network.move(link.index, node.handle)


def leave_vrf(network: Network, link: Link, vrf: Vrf) -> None:
    """Take an interface out of its VRF, and remove the VRF if the driver made it and no other interface is in it."""
    if link.master:
        network.set_master(link.index, 0)
    links = network.links()
    for master in links:
        is_ours = master.table and VRF_TAG + vrf.name in master.altnames
        if is_ours and not any(other.master == master.index for other in links):
            network.remove_link(master.index)


# -- on the node


def _restore(network: Network, setting: _Setting) -> str:
    """Make an interface of the node what it was, and remove its tag. Its name; empty if there is none with the tag."""
    attachment = setting.attachment
    link = network.find(attachment.tag)
    if link is None:
        return ""
    with setting("name"):
        _restore_name(network, link, attachment)
    link = network.find(attachment.tag) or link
    for what, restore in _settings(network, link, attachment):
        with setting(what):
            restore()
    network.remove_altname(link.index, attachment.tag)
    return link.name


def _restore_name(network: Network, link: Link, attachment: Attachment) -> None:
    """Restore the name, which may be an alternative one of the interface itself.

    If another interface has it, this one gets its temporary name, and NetworkError says so.
    """
    wanted = attachment.host.name
    if link.name == wanted:
        return
    if link.up:
        network.change(link.index, up=False)
    if wanted in link.altnames:
        network.remove_altname(link.index, wanted)
    try:
        network.change(link.index, name=wanted)
    except NetworkError as error:
        if error.errno != errno.EEXIST:
            raise
        if link.name != attachment.temporary_name:
            network.change(link.index, name=attachment.temporary_name)
        taken = f"the node has another interface {wanted}; rename it"
        raise NetworkError(
            f"{attachment} is back as {attachment.temporary_name} and cannot be renamed: {taken}", error.errno
        ) from error


def _settings(network: Network, link: Link, attachment: Attachment) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is restored, each with what does it."""
    state, change = attachment.host, partial(network.change, link.index)
    if _has_other_mac(link, attachment):
        yield "link state", partial(change, up=False)
        yield "MAC address", partial(change, mac=state.mac)
    if link.mtu != state.mtu:
        yield "MTU", partial(change, mtu=state.mtu)
    for what, restore in _OF_NAME.items():
        yield what, partial(restore, network, link.name, state)
    for name in state.altnames:
        if name not in {*link.altnames, link.name, state.name}:
            yield f"alternative name {name}", partial(network.add_altname, link.index, name)
    yield "link state", partial(change, up=state.up)
    yield from _addresses(network, link.index, state)


def _has_other_mac(link: Link, attachment: Attachment) -> bool:
    """Return whether the MAC address must be set, for which the interface goes down.

    An address of InfiniBand contains a number that the kernel chooses, and that of an ipvlan is its parent's; neither
    can be set.
    """
    mac = attachment.host.mac
    return link.mac != mac and len(mac) == _ETHERNET and attachment.kind != IPVLAN


def _addresses(network: Network, link: int, state: HostState) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield addresses and what depends on them. Others are removed at once: the node would answer for the pod."""
    wanted = {address.address for address in state.addresses}
    for address in network.addresses().get(link, ()):
        if address.address not in wanted:
            network.remove_address(link, address)
    for address in state.addresses:
        yield f"address {address.address}", partial(network.add_address, link, address)
    for neighbour in state.neighbours:
        yield f"neighbour {neighbour.address}", partial(network.add_neighbour, link, neighbour)
    for route in in_order(state.routes):
        yield f"route {route.destination}", partial(network.add_route, link, route)


def _restore_channels(network: Network, name: str, state: HostState) -> None:
    if channels := _differing(state.ethtool.channels, network.ethtool(name).channels):
        network.set_channels(name, channels)


def _restore_rings(network: Network, name: str, state: HostState) -> None:
    if rings := _differing(state.ethtool.rings, network.ethtool(name).rings):
        network.set_rings(name, rings)


def _restore_features(network: Network, name: str, state: HostState) -> None:
    if features := _differing(state.ethtool.features, network.ethtool(name).features):
        network.set_features(name, features)


def _restore_sysctls(network: Network, name: str, state: HostState) -> None:
    now = network.sysctls(name)
    for key, value in state.sysctls.items():
        if now.get(key, value) != value:
            try:
                network.set_sysctl(name, key, value)
            except NetworkError as error:  # one that the kernel shows but does not let anybody write
                log.warning("a sysctl of interface %s is not as before: %s", name, error)


def _differing(wanted: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    """Return what must change; what the interface no longer has cannot."""
    return {key: value for key, value in wanted.items() if key in now and now[key] != value}


_OF_NAME: Final[Mapping[str, Callable[[Network, str, HostState], None]]] = {
    "channels": _restore_channels,
    "rings": _restore_rings,
    "features": _restore_features,
    "sysctls": _restore_sysctls,
}
"""What restores the settings that the kernel knows by the name of an interface."""
