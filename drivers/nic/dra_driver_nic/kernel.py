"""The kernel's network namespaces by netlink: what `dra_driver_nic.links` describes, by the library pyroute2.

A thread of its own enters the namespace, so the rest of the process stays where it is. Source: rtnetlink(7), setns(2),
network_namespaces(7).
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from socket import AF_INET, AF_INET6, AF_UNSPEC
from threading import Thread, current_thread
from typing import Any, Final, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dra_driver_nic import dhcp, ethtool
from dra_driver_nic.cards import read_eswitch_modes, read_firmware
from dra_driver_nic.links import (
    KERNEL,
    LOCAL_TABLE,
    Address,
    EthtoolLimits,
    EthtoolSettings,
    Link,
    Neighbour,
    Network,
    NetworkError,
    Route,
    Rule,
    Snapshot,
    VfSettings,
    Vrf,
)
from dra_driver_nic.messages import (
    address_attributes,
    destination_of,
    is_automatic,
    is_default_route,
    read_address,
    read_link,
    read_route,
    route_attributes,
    rule_attributes,
    table_of,
    vf_changes,
)

T = TypeVar("T")
_CLONE_NEWNET: Final = 0x40000000
_SYSCTLS: Final = Path("/proc/sys/net")  # of the thread's own namespace
_EXT_MASK_VF: Final = 1
_PERMANENT: Final = 0x80  # NUD_PERMANENT of neighbours
_LARGEST: Final = 1 << 16  # bytes of one message
_BUFFER: Final = 1 << 20
_PAGE: Final = 4096
_IPVLAN_L2: Final = 0  # IPVLAN_MODE_L2
# RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE
_GROUPS: Final = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
_CLONED: Final = 0x200  # RTM_F_CLONED: an entry of a cache


class KernelNamespace:
    """A network namespace, by its path. OSError if it cannot be opened.

    The first `run` starts a thread, which enters the namespace, opens a netlink socket there and works until `close`.
    After an error it opens another socket, because the answers to a request that failed may still come.
    """

    def __init__(self, path: str | Path = "/proc/self/ns/net") -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._netlink: IPRoute | None = None  # of the thread

    @property
    def handle(self) -> int:
        """The open file."""
        return self._handle

    def run(self, work: Callable[[Network], T]) -> T:
        """Call a function in the thread that is in this namespace. What it raises is raised here."""
        if self._thread is current_thread():
            return work(self._network())
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._serve, name="network namespace", daemon=True)
            self._thread.start()
        answer: Future[T] = Future()

        def call() -> None:
            try:
                answer.set_result(work(self._network()))
            except BaseException as error:  # noqa: BLE001 (it is raised in the thread that waits)
                answer.set_exception(error)
                self._disconnect()

        self._calls.put(call)
        return answer.result()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        self._disconnect()

    def _network(self) -> KernelNetwork:
        if self._netlink is None:
            _set_namespace(self._handle)
            self._netlink = IPRoute()
        return KernelNetwork(self._netlink)

    def _disconnect(self) -> None:
        netlink, self._netlink = self._netlink, None
        if netlink is not None:
            netlink.close()

    def close(self) -> None:
        """End the thread and close the file; the namespace stays as long as something else is in it."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
        os.close(self._handle)


def _set_namespace(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}")


