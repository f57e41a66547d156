"""An interface goes into a pod's network namespace, and comes back as it was.

The way there: the interface gets a tag (an alternative name, which survives every move), moves and gets its name in the
pod by one message, and then its configuration. A name that the pod has is refused before. The way back: it goes down,
gets a temporary name that no other interface has, moves, and then gets its name and all else. So after a crash at any
step, and after a move whose name was taken at that moment, the tag marks the interface in both namespaces. The
tag is removed last: an interface without it is as it was.

A move switches an interface off and takes addresses, routes, neighbours and sysctls from it. Its MTU, MAC address and
names stay, and are restored as well. Source: `__dev_change_net_namespace` and `do_setlink` of the kernel.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeVar

from pydantic import TypeAdapter

from dra_driver_nic.config import IPVLAN
from dra_driver_nic.network.links import (
    Address,
    EthtoolSettings,
    Link,
    Neighbour,
    Network,
    NetworkError,
    NetworkNamespace,
    NetworkSnapshot,
    Route,
    RoutingRule,
    Vrf,
    named,
)
from dra_sdk import RetriableError

T = TypeVar("T")
log = logging.getLogger(__name__)
_ETHERNET: Final = len("02:00:00:00:00:01")
_VRF_TAG: Final = "dra-vrf-"  # and its name: the alternative name of a VRF that the driver has made
_TAKEN: Final = frozenset({errno.EBUSY, errno.EEXIST})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """An interface as it is on the node.

    index: its index.
    name: its name.
    mac: its hardware address.
    mtu: its MTU in bytes.
    up: whether it is switched on.
    addresses: its addresses, but those that the kernel makes by itself.
    routes: the routes through it, but those of the kernel.
    neighbours: its permanent neighbours.
    sysctls: its sysctls.
    ethtool: its features, channels and rings.
    """

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    ethtool: EthtoolSettings = field(default_factory=EthtoolSettings)

    @classmethod
    def read(cls, network: Network, link: Link, snapshot: NetworkSnapshot) -> Self:
        """Return the state of an interface of a snapshot; read the rest from the network. Raises NetworkError."""
        return cls(
            index=link.index,
            name=link.name,
            mac=link.mac,
            mtu=link.mtu,
            up=link.up,
            addresses=tuple(snapshot.addresses.get(link.index, ())),
            routes=tuple(snapshot.routes.get(link.index, ())),
            neighbours=tuple(network.neighbours(link.index)),
            sysctls=network.sysctls(link.name),
            ethtool=network.ethtool(link.name),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """An interface as the pod gets it.

    name: its name.
    mac: its hardware address; empty for that of the node.
    mtu: its MTU in bytes; 0 for that of the node.
    addresses: its addresses.
    routes: the routes through it.
    rules: rules of policy routing.
    neighbours: its permanent neighbours.
    sysctls: sysctls that are set.
    ethtool: features, channels and rings that are set.
    vrf: the VRF to which it belongs. None for none.
    """

    name: str
    mac: str = ""
    mtu: int = 0
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[RoutingRule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    ethtool: EthtoolSettings = field(default_factory=EthtoolSettings)
    vrf: Vrf | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An interface that a claim has: as it was on the node, and as it is in the pod.

    device: the name of the device.
    tag: its alternative name while it is away from its place, unique on the node.
    pci: its PCI address; empty for an interface in software, which ends with the namespace that it is in.
    host: the state on the node.
    pod: the state in the pod.
    parent: the shared interface on which it is made; empty for the interface of the device itself.
    kind: `macvlan` or `ipvlan`, for an interface on a shared one.
    cni: the CNI network whose plugins are called for it, as the node's file has it; empty for none.
    """

    device: str
    tag: str
    pci: str = ""
    parent: str = ""
    kind: str = ""
    host: HostState
    pod: PodState
    cni: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Attachment:
        """Return the attachment that a claim's data has."""
        return _ADAPTER.validate_python(entry)

    @property
    def entry(self) -> dict[str, Any]:
        """What a claim's data keeps, as JSON."""
        return dict(_ADAPTER.dump_python(self, mode="json"))

    @property
    def temporary_name(self) -> str:
        """The name between two namespaces; no other interface has it."""
        return f"dra{hashlib.sha256(self.tag.encode()).hexdigest()[:12]}"

    def __str__(self) -> str:
        return f"device {self.device} (interface {self.parent or self.host.name})"


_ADAPTER: Final = TypeAdapter(Attachment)


