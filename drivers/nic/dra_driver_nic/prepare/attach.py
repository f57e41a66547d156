"""An interface goes into a pod's network namespace: all interfaces of a pod do, or none.

The interface gets a tag (an alternative name, which survives every move), moves and gets its name in the pod by one
message, and then its configuration. A name that the pod has is refused before. So after a crash at any step, and after
a move whose name was taken at that moment, the tag marks the interface in both namespaces; `detach` has the way back.

A move switches an interface off and takes addresses, routes, neighbours and sysctls from it. Its MTU, MAC address and
names stay. Source: `__dev_change_net_namespace` and `do_setlink` of the kernel.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from dra_driver_nic.describe.selection import STACKED
from dra_driver_nic.network.links import (
    Address,
    Link,
    Network,
    NetworkError,
    NetworkNamespace,
    Vrf,
    named,
)
from dra_driver_nic.prepare.attachment import Attachment, PodState, in_order
from dra_driver_nic.prepare.detach import VRF_TAG, detach
from dra_sdk import RetriableError


def attach(node: NetworkNamespace, pod: NetworkNamespace, attachments: Sequence[Attachment]) -> None:
    """Move interfaces to a pod and configure them: all of them, or none.

    Each of them is on the node, without its tag. Raises RetriableError; the node is then as before, unless its message
    says otherwise.
    """
    taken = pod.run(lambda network: _check_pod(network, attachments))
    started: list[Attachment] = []
    try:
        for attachment in attachments:
            started.append(attachment)
            node.run(partial(_send, attachment=attachment, pod=pod, taken=taken))
        pod.run(lambda network: _configure_all(network, attachments))
    except Exception as error:
        problems = [problem for attachment in reversed(started) if (problem := _undo(node, pod, attachment))]
        if problems:
            raise RetriableError(f"{error}; and the undo failed: {'; '.join(problems)}") from error
        raise


def _check_pod(network: Network, attachments: Sequence[Attachment]) -> set[str]:
    """Refuse a name or an address that the pod has already, before anything is moved.

    Return the names that are taken in the pod then, those of these interfaces among them.
    """
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
    return taken


def _ip(address: Address) -> str:
    return address.address.partition("/")[0]


def _send(network: Network, attachment: Attachment, pod: NetworkNamespace, taken: Collection[str]) -> None:
    """Move an interface to the pod. Its name there was free, so the kernel needs no other on the way.

    Of its alternative names, those that are `taken` there stay behind, also its own name in the pod: the kernel has
    each name once. It gets them back with its tag.
    """
    state = attachment.host
    link = named(network, state.name)
    if link is None:
        raise NetworkError(f"{attachment} is not on the node; something else has taken, renamed or removed it")
    _check_free(network, link, attachment)
    network.add_altname(link.index, attachment.tag)
    for name in link.altnames:
        if name in taken:
            network.remove_altname(link.index, name)
    network.move(link.index, pod.handle, name=attachment.pod.name)


def _check_free(network: Network, link: Link, attachment: Attachment) -> None:
    """Refuse an interface that another tool has begun to use since the claim was prepared. Raises NetworkError."""
    for other in network.links():
        if link.master == other.index:
            raise NetworkError(f"{attachment} belongs to interface {other.name} of the node now; take it out of that")
        if other.parent == link.index and other.kind in STACKED and not attachment.parent:
            raise NetworkError(f"{attachment} carries interface {other.name} of the node now; remove that")


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
    for route in in_order(state.routes):
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


def _undo(node: NetworkNamespace, pod: NetworkNamespace, attachment: Attachment) -> str:
    """Bring an interface back after a failure; what went wrong, if anything."""
    try:
        detach(node, pod, attachment)
    except (RetriableError, OSError) as error:
        return f"{attachment}: {error}"
    return ""


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
        network.add_altname(master.index, VRF_TAG + vrf.name)
    network.set_master(link, master.index)