class KernelNetwork:
    """The network of the namespace in which the calling thread is."""

    def __init__(self, netlink: IPRoute) -> None:
        self._netlink = netlink

    # -- reading

    def links(self) -> list[Link]:
        """As `Network.links`."""
        with _reading("interfaces"):
            return sorted(
                map(read_link, self._netlink.link("dump", ext_mask=_EXT_MASK_VF)), key=lambda link: link.index
            )

    def find(self, name: str) -> Link | None:
        """As `Network.find`."""
        try:
            with _reading(f"interface {name}"):
                found = self._netlink.link("get", altname=name)
        except NetworkError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
        return read_link(found[0]) if found else None

    def addresses(self) -> dict[int, list[Address]]:
        """As `Network.addresses`."""
        found: dict[int, list[Address]] = {}
        with _reading("addresses"):
            for each in self._netlink.get_addr():
                if not is_automatic(each):
                    found.setdefault(each["index"], []).append(read_address(each))
        return found

    def neighbours(self, link: int) -> list[Neighbour]:
        """As `Network.neighbours`."""
        with _reading("neighbours"):
            found = list(self._netlink.get_neighbours(family=AF_UNSPEC))
        return [
            Neighbour(address=each.get_attr("NDA_DST"), mac=each.get_attr("NDA_LLADDR"))
            for each in found
            if each["ifindex"] == link and each["state"] & _PERMANENT and each.get_attr("NDA_LLADDR")
        ]

    def snapshot(self) -> Snapshot:
        """As `Network.snapshot`."""
        routes: dict[int, list[Route]] = {}
        shared: dict[int, list[str]] = {}
        defaults: set[int] = set()
        addresses = self.addresses()
        with _reading("routes"):
            for each in self._routes():
                single: int | None = each.get_attr("RTA_OIF")
                several: set[int] = {hop["oif"] for hop in each.get_attr("RTA_MULTIPATH") or ()}
                if single is not None and each["proto"] != KERNEL:
                    routes.setdefault(single, []).append(read_route(each))
                for link in several:
                    shared.setdefault(link, []).append(destination_of(each))
                if is_default_route(each):
                    defaults |= several if single is None else {single, *several}
        links = self.links()
        return Snapshot(
            links=links,
            addresses=addresses,
            routes=routes,
            shared_routes=shared,
            default_routes=frozenset(defaults),
            firmware=read_firmware(each.name for each in links if not each.kind),
            eswitch_modes=read_eswitch_modes(),
        )

    def _routes(self) -> Iterator[Any]:
        """All routes but those of the table `local`, which the kernel keeps, and of caches."""
        for family in (AF_INET, AF_INET6):
            for each in self._netlink.get_routes(family=family):
                if table_of(each) != LOCAL_TABLE and not each["flags"] & _CLONED:
                    yield each

    # -- changing

    def change(self, link: int, *, name: str = "", mtu: int = 0, mac: str = "", up: bool | None = None) -> None:
        """As `Network.change`."""
        given: dict[str, Any] = {"ifname": name, "mtu": mtu, "address": mac}
        changes = {key: value for key, value in given.items() if value}
        if up is not None:
            changes["state"] = "up" if up else "down"
        told = ", ".join(f"{key} {value}" for key, value in changes.items())
        with _changing(f"set {told} of interface {link}"):
            self._netlink.link("set", index=link, **changes)

    def set_master(self, link: int, master: int) -> None:
        """As `Network.set_master`."""
        with _changing(f"make interface {link} belong to interface {master}"):
            self._netlink.link("set", index=link, master=master)

    def add_vrf(self, vrf: Vrf) -> None:
        """As `Network.add_vrf`."""
        with _changing(f"add VRF {vrf.name} with table {vrf.table}"):
            self._netlink.link("add", ifname=vrf.name, kind="vrf", vrf_table=vrf.table, state="up")
        for key in ("tcp_l3mdev_accept", "udp_l3mdev_accept"):
            _write_sysctl(_SYSCTLS / "ipv4" / key, "1")

    def add_macvlan(self, name: str, parent: int, mac: str) -> None:
        """As `Network.add_macvlan`."""
        with _changing(f"add macvlan {name} on interface {parent}"):
            self._netlink.link("add", ifname=name, kind="macvlan", link=parent, macvlan_mode="bridge", address=mac)

    def add_ipvlan(self, name: str, parent: int) -> None:
        """As `Network.add_ipvlan`."""
        with _changing(f"add ipvlan {name} on interface {parent}"):
            self._netlink.link("add", ifname=name, kind="ipvlan", link=parent, ipvlan_mode=_IPVLAN_L2)

    def remove_link(self, link: int) -> None:
        """As `Network.remove_link`."""
        with _changing(f"remove interface {link}", errno.ENODEV):
            self._netlink.link("del", index=link)

    def move(self, link: int, namespace: int, index: int = 0) -> None:
        """As `Network.move`."""
        wanted = {"new_ifindex": index} if index else {}
        with _changing(f"move interface {link} to another network namespace"):
            self._netlink.link("set", index=link, net_ns_fd=namespace, **wanted)

    def add_altname(self, link: int, name: str) -> None:
        """As `Network.add_altname`."""
        with _changing(f"give interface {link} the alternative name {name}"):
            self._netlink.link("property_add", index=link, altname=name)

    def remove_altname(self, link: int, name: str) -> None:
        """As `Network.remove_altname`."""
        with _changing(f"remove the alternative name {name} of interface {link}"):
            self._netlink.link("property_del", index=link, altname=name)

    def add_address(self, link: int, address: Address) -> None:
        """As `Network.add_address`."""
        with _changing(f"add address {address.address} to interface {link}", errno.EEXIST):
            self._netlink.addr("add", index=link, **address_attributes(address))

    def set_address(self, link: int, address: Address) -> None:
        """As `Network.set_address`."""
        with _changing(f"set address {address.address} of interface {link}"):
            self._netlink.addr("replace", index=link, **address_attributes(address))

    def remove_address(self, link: int, address: Address) -> None:
        """As `Network.remove_address`."""
        local = ipaddress.ip_interface(address.address)
        with _changing(f"remove address {address.address} of interface {link}", errno.EADDRNOTAVAIL):
            self._netlink.addr("del", index=link, address=str(local.ip), prefixlen=local.network.prefixlen)

    def add_route(self, link: int, route: Route) -> None:
        """As `Network.add_route`."""
        with _changing(f"add route {route.destination} through interface {link}", errno.EEXIST):
            self._netlink.route("add", oif=link, **route_attributes(route))

    def add_rule(self, rule: Rule) -> None:
        """As `Network.add_rule`."""
        with _changing(f"add rule {rule.priority} for table {rule.table}", errno.EEXIST):
            self._netlink.rule("add", **rule_attributes(rule))

    def remove_rule(self, rule: Rule) -> None:
        """As `Network.remove_rule`."""
        with _changing(f"remove rule {rule.priority} for table {rule.table}", errno.ENOENT):
            self._netlink.rule("del", **rule_attributes(rule))

    def add_neighbour(self, link: int, neighbour: Neighbour) -> None:
        """As `Network.add_neighbour`."""
        with _changing(f"add neighbour {neighbour.address} to interface {link}"):
            self._netlink.neigh("replace", ifindex=link, dst=neighbour.address, lladdr=neighbour.mac, state=_PERMANENT)

    def packet_socket(self, name: str) -> socket.socket:
        """As `Network.packet_socket`."""
        try:
            return dhcp.packet_socket(name)
        except OSError as error:
            raise NetworkError(f"interface {name} cannot be opened: {error.strerror}", error.errno or 0) from error

    def set_vf(self, link: int, settings: VfSettings) -> None:
        """As `Network.set_vf`, one message for each setting: a card that lacks one refuses the whole message."""
        for changes in vf_changes(settings):
            told = ", ".join(f"{key} {value}" for key, value in changes.items())
            with _changing(f"set {told} of virtual function {settings.number} of interface {link}"):
                self._netlink.link("set", index=link, vf={"vf": settings.number, **changes})

    # -- sysctls

    def sysctls(self, name: str) -> dict[str, str]:
        """As `Network.sysctls`. One that cannot be read, as a secret of IPv6 that is not set, is left out."""
        found = {}
        for prefix in ("ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"):
            directory, key = f"{_SYSCTLS}/{prefix}/{name}", prefix.replace("/", ".")
            try:
                entries = os.listdir(directory)  # noqa: PTH208 (an attach reads 130 files twice)
            except FileNotFoundError:
                continue
            for entry in entries:
                try:
                    found[f"{key}.{entry}"] = _read_small(f"{directory}/{entry}")
                except OSError:
                    continue
        return found

    def set_sysctl(self, name: str, key: str, value: str) -> None:
        """As `Network.set_sysctl`."""
        family, kind, entry = key.split(".")
        _write_sysctl(_SYSCTLS / family / kind / name / entry, value)

    # -- ethtool

    def ethtool(self, name: str) -> EthtoolSettings:
        """As `Network.ethtool`."""
        return ethtool.read(name)

    def ethtool_limits(self, name: str) -> EthtoolLimits:
        """As `Network.ethtool_limits`."""
        return ethtool.read_limits(name)

    def set_features(self, name: str, features: Mapping[str, bool]) -> list[str]:
        """As `Network.set_features`."""
        return ethtool.set_features(name, features)

    def set_channels(self, name: str, channels: Mapping[str, int]) -> None:
        """As `Network.set_channels`."""
        ethtool.set_channels(name, channels)

    def set_rings(self, name: str, rings: Mapping[str, int]) -> None:
        """As `Network.set_rings`."""
        ethtool.set_rings(name, rings)