def attach(node: NetworkNamespace, pod: NetworkNamespace, attachments: Sequence[Attachment]) -> None:
    """Move interfaces to a pod and configure them: all of them, or none.

    Each of them is on the node, without its tag. Raises RetriableError; the node is then as before, unless its message
    says otherwise.
    """
    pod.run(lambda network: _check_pod(network, attachments))
    started: list[Attachment] = []
    try:
        for attachment in attachments:
            started.append(attachment)
            node.run(partial(_send, attachment=attachment, pod=pod))
        pod.run(lambda network: _configure_all(network, attachments))
    except Exception as error:
        problems = [problem for attachment in reversed(started) if (problem := _undo(node, pod, attachment))]
        if problems:
            raise RetriableError(f"{error}; and the undo failed: {'; '.join(problems)}") from error
        raise


def detach(node: NetworkNamespace, pod: NetworkNamespace | None, attachment: Attachment) -> bool:
    """Bring an interface back from a pod, and restore it; False if neither namespace has one with the tag.

    pod: the namespace in which it may be; None if that does not exist any more.

    It may be called at any time and again. Raises NetworkError.
    """
    if pod is not None and not is_tagged(node, attachment):
        pod.run(lambda network: _return(network, attachment, node))
    return node.run(lambda network: _restore(network, attachment))


def is_tagged(namespace: NetworkNamespace, attachment: Attachment) -> bool:
    """Return whether the interface is in a namespace with its tag: in a pod, or on the node and not yet as it was."""
    return namespace.run(lambda network: network.index(attachment.tag)) != 0


def _tagged(network: Network, attachment: Attachment) -> Link | None:
    return network.find(attachment.tag)


def _check_pod(network: Network, attachments: Sequence[Attachment]) -> None:
    """Refuse a name or an address that the pod has already, before anything is moved."""
    links = network.links()
    taken = {name for link in links for name in (link.name, *link.altnames)}
    names = {link.index: link.name for link in links}
    owners = {_ip(address): names.get(index, "") for index, own in network.addresses().items() for address in own}
    for attachment in attachments:
        name = attachment.pod.name
        for ip in map(_ip, attachment.pod.addresses):
            if ip in owners:
                taken_by = f"interface {owners[ip]} of the pod has it"
                raise NetworkError(f"{attachment} cannot get address {ip} in the pod: {taken_by}", errno.EEXIST)
        if attachment.pod.vrf is not None:
            check_vrf(attachment.pod.vrf, links)
        if name in taken:
            taken_by = "the pod has an interface of this name"
            raise NetworkError(f"{attachment} cannot be called {name} in the pod: {taken_by}", errno.EEXIST)
        taken.add(name)


def _ip(address: Address) -> str:
    return address.address.partition("/")[0]


def _send(network: Network, attachment: Attachment, pod: NetworkNamespace) -> None:
    """Move an interface to the pod. Its name there was free, so the kernel needs no other on the way."""
    state = attachment.host
    link = named(network, state.name)
    if link is None:
        raise NetworkError(f"{attachment} is not on the node; something else has taken, renamed or removed it")
    network.add_altname(link.index, attachment.tag)
    network.move(link.index, pod.handle, name=attachment.pod.name)


def _configure_all(network: Network, attachments: Iterable[Attachment]) -> None:
    for attachment in attachments:
        link = network.index(attachment.tag)
        if not link:
            raise NetworkError(f"{attachment} has not arrived in the pod")
        _configure(network, link, attachment.pod)


def _configure(network: Network, link: int, state: PodState) -> None:
    """Give an interface, which is down and has its name, its configuration in the pod."""
    if state.mac or state.mtu:
        network.change(link, mac=state.mac, mtu=state.mtu)
    _set_ethtool(network, state)
    if state.vrf is not None:
        enter_vrf(network, link, state.vrf)
    for key, value in state.sysctls.items():
        network.set_sysctl(state.name, key, value)
    network.change(link, up=True)
    for address in state.addresses:
        network.add_address(link, address)
    for neighbour in state.neighbours:
        network.add_neighbour(link, neighbour)
    for route in _in_order(state.routes):
        network.add_route(link, route)
    for rule in state.rules:
        network.add_rule(rule)


def _set_ethtool(network: Network, state: PodState) -> None:
    wanted = state.ethtool
    if wanted.channels:
        network.set_channels(state.name, wanted.channels)
    if wanted.rings:
        network.set_rings(state.name, wanted.rings)
    missed = network.set_features(state.name, wanted.features) if wanted.features else []
    if missed:
        changes = ", ".join(f"{name} {'on' if wanted.features[name] else 'off'}" for name in missed)
        raise NetworkError(
            f"the kernel does not switch {changes} for interface {state.name}: another feature prevents it"
        )


def _in_order(routes: Iterable[Route]) -> list[Route]:
    """Return routes without a gateway first, because a gateway must be reachable when a route names it."""
    return sorted(routes, key=lambda route: bool(route.gateway))


