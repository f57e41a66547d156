"""Addresses by DHCP: asked for when a claim is prepared, renewed while it holds the interface, released with it.

A server may take seconds to answer, and the start of a sandbox has less than one. So the exchange is part of prepare,
on the node, and the sandbox only gives the pod the address for the time that is left. A thread renews leases wherever
their interface is then. A lease is kept in the record of its device, so a driver that starts again renews it as well.

While a claim with a lease has an interface that was switched off on the node, it is switched on; the journal says so.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import Any, Final

from dra_driver_nic.config import NicConfig
from dra_driver_nic.describe.devices import NicRecord
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.network.dhcp import DhcpError, Lease, acquire, boot_seconds, release, renew
from dra_driver_nic.network.links import (
    LINK_SCOPE,
    MAIN_TABLE,
    UNIVERSE,
    Address,
    Link,
    Network,
    NetworkError,
    NetworkNamespace,
    Route,
    named,
)
from dra_driver_nic.prepare.attachment import Attachment
from dra_sdk import Claim, DraError, RetriableError

log = logging.getLogger(__name__)
LEASE: Final = "lease"
"""The key of a journal's entry about a lease, with the name of its device."""
CHECK_SECONDS: Final = 5.0
"""Seconds between two checks of the leases of a node."""
_RENEW_SECONDS: Final = 3.0  # how long to wait for a server that renews a lease
_CARRIER_SECONDS: Final = 3.0  # how long to wait for a carrier, to report to the server that a lease is free
_PAUSE: Final = 60.0  # seconds between two attempts to renew a lease (RFC 2131, 4.4.5)
_PAUSE_WITHOUT: Final = 10.0  # seconds between two attempts to get a lease after one has ended
_DHCP: Final = 16  # RTPROT_DHCP
_NO_GATEWAY: Final = "0.0.0.0"  # noqa: S104 (of a route)


def lease_address(
    node: NicNode, claim: Claim[NicConfig], config: NicConfig, attachment: Attachment, client: str
) -> Attachment:
    """Get a lease for an interface that is on the node; the attachment with its address and routes.

    client: the identifier of the client, in hexadecimal digits; empty for that of its hardware address.

    Raises RetriableError if no server grants one.
    """
    host = attachment.host
    claim.journal({LEASE: attachment.device, "interface": host.name, "up": host.up})
    with node.namespace() as namespace:
        packets = namespace.run(lambda network: _open(network, host.name))
    with packets:
        seconds = node.access.clock.left(node.settings.dhcp_seconds)
        try:
            lease = acquire(packets, attachment.pod.mac or host.mac, seconds, client=client)
        except DhcpError as error:
            raise RetriableError(f"{attachment}: {error} (interface.dhcp, {seconds:g} s)") from error
    _save(node, attachment.device, claim.uid, lease)
    pod = attachment.pod
    table = MAIN_TABLE if pod.vrf is None else pod.vrf.table
    routes = pod.routes if config.routes is not None else tuple(_routes(lease, table))
    return with_lease(replace(attachment, pod=replace(pod, routes=routes)), lease)


def with_lease(attachment: Attachment, lease: Lease) -> Attachment:
    """Return an attachment with a lease's address for the time that is left. Raises RetriableError if it has ended."""
    left = lease.left()
    if left == 0:
        raise RetriableError(
            f"{attachment}: its lease of {lease.ip} by DHCP server {lease.server} is over; the driver asks for another"
        )
    address = Address(address=lease.address, valid=left, preferred=left)
    return replace(attachment, pod=replace(attachment.pod, addresses=(address,)))


def _routes(lease: Lease, table: int) -> Iterator[Route]:
    """Yield the routes of a lease. A pod has a default route already, so that of the lease is for a VRF only."""
    gateways = dict(lease.routes)
    if not gateways and lease.router:
        gateways["0.0.0.0/0"] = lease.router
    for destination, gateway in gateways.items():
        if destination == "0.0.0.0/0" and table == MAIN_TABLE:
            continue
        via = "" if gateway == _NO_GATEWAY else gateway
        scope = UNIVERSE if via else LINK_SCOPE
        yield Route(destination=destination, gateway=via, scope=scope, table=table, protocol=_DHCP)


def end_lease(node: NicNode, entry: Mapping[str, Any]) -> None:
    """Release a lease, and switch the interface off if it was. A server that does not learn of it loses nothing.

    entry: what the journal has.
    """
    device, name = entry[LEASE], entry["interface"]
    kept = node.records.read(device).lease
    with node.namespace() as namespace:
        link = _link(namespace, name)
        if link is not None and kept:
            try:
                _release(node, namespace, name, Lease.from_entry(kept))
            except (RetriableError, OSError, ValueError) as error:
                log.warning("the lease of device %s is not released, and ends by itself: %s", device, error)
        if link is not None and not entry["up"]:
            index = link.index
            namespace.run(lambda network: network.change(index, up=False))
    with node.records.locked(device) as record:
        record.lease = {}
        node.records.save(device, record)


def _release(node: NicNode, namespace: NetworkNamespace, name: str, lease: Lease) -> None:
    with namespace.run(lambda network: _open(network, name)) as packets:

        def is_ready() -> bool:
            link = _link(namespace, name)
            return link is None or link.carrier

        if not node.access.clock.until(is_ready, _CARRIER_SECONDS):
            raise RetriableError(f"interface {name} has no carrier")
        release(packets, lease)