def _read_small(path: str) -> str:
    """The content of a file of the kernel that is shorter than a page, without the layers of `open`."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, _PAGE).decode("ascii").strip()
    finally:
        os.close(handle)


def _write_sysctl(path: Path, value: str) -> None:
    try:
        path.write_text(value, encoding="ascii")
    except OSError as error:
        raise NetworkError(f"sysctl {path} cannot be set to {value!r}: {error.strerror}", error.errno or 0) from error


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno or 0
        raise NetworkError(f"{what} cannot be read from the kernel: {error}", number) from error


@contextmanager
def _changing(what: str, *expected: int) -> Iterator[None]:
    """Turn an error of netlink into a sentence; `expected` are numbers of errors that do no harm."""
    try:
        yield
    except NetlinkError as error:
        if error.code not in expected:
            raise NetworkError(f"the kernel refused to {what}: {os.strerror(error.code)}", error.code) from error


class LinkEvents:
    """Changes of interfaces, addresses and routes in the network namespace of the calling thread.

    This is a source for `dra_sdk.hardware.uevents.watch`, which waits until no further event comes. Uevents would not
    do: those of an interface go only to its own network namespace. OSError if there is no netlink here.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._socket.bind((0, _GROUPS))
        except OSError:
            self._socket.close()
            raise

    def receive(self, seconds: float) -> bytes | None:
        """Empty if something has changed, None if nothing has within some seconds.

        All events that have come are taken: the move of one interface makes dozens, while a container runtime waits.
        """
        self._socket.settimeout(max(seconds, 0.001))
        try:
            self._socket.recv(_LARGEST)
            self._socket.setblocking(False)
            while True:
                self._socket.recv(_LARGEST)
        except TimeoutError:
            return None
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
        return b""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
