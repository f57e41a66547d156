"""What will happen to the interface of a device: how it is on the node, how the pod gets it, and what it refuses.

Everything that a configuration can ask in vain is found here, before anything changes, as far as the node can tell.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any, Final

from dra_driver_nic.config import EthtoolConfig, NicConfig, RouteConfig
from dra_driver_nic.describe.nics import Nic
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.network.links import (
    MAIN_TABLE,
    UNIVERSE,
    Address,
    EthtoolLimits,
    EthtoolSettings,
    Link,
    Neighbour,
    Network,
    NetworkSnapshot,
    Route,
    RoutingRule,
    Vrf,
)
from dra_driver_nic.prepare.attachment import TAG, Attachment, HostState, PodState
from dra_driver_nic.prepare.cni import read_network
from dra_driver_nic.prepare.shares import share_kind, share_state
from dra_sdk import AllocatedDevice, Claim, PermanentError

_ONLINK: Final = 0x04  # RTNH_F_ONLINK
_NODAD: Final = 0x02  # IFA_F_NODAD
_IPV4, _IPV6 = 4, 6
_MIN_IPV6_MTU: Final = 1280
_SMALLER_THAN_PARENT: Final = frozenset({"macvlan", "macvtap", "ipvlan", "ipvtap", "vlan"})

_TX_CHECKSUMS: Final = ("ipv4", "ip-generic", "ipv6", "fcoe-crc", "sctp")
_TCP_SEGMENTATION: Final = ("tcp", "tcp-ecn", "tcp-mangleid", "tcp6")
_GROUPS: Final = {
    ("rx", "rx-checksumming"): ("rx-checksum",),
    ("tx", "tx-checksumming"): tuple(f"tx-checksum-{protocol}" for protocol in _TX_CHECKSUMS),
    ("sg", "scatter-gather"): ("tx-scatter-gather", "tx-scatter-gather-fraglist"),
    ("tso", "tcp-segmentation-offload"): tuple(f"tx-{protocol}-segmentation" for protocol in _TCP_SEGMENTATION),
    ("gso", "generic-segmentation-offload"): ("tx-generic-segmentation",),
    ("gro", "generic-receive-offload"): ("rx-gro",),
    ("lro", "large-receive-offload"): ("rx-lro",),
    ("rxvlan", "rx-vlan-offload"): ("rx-vlan-hw-parse",),
    ("txvlan", "tx-vlan-offload"): ("tx-vlan-hw-insert",),
    ("ntuple", "ntuple-filters"): ("rx-ntuple-filter",),
    ("rxhash", "receive-hashing"): ("rx-hashing",),
}
_FEATURES_OF_ALIASES: Final = {alias: names for aliases, names in _GROUPS.items() for alias in aliases}

Allocated = AllocatedDevice[NicConfig]


def check_interface(nic: Nic, link: Link, device: Allocated) -> None:
    """Refuse what the interface of a device cannot have. Raises PermanentError with the field."""
    wanted = device.config.interface
    label = f"device {device.name} ({nic}): interface"
    if wanted.mtu is not None:
        if nic.pf is not None and nic.pf.mtu and wanted.mtu > nic.pf.mtu:
            raise PermanentError(f"{label}.mtu {wanted.mtu} exceeds {nic.pf.mtu}, the MTU of its physical function")
        if wanted.mtu < link.min_mtu or (link.max_mtu and wanted.mtu > link.max_mtu):
            raise PermanentError(f"{label}.mtu {wanted.mtu} must lie between {link.min_mtu} and {link.max_mtu}")
        addresses = nic.addresses if wanted.addresses is None and not wanted.dhcp else wanted.addresses or ()
        if wanted.mtu < _MIN_IPV6_MTU and any(":" in address for address in addresses):
            raise PermanentError(f"{label}.mtu {wanted.mtu} must be at least {_MIN_IPV6_MTU} for IPv6 addresses")
    if wanted.hardware_addr is not None and nic.infiniband:
        raise PermanentError(f"{label}.hardwareAddr cannot be set: InfiniBand addresses are fixed")
    if wanted.dhcp and nic.infiniband:
        raise PermanentError(f"{label}.dhcp is for Ethernet; this is InfiniBand")


def plan_attachment(
    node: NicNode, network: Network, snapshot: NetworkSnapshot, claim: Claim[NicConfig], nic: Nic, *, number: int
) -> Attachment:
    """Plan what happens to the interface of a claim's device. Raises PermanentError for what it cannot have.

    network: the node's network.
    snapshot: what was read from it.
    nic: the device as it is on the node.
    number: its place in the claim, from 0.
    """
    device, link = claim.devices[number], nic.link
    if link is None:
        raise ValueError(f"device {device.name} has no interface")
    label = f"device {device.name} ({nic})"
    tag = f"{TAG}{claim.uid}-{number}"
    addresses = device.config.interface.addresses or ()
    if nic.shared:
        _check_addresses(snapshot, 0, addresses, label)
        state = share_state(link, tag, device.config, label)
        pod = _pod_state(device.config, replace(state, name=f"net{number + 1}"), EthtoolSettings())
        _check_gateways(device.config, pod, label)
        cni = _network(node, device.config, label)
        kind = share_kind(device.config)
        return Attachment(device=device.name, tag=tag, host=state, pod=pod, parent=link.name, kind=kind, cni=cni)
    _check_shared_routes(snapshot, link, label)
    _check_parent(snapshot, link, device.config.interface.mtu, label)
    _check_addresses(snapshot, link.index, addresses, label)
    state = _host_state(network, snapshot, link, device.config, label)
    ethtool = _ethtool(network, link, device.config.ethtool, label)
    pod = _pod_state(device.config, state, ethtool)
    _check_gateways(device.config, pod, label)
    return Attachment(
        device=device.name,
        tag=tag,
        pci=nic.pci.address if nic.pci is not None else "",
        host=state,
        pod=pod,
        cni=_network(node, device.config, label),
    )


def _network(node: NicNode, config: NicConfig, label: str) -> dict[str, Any]:
    """Read the CNI network of a configuration; empty for none. Raises PermanentError if the node does not have it."""
    if config.cni is None:
        return {}
    settings = node.settings
    try:
        return read_network(node.access, config.cni.conflist, settings.cni_conf_dir, settings.cni_bin_dirs)
    except PermanentError as error:
        raise PermanentError(f"{label}: {error}") from error


def _host_state(network: Network, snapshot: NetworkSnapshot, link: Link, config: NicConfig, label: str) -> HostState:
    """Read the state on the node. Raises PermanentError for a sysctl that the interface does not have."""
    state = HostState.read(network, link, snapshot)
    unknown = sorted({*config.interface.sysctls} - {*state.sysctls})
    if unknown and state.sysctls:
        raise PermanentError(f"{label}: interface.sysctls: the kernel has no sysctl {', '.join(unknown)} for it")
    return state


def _check_shared_routes(snapshot: NetworkSnapshot, link: Link, label: str) -> None:
    """Refuse an interface that has a part of a route with several next hops."""
    if shared := snapshot.shared_routes.get(link.index):
        raise PermanentError(
            f"{label}: route {', '.join(shared)} goes through it and other interfaces, "
            "and would not come back as it was"
        )


def _check_parent(snapshot: NetworkSnapshot, link: Link, mtu: int | None, label: str) -> None:
    """Refuse an MTU that the interface on which this one stands does not carry."""
    if mtu is None or not link.parent or link.kind not in _SMALLER_THAN_PARENT:
        return
    parent = next((other for other in snapshot.links if other.index == link.parent), None)
    if parent is not None and mtu > parent.mtu:
        raise PermanentError(
            f"{label}: interface.mtu {mtu} exceeds {parent.mtu}, the MTU of {parent.name}, on which it stands"
        )


def _check_addresses(snapshot: NetworkSnapshot, link: int, wanted: Collection[str], label: str) -> None:
    """Refuse an address that another interface of the node has; 0 for an interface that is not on the node yet."""
    names = {other.index: other.name for other in snapshot.links}
    others = {
        address.address.partition("/")[0]: names.get(index, index)
        for index, addresses in snapshot.addresses.items()
        if index != link
        for address in addresses
    }
    for text in wanted:
        if _ip(text) in others:
            raise PermanentError(
                f"{label}: address {_ip(text)} of interface.addresses is used by interface {others[_ip(text)]} "
                "of the node"
            )


def _check_gateways(config: NicConfig, pod: PodState, label: str) -> None:
    """Refuse a route whose gateway is in no network of the interface, as the kernel does in the pod."""
    if config.interface.dhcp:
        return  # the networks are those of the lease
    networks = [ipaddress.ip_interface(address.address).network for address in pod.addresses]
    networks += [ipaddress.ip_network(route.destination) for route in pod.routes if not route.gateway]
    for route in pod.routes:
        if not route.gateway or route.flags & _ONLINK:
            continue
        gateway = ipaddress.ip_address(route.gateway)
        if not gateway.is_link_local and not any(gateway in network for network in networks):
            whose = "" if config.routes is not None else ", which it has on the node and keeps without routes,"
            raise PermanentError(
                f"{label}: routes: gateway {gateway} of {route.destination}{whose} is in no network of its addresses "
                f"({', '.join(address.address for address in pod.addresses) or 'none'}); give routes that fit, or []"
            )


def _ip(text: str) -> str:
    """Return an address of a configuration as the kernel writes it."""
    ip = ipaddress.ip_interface(text).ip
    return inet_ntop(AF_INET if ip.version == _IPV4 else AF_INET6, ip.packed)


def _ethtool(network: Network, link: Link, config: EthtoolConfig, label: str) -> EthtoolSettings:
    """Return the settings of ethtool that a configuration asks for. Raises PermanentError if there is no such one."""
    if config == EthtoolConfig():
        return EthtoolSettings()
    now, limits = network.ethtool(link.name), network.ethtool_limits(link.name)
    channels: dict[str, int] = dict(config.channels.items())
    rings: dict[str, int] = dict(config.rings.items())
    _check_numbers(f"{label}: ethtool.channels", channels, limits.channels)
    _check_numbers(f"{label}: ethtool.rings", rings, limits.rings)
    return EthtoolSettings(
        features=dict(_features(config, now, limits, f"{label}: ethtool.features")),
        channels=channels,
        rings=rings,
    )


def _check_numbers(label: str, wanted: Mapping[str, int], largest: Mapping[str, int]) -> None:
    for key, number in wanted.items():
        if key not in largest:
            known = f"it has {', '.join(sorted(largest))}" if largest else "it has none that can be set"
            raise PermanentError(f"{label}.{key} cannot be set: {known}")
        if number > largest[key]:
            raise PermanentError(f"{label}.{key} {number} exceeds {largest[key]}, which is the most that it can have")


def _features(
    config: EthtoolConfig, now: EthtoolSettings, limits: EthtoolLimits, label: str
) -> Iterator[tuple[str, bool]]:
    """Yield the features to switch, by the kernel's names; an alias means all its features that the interface has."""
    given: dict[str, str] = {}
    for name, is_on in config.features.items():
        meant = _FEATURES_OF_ALIASES.get(name, (name,))
        known = [feature for feature in meant if feature in now.features]
        if not known and any(feature in limits.fixed for feature in meant):
            raise PermanentError(f"{label}.{name} is fixed for it and cannot be switched")
        if not known:
            raise PermanentError(
                f"{label}.{name} is no feature that it has; it has {', '.join(sorted(now.features)) or 'none'}"
            )
        for feature in known:
            if feature in given and config.features[given[feature]] != is_on:
                raise PermanentError(
                    f"{label}: {given[feature]} and {name} both mean {feature}; one is on, the other off"
                )
            given[feature] = name
            yield feature, is_on