# -- renewal


@contextmanager
def renewed_leases(node: NicNode, seconds: float = CHECK_SECONDS) -> Iterator[None]:
    """Renew the leases of a node in a thread, while the context lasts.

    seconds: seconds between two checks of what is to be renewed.
    """
    ended = Event()
    thread = Thread(target=_renew_until, args=(node, ended, seconds), name="DHCP leases")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _renew_until(node: NicNode, ended: Event, seconds: float) -> None:
    next_attempts: dict[str, float] = {}
    while not ended.wait(seconds):
        try:
            records = node.recorded()
        except DraError as error:
            log.warning("the leases of the node cannot be read: %s", error)
            continue
        next_attempts = {device: at for device, at in next_attempts.items() if device in records}
        for device, record in records.items():
            if not record.lease or ended.is_set():
                continue
            try:
                lease = Lease.from_entry(record.lease)
                if lease.seconds is None or boot_seconds() < max(_due(lease), next_attempts.get(device, 0.0)):
                    continue
                next_attempts[device] = boot_seconds() + _pause(lease)
                _renew(node, device, record, lease)
            except (DraError, OSError, ValueError) as error:  # also a record that another version has written
                log.warning("the lease of device %s is not renewed: %s", device, error)


def _due(lease: Lease) -> float:
    """Return when a lease is to be renewed, in seconds since the node booted."""
    return lease.began + min(lease.renewal, lease.seconds or 0)


def _pause(lease: Lease) -> float:
    """Return seconds until the next attempt: half of the time left, and at least a minute for all but short leases."""
    left = lease.left()
    return max(left / 2, min(_PAUSE, (lease.seconds or 0) / 8)) if left else _PAUSE_WITHOUT


def _renew(node: NicNode, device: str, record: NicRecord, lease: Lease) -> None:
    """Renew a lease, or get another one if it has ended or is refused. Raises DhcpError."""
    with _place(node, record) as (namespace, name), namespace.run(lambda network: _open(network, name)) as packets:
        try:
            fresh = _renewed(packets, lease)
        except DhcpError as error:
            if error.refused:
                _keep(node, device, record, lease, replace(lease, seconds=0))
            raise
    if fresh.ip != lease.ip:
        log.warning(
            "device %s has address %s by DHCP in place of %s; the status of its claim still has that of before",
            *(device, fresh.ip, lease.ip),
        )
    _keep(node, device, record, lease, fresh)


def _renewed(packets: socket.socket, lease: Lease) -> Lease:
    if lease.left():
        try:
            return renew(packets, lease, _RENEW_SECONDS, any_server=lease.age() >= lease.rebinding)
        except DhcpError as error:
            if not error.refused:
                raise
            log.warning("%s; the driver asks for another lease", error)
    try:
        return acquire(packets, lease.mac, _RENEW_SECONDS, client=lease.client, wanted=lease.ip)
    except DhcpError as error:
        raise DhcpError(str(error), refused=True) from error


def _keep(node: NicNode, device: str, record: NicRecord, before: Lease, lease: Lease) -> None:
    """Keep a lease, and give the address to the interface in the pod for the time of the lease."""
    _save(node, device, record.claim, lease)
    with node.records.locked(device) as now, node.pod_namespace(now.namespace, now.namespace_id) as pod:
        if pod is not None and now.tag and (now.claim, now.tag) == (record.claim, record.tag):
            pod.run(lambda network: _set_address(network, now.tag, before, lease))


@contextmanager
def _place(node: NicNode, record: NicRecord) -> Iterator[tuple[NetworkNamespace, str]]:
    """Yield where the interface of a record is now: its namespace, and its name there."""
    with node.namespace() as here, node.pod_namespace(record.namespace, record.namespace_id) as pod:
        if pod is not None and record.tag:
            link = pod.run(lambda network: network.find(record.tag))
            if link is not None:
                yield pod, link.name
                return
        yield here, str(record.attributes.get("ifName", ""))


def _set_address(network: Network, tag: str, before: Lease, lease: Lease) -> None:
    """Give the interface with a tag the address of a lease, for the time that is left; no address if it has ended."""
    left, link = lease.left(), network.find(tag)
    if link is None:
        return
    if left != 0:
        network.set_address(link.index, Address(address=lease.address, valid=left, preferred=left))
    if left == 0 or before.address != lease.address:
        network.remove_address(link.index, Address(address=before.address))


def _save(node: NicNode, device: str, claim: str, lease: Lease) -> None:
    """Keep a lease, unless another claim has the device now."""
    with node.records.locked(device) as record:
        if record.claim == claim:
            record.lease = lease.entry
            node.records.save(device, record)


def _open(network: Network, name: str) -> socket.socket:
    """Open a packet socket of an interface, which is switched on."""
    link = named(network, name)
    if link is None:
        raise NetworkError(f"there is no interface {name} for DHCP")
    if not link.up:
        network.change(link.index, up=True)
    return network.packet_socket(name)


def _link(namespace: NetworkNamespace, name: str) -> Link | None:
    return namespace.run(lambda network: named(network, name))
