"""The kernel's network namespaces by netlink: what `dra_driver_nic.network.links` describes, by the library pyroute2.

The calling thread enters a namespace for as long as a function runs there; the rest of the process stays where it is. A
thread for each namespace would do the same, but a busy node lets each switch between threads wait. Source:
rtnetlink(7), setns(2), network_namespaces(7).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any, Final, TypeVar

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from dra_driver_nic.network import dhcp, ethtool
from dra_driver_nic.network.cards import read_eswitch_modes, read_firmware
from dra_driver_nic.network.links import (
    KERNEL,
    LOCAL_TABLE,
    LOOPBACK,
    Address,
    EthtoolLimits,
    EthtoolSettings,
    Link,
    Neighbour,
    Network,
    NetworkError,
    NetworkSnapshot,
    Route,
    RoutingRule,
    VfSettings,
    Vrf,
)
from dra_driver_nic.network.netlink import Content, NetlinkSocket
from dra_driver_nic.network.netlink_decode import RouteEntry, read_address, read_link, read_neighbour, read_route
from dra_driver_nic.network.netlink_encode import (
    address_content,
    altname,
    given,
    link_change,
    neighbour_content,
    new_link,
    route_content,
    rule_content,
    vf_changes,
)
from dra_sdk.hardware import leave_out, leave_out_fact

T = TypeVar("T")
log = logging.getLogger(__name__)
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_OWN: Final = "/proc/thread-self/ns/net"
_CLONE_NEWNET: Final = 0x40000000
_NS_GET_NSTYPE: Final = 0xB703
_SO_NETNS_COOKIE: Final = 71
_COOKIE_BYTES: Final = 8
_SYSCTLS: Final = Path("/proc/sys/net")  # of the thread's own namespace
# RTM_*
_NEW_LINK, _DELETE_LINK, _GET_LINK, _NEW_NAME, _DELETE_NAME = 16, 17, 18, 108, 109
_NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS, _NEW_ROUTE, _GET_ROUTE = 20, 21, 22, 24, 26
_NEW_NEIGHBOUR, _GET_NEIGHBOUR, _NEW_RULE, _DELETE_RULE = 28, 30, 32, 33
_REPLACE, _EXCLUSIVE, _CREATE, _APPEND = 0x100, 0x200, 0x400, 0x800  # NLM_F_*
_NEW: Final = _CREATE | _EXCLUSIVE
_WITH_VFS, _WITHOUT_COUNTERS = 1, 8  # RTEXT_FILTER_VF and RTEXT_FILTER_SKIP_STATS of IFLA_EXT_MASK
_INDEX: Final = slice(20, 24)  # where the index of an interface is in its message
_LENGTH, _TABLE, _PROTOCOL = 17, 20, 21  # where these numbers of a route are in its message
_PAGE: Final = 4096
_IPVLAN_L2: Final = 0  # IPVLAN_MODE_L2


class KernelNamespace:
    """A network namespace, by its path, for one thread at a time. OSError if it cannot be opened, or is none.

    The first `run` opens a netlink socket there, which is used until `close`. After an error another one is opened,
    because the answers to a request that failed may still come.
    """

    def __init__(self, path: str | Path = _OWN) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._netlink: NetlinkSocket | None = None
        if not _is_network_namespace(self._handle):  # the file on which it was mounted is left
            os.close(self._handle)
            raise OSError(errno.EINVAL, "is no network namespace", str(path))

    @property
    def handle(self) -> int:
        """The open file."""
        return self._handle

    @property
    def identity(self) -> str:
        """What no other namespace has: its cookie, before Linux 5.14 its inode, whose number may come again."""
        with _inside(self._handle), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            try:
                cookie = opened.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE_BYTES)
            except OSError:
                return f"inode {os.fstat(self._handle).st_ino}"
        return f"cookie {int.from_bytes(cookie, sys.byteorder)}"

    def run(self, work: Callable[[Network], T]) -> T:
        """Call a function while this thread is in the namespace. A thread that it starts would stay there."""
        with _inside(self._handle):
            try:
                if self._netlink is None:
                    self._netlink = NetlinkSocket()
                return work(KernelNetwork(self._netlink))
            except BaseException:
                self._disconnect()
                raise

    def _disconnect(self) -> None:
        netlink, self._netlink = self._netlink, None
        if netlink is not None:
            netlink.close()

    def close(self) -> None:
        """Close socket and file; the namespace stays as long as something else is in it."""
        self._disconnect()
        os.close(self._handle)


def _is_network_namespace(handle: int) -> bool:
    try:
        return fcntl.ioctl(handle, _NS_GET_NSTYPE) == _CLONE_NEWNET
    except OSError:
        return False


@contextmanager
def _inside(namespace: int) -> Iterator[None]:
    """Let this thread be in a namespace, an open file. It always returns: the process ends if it cannot."""
    before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set_namespace(namespace)
        try:
            yield
        finally:
            try:
                _set_namespace(before)
            except OSError:
                log.critical("a thread cannot return from a network namespace, so the process ends", exc_info=True)
                os.abort()
    finally:
        os.close(before)


def _set_namespace(handle: int) -> None:
    if _LIBC.setns(handle, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}")


class KernelNetwork:
    """The network of the namespace in which the calling thread is."""

    def __init__(self, netlink: NetlinkSocket) -> None:
        self._netlink = netlink

    # -- reading

    def links(self) -> list[Link]:
        """Implement `Network.links`."""
        mask = Content({}, [("IFLA_EXT_MASK", _WITH_VFS | _WITHOUT_COUNTERS)])
        with _reading("interfaces"):
            links = list(_each("interface", leave_out, read_link, self._netlink.answers(ifinfmsg, _GET_LINK, mask)))
        return sorted(links, key=lambda link: link.index)

    def find(self, name: str) -> Link | None:
        """Implement `Network.find`."""
        answer = self._find(name)
        with _reading(f"interface {name}"):
            return None if answer is None else read_link(answer, 0)

    def index(self, name: str) -> int:
        """Implement `Network.index`. The rest of the message is not read, which takes most of the time of `find`."""
        answer = self._find(name)
        return 0 if answer is None else int.from_bytes(answer[_INDEX], sys.byteorder)

    def _find(self, name: str) -> bytes | None:
        wanted = Content({}, [("IFLA_ALT_IFNAME", name), ("IFLA_EXT_MASK", _WITHOUT_COUNTERS)])
        try:
            with _reading(f"interface {name}"):
                return self._netlink.read_message(ifinfmsg, _GET_LINK, wanted)
        except NetworkError as error:
            if error.errno == errno.ENODEV:
                return None
            raise

    def addresses(self) -> dict[int, list[Address]]:
        """Implement `Network.addresses`."""
        addresses: dict[int, list[Address]] = {}
        with _reading("addresses"):
            for read in _each("address", leave_out_fact, read_address, self._netlink.answers(ifaddrmsg, _GET_ADDRESS)):
                if read is not None:
                    addresses.setdefault(read[0], []).append(read[1])
        return addresses

    def neighbours(self, link: int) -> list[Neighbour]:
        """Implement `Network.neighbours`."""
        with _reading("neighbours"):
            neighbours = [read_neighbour(*answer) for answer in self._netlink.answers(ndmsg, _GET_NEIGHBOUR)]
        return [read[1] for read in neighbours if read is not None and read[0] == link]

    def snapshot(self) -> NetworkSnapshot:
        """Implement `Network.snapshot`."""
        routes: dict[int, list[Route]] = {}
        shared: dict[int, list[str]] = {}
        defaults: set[int] = set()
        addresses = self.addresses()
        with _reading("routes"):
            for entry in self._routes():
                if entry.link and entry.route.protocol != KERNEL:
                    routes.setdefault(entry.link, []).append(entry.route)
                for link in {*entry.hops}:
                    shared.setdefault(link, []).append(entry.route.destination)
                if entry.is_default:
                    defaults |= {entry.link, *entry.hops} - {0}
        links = self.links()
        hardware = [link.name for link in links if not link.kind and link.arp_type != LOOPBACK]
        return NetworkSnapshot(
            links=links,
            addresses=addresses,
            routes=routes,
            shared_routes=shared,
            default_routes=frozenset(defaults),
            firmware=read_firmware(hardware),
            eswitch_modes=read_eswitch_modes() if hardware else {},
        )

    def _routes(self) -> Iterator[RouteEntry]:
        """Yield all routes but those of the table `local`, of caches, and of what the kernel adds with an address."""
        for family in (AF_INET, AF_INET6):
            for answer in self._netlink.answers(rtmsg, _GET_ROUTE, Content({"family": family})):
                if _is_wanted(*answer):
                    entry = read_route(*answer)
                    if entry.route.table != LOCAL_TABLE and not entry.cached:
                        yield entry

    # -- changing

    def change(self, link: int, *, name: str = "", mtu: int = 0, mac: str = "", up: bool | None = None) -> None:
        """Implement `Network.change`."""
        changes: dict[str, Any] = {"ifname": name, "mtu": mtu, "address": mac}
        if up is not None:
            changes["state"] = "up" if up else "down"
        what = ", ".join(f"{key} {value}" for key, value in changes.items() if value)
        with _changing(f"set {what} of interface {link}"):
            self._link(_NEW_LINK, link_change(link, name=name, mtu=mtu, mac=mac, up=up))

    def _link(self, command: int, content: Content, flags: int = 0) -> None:
        self._netlink.change(ifinfmsg, command, content, flags)

    def set_master(self, link: int, master: int) -> None:
        """Implement `Network.set_master`."""
        with _changing(f"make interface {link} belong to interface {master}"):
            self._link(_NEW_LINK, link_change(link, master=master))

    def add_vrf(self, vrf: Vrf) -> None:
        """Implement `Network.add_vrf`."""
        with _changing(f"add VRF {vrf.name} with table {vrf.table}"):
            self._link(_NEW_LINK, new_link(vrf.name, "vrf", ("IFLA_VRF_TABLE", vrf.table), up=True), _NEW)
        for key in ("tcp_l3mdev_accept", "udp_l3mdev_accept"):
            _write_sysctl(_SYSCTLS / "ipv4" / key, "1")

    def add_macvlan(self, name: str, parent: int, mac: str) -> None:
        """Implement `Network.add_macvlan`."""
        data = ("IFLA_MACVLAN_MODE", "bridge")
        with _changing(f"add macvlan {name} on interface {parent}"):
            self._link(_NEW_LINK, new_link(name, "macvlan", data, parent=parent, mac=mac), _NEW)

    def add_ipvlan(self, name: str, parent: int) -> None:
        """Implement `Network.add_ipvlan`."""
        with _changing(f"add ipvlan {name} on interface {parent}"):
            self._link(_NEW_LINK, new_link(name, "ipvlan", ("IFLA_IPVLAN_MODE", _IPVLAN_L2), parent=parent), _NEW)

    def remove_link(self, link: int) -> None:
        """Implement `Network.remove_link`."""
        with _changing(f"remove interface {link}", errno.ENODEV):
            self._link(_DELETE_LINK, Content({"index": link}))

    def move(self, link: int, namespace: int, index: int = 0, name: str = "") -> None:
        """Implement `Network.move`."""
        optional: list[tuple[str, Any]] = [("IFLA_NEW_IFINDEX", index), ("IFLA_IFNAME", name)]
        wanted = [("IFLA_NET_NS_FD", namespace), *given(optional)]
        with _changing(f"move interface {link} to another network namespace{f' as {name}' if name else ''}"):
            self._link(_NEW_LINK, Content({"index": link}, wanted))

    def add_altname(self, link: int, name: str) -> None:
        """Implement `Network.add_altname`."""
        with _changing(f"give interface {link} the alternative name {name}"):
            self._link(_NEW_NAME, altname(link, name), _CREATE | _APPEND)

    def remove_altname(self, link: int, name: str) -> None:
        """Implement `Network.remove_altname`."""
        with _changing(f"remove the alternative name {name} of interface {link}"):
            self._link(_DELETE_NAME, altname(link, name))

    def add_address(self, link: int, address: Address) -> None:
        """Implement `Network.add_address`."""
        with _changing(f"add address {address.address} to interface {link}", errno.EEXIST):
            self._netlink.change(ifaddrmsg, _NEW_ADDRESS, address_content(link, address), _NEW)

    def set_address(self, link: int, address: Address) -> None:
        """Implement `Network.set_address`."""
        with _changing(f"set address {address.address} of interface {link}"):
            self._netlink.change(ifaddrmsg, _NEW_ADDRESS, address_content(link, address), _CREATE | _REPLACE)

    def remove_address(self, link: int, address: Address) -> None:
        """Implement `Network.remove_address`."""
        with _changing(f"remove address {address.address} of interface {link}", errno.EADDRNOTAVAIL):
            self._netlink.change(ifaddrmsg, _DELETE_ADDRESS, address_content(link, Address(address=address.address)))

    def add_route(self, link: int, route: Route) -> None:
        """Implement `Network.add_route`."""
        with _changing(f"add route {route.destination} through interface {link}", errno.EEXIST):
            self._netlink.change(rtmsg, _NEW_ROUTE, route_content(link, route), _NEW)

    def add_rule(self, rule: RoutingRule) -> None:
        """Implement `Network.add_rule`."""
        with _changing(f"add rule {rule.priority} for table {rule.table}", errno.EEXIST):
            self._netlink.change(fibmsg, _NEW_RULE, rule_content(rule), _NEW)

    def remove_rule(self, rule: RoutingRule) -> None:
        """Implement `Network.remove_rule`."""
        with _changing(f"remove rule {rule.priority} for table {rule.table}", errno.ENOENT):
            self._netlink.change(fibmsg, _DELETE_RULE, rule_content(rule))

    def add_neighbour(self, link: int, neighbour: Neighbour) -> None:
        """Implement `Network.add_neighbour`."""
        with _changing(f"add neighbour {neighbour.address} to interface {link}"):
            self._netlink.change(ndmsg, _NEW_NEIGHBOUR, neighbour_content(link, neighbour), _CREATE | _REPLACE)

    def packet_socket(self, name: str) -> socket.socket:
        """Implement `Network.packet_socket`."""
        try:
            return dhcp.packet_socket(name)
        except OSError as error:
            raise NetworkError(f"interface {name} cannot be opened: {error.strerror}", error.errno or 0) from error

    def set_vf(self, link: int, settings: VfSettings) -> None:
        """Implement `Network.set_vf`, one message for each setting: a card that lacks one refuses all of a message."""
        for what, content in vf_changes(link, settings):
            with _changing(f"set {what} of virtual function {settings.number} of interface {link}"):
                self._link(_NEW_LINK, content)

    # -- sysctls

    def sysctls(self, name: str) -> dict[str, str]:
        """Implement `Network.sysctls`. One that cannot be read, as a secret of IPv6 that is not set, is left out."""
        values = {}
        for prefix in ("ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"):
            key = prefix.replace("/", ".")
            try:
                directory = os.open(f"{_SYSCTLS}/{prefix}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                for entry in os.listdir(directory):  # noqa: PTH208 (an attach reads 130 files twice)
                    try:
                        values[f"{key}.{entry}"] = _read_small(entry, directory)
                    except OSError:
                        continue
            finally:
                os.close(directory)
        return values

    def set_sysctl(self, name: str, key: str, value: str) -> None:
        """Implement `Network.set_sysctl`."""
        family, kind, entry = key.split(".")
        _write_sysctl(_SYSCTLS / family / kind / name / entry, value)

    # -- ethtool

    def ethtool(self, name: str) -> EthtoolSettings:
        """Implement `Network.ethtool`."""
        return ethtool.read(name)

    def ethtool_limits(self, name: str) -> EthtoolLimits:
        """Implement `Network.ethtool_limits`."""
        return ethtool.read_limits(name)

    def set_features(self, name: str, features: Mapping[str, bool]) -> list[str]:
        """Implement `Network.set_features`."""
        return ethtool.set_features(name, features)

    def set_channels(self, name: str, channels: Mapping[str, int]) -> None:
        """Implement `Network.set_channels`."""
        ethtool.set_channels(name, channels)

    def set_rings(self, name: str, rings: Mapping[str, int]) -> None:
        """Implement `Network.set_rings`."""
        ethtool.set_rings(name, rings)


def _each(
    what: str,
    leave: Callable[[str, str], None],
    read: Callable[[bytes, int], T],
    answers: Iterable[tuple[bytes, int]],
) -> Iterator[T]:
    """Read the answers of a list one by one: one that cannot be read costs what it is about, not the others."""
    for number, answer in enumerate(answers):
        try:
            yield read(*answer)
        except (OSError, ValueError, IndexError, struct.error) as error:
            leave(f"{what} {number} of the kernel's list", f"its message cannot be read: {error}")


def _is_wanted(data: bytes, begin: int) -> bool:
    """Return whether a route may be one of `KernelNetwork._routes`. Most are not, and reading them takes time.

    The number of a table above 255 is not here but in an attribute.
    """
    is_kernels = data[begin + _PROTOCOL] == KERNEL and data[begin + _LENGTH] > 0
    return data[begin + _TABLE] != LOCAL_TABLE and not is_kernels


def _read_small(name: str, directory: int) -> str:
    """Read a file of the kernel that is shorter than a page, without the layers of `open`."""
    handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
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
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno or 0
        if number not in expected:
            raise NetworkError(f"the kernel refused to {what}: {os.strerror(number)}", number) from error