def _undo(node: NetworkNamespace, pod: NetworkNamespace, attachment: Attachment) -> str:
    """Bring an interface back after a failure; what went wrong, if anything."""
    try:
        detach(node, pod, attachment)
    except (RetriableError, OSError) as error:
        return f"{attachment}: {error}"
    return ""


def _return(network: Network, attachment: Attachment, node: NetworkNamespace) -> None:
    """Move an interface, if it is here, to the node under its temporary name, and with its index if that is free.

    Its rules go first, and a VRF that was made for it and has no other interface.
    """
    link = _tagged(network, attachment)
    if link is None:
        return
    network.change(link.index, up=False)
    for rule in attachment.pod.rules:
        network.remove_rule(rule)
    if attachment.pod.vrf is not None:
        leave_vrf(network, link, attachment.pod.vrf)
    network.change(link.index, name=attachment.temporary_name)
    try:
        network.move(link.index, node.handle, attachment.host.index)
    except NetworkError as error:
        if error.errno not in _TAKEN:
            raise
        network.move(link.index, node.handle)


def _restore(network: Network, attachment: Attachment) -> bool:
    """Make an interface of the node what it was, and remove its tag; False if there is none with the tag."""
    link = _tagged(network, attachment)
    if link is None:
        return False
    state = attachment.host
    _restore_link(network, link, attachment)
    _restore_ethtool(network, state)
    _restore_sysctls(network, state)
    network.change(link.index, up=state.up)
    wanted = {address.address for address in state.addresses}
    for address in network.addresses().get(link.index, ()):
        if address.address not in wanted:
            network.remove_address(link.index, address)
    for address in state.addresses:
        network.add_address(link.index, address)
    for neighbour in state.neighbours:
        network.add_neighbour(link.index, neighbour)
    for route in _in_order(state.routes):
        network.add_route(link.index, route)
    network.remove_altname(link.index, attachment.tag)
    return True


def _restore_link(network: Network, link: Link, attachment: Attachment) -> None:
    """Restore name, MAC address and MTU. The interface goes down only for the first two.

    An address of InfiniBand contains a number that the kernel chooses, and that of an ipvlan is its parent's; neither
    can be set.
    """
    state = attachment.host
    other_mac = link.mac != state.mac and len(state.mac) == _ETHERNET and attachment.kind != IPVLAN
    if link.up and (link.name != state.name or other_mac):
        network.change(link.index, up=False)
    if link.name != state.name:
        try:
            network.change(link.index, name=state.name)
        except NetworkError as error:
            if error.errno != errno.EEXIST:
                raise
            taken = f"the node has another interface {state.name}; rename it"
            raise NetworkError(f"{attachment} is back as {link.name} and cannot be renamed: {taken}") from error
    if other_mac:
        network.change(link.index, mac=state.mac)
    if link.mtu != state.mtu:
        network.change(link.index, mtu=state.mtu)


def _restore_ethtool(network: Network, state: HostState) -> None:
    """Restore features, channels and rings, as far as they differ."""
    now, wanted = network.ethtool(state.name), state.ethtool
    if channels := _differing(wanted.channels, now.channels):
        network.set_channels(state.name, channels)
    if rings := _differing(wanted.rings, now.rings):
        network.set_rings(state.name, rings)
    if features := _differing(wanted.features, now.features):
        network.set_features(state.name, features)


def _differing(wanted: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    """Return what must change; what the interface no longer has cannot."""
    return {key: value for key, value in wanted.items() if key in now and now[key] != value}


def _restore_sysctls(network: Network, state: HostState) -> None:
    now = network.sysctls(state.name)
    for key, value in state.sysctls.items():
        if now.get(key, value) != value:
            try:
                network.set_sysctl(state.name, key, value)
            except NetworkError as error:  # one that the kernel shows but does not let anybody write
                log.warning("a sysctl of interface %s is not as before: %s", state.name, error)


# -- the VRF of a pod


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
    master = network.find(vrf.name)
    if master is None:
        network.add_vrf(vrf)
        master = network.find(vrf.name)
        if master is None:
            raise NetworkError(f"VRF {vrf.name} was added, but is not in the pod")
        network.add_altname(master.index, _VRF_TAG + vrf.name)
    network.set_master(link, master.index)


def leave_vrf(network: Network, link: Link, vrf: Vrf) -> None:
    """Take an interface out of its VRF, and remove the VRF if the driver made it and no other interface is in it."""
    if link.master:
        network.set_master(link.index, 0)
    links = network.links()
    for master in links:
        is_ours = master.table and _VRF_TAG + vrf.name in master.altnames
        if is_ours and not any(other.master == master.index for other in links):
            network.remove_link(master.index)