def _pod_state(config: NicConfig, state: HostState, settings: EthtoolSettings) -> PodState:
    """Return how the pod gets an interface: as configured; addresses, routes and neighbours else as on the node."""
    wanted = config.interface
    vrf = Vrf(name=wanted.vrf.name, table=wanted.vrf.number) if wanted.vrf is not None else None
    if wanted.dhcp:
        addresses = []  # that of the lease follows when there is one
    elif wanted.addresses is None:
        addresses = [replace(address, label="") for address in state.addresses if address.scope == UNIVERSE]
    else:
        addresses = [Address(address=address) for address in wanted.addresses]
    neighbours = state.neighbours
    if config.neighbors is not None:
        neighbours = tuple(Neighbour(address=entry.destination, mac=entry.hardware_addr) for entry in config.neighbors)
    # When an address by DHCP is replaced, the network of the old one, and so the routes through it, must stay.
    by_dhcp = {"ipv4.conf.promote_secondaries": "1"} if wanted.dhcp else {}
    arp = {"ipv4.conf.arp_ignore": wanted.arp_ignore, "ipv4.conf.arp_announce": wanted.arp_announce}
    return PodState(
        name=wanted.name or state.name,
        mac=wanted.hardware_addr or "",
        mtu=wanted.mtu or 0,
        addresses=tuple(map(_usable_at_once, addresses)),
        routes=tuple(_routes(config, state, vrf)),
        rules=tuple(
            RoutingRule(
                priority=rule.priority, source=rule.source or "", destination=rule.destination or "", table=rule.table
            )
            for rule in config.rules
        ),
        neighbours=neighbours,
        sysctls={**by_dhcp, **wanted.sysctls, **{key: str(value) for key, value in arp.items() if value is not None}},
        ethtool=settings,
        vrf=vrf,
    )


def _usable_at_once(address: Address) -> Address:
    """Return it without duplicate address detection, which takes a second: a sandbox must start sooner."""
    is_ipv6 = ipaddress.ip_interface(address.address).version == _IPV6
    return replace(address, flags=address.flags | _NODAD) if is_ipv6 else address


def _routes(config: NicConfig, state: HostState, vrf: Vrf | None) -> Iterator[Route]:
    """Yield the routes of the pod; those of the main table are in that of the VRF, if there is one."""
    table = MAIN_TABLE if vrf is None else vrf.table
    if config.routes is None and not config.interface.dhcp:
        for route in state.routes:
            yield replace(route, table=table) if route.table == MAIN_TABLE else route
    for given in config.routes or ():
        yield _route(given, table if given.table == MAIN_TABLE else given.table)


def _route(config: RouteConfig, table: int) -> Route:
    return Route(
        destination=config.destination,
        gateway=config.gateway or "",
        source=config.source or "",
        scope=config.scope,
        table=table,
        metric=config.metric,
    )
