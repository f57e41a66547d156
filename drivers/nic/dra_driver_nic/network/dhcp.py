"""DHCP for IPv4: get a lease, renew it and release it, by one exchange of messages each.

Each exchange is a function of a socket and a lease, and a lease is text and numbers: one process gets it, another one
renews it from another network namespace, a third one releases it. A packet socket needs no address, no route and no
port on the node. Source: RFC 2131 (DHCP), 2132 (options), 3442 (classless routes).
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import TypeAdapter

from dra_sdk import RetriableError

SERVER_PORT: Final = 67
CLIENT_PORT: Final = 68
DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE = range(1, 8)
BROADCAST_MAC: Final = "ff:ff:ff:ff:ff:ff"
ETHERTYPE: Final = 0x0800  # of IPv4
_ANY: Final = "0.0.0.0"  # noqa: S104 (an address in a message)
_BROADCAST: Final = "255.255.255.255"
_COOKIE: Final = b"\x63\x82\x53\x63"
_REPLY: Final = 2
_WORD: Final = 4  # bytes of an address or a number
_HEADER: Final = struct.Struct("!BBBBIHH4s4s4s4s16s192x4s")
_UDP: Final = 17
_BROADCAST_FLAG: Final = 0x8000
_SHORTEST: Final = 300  # bytes of a message: some relays drop shorter ones
_LARGEST: Final = 1500
_FOREVER: Final = 0xFFFFFFFF
_FIRST_WAIT: Final = 0.5  # seconds until a message is sent again; each time twice as long
_LONGEST_WAIT: Final = 4.0
_SO_ATTACH_FILTER: Final = 26
# Instructions of BPF, as socket(7) takes them: UDP over IPv4 that is no later fragment, to the port of DHCP clients.
_TO_DHCP_CLIENTS: Final = (
    (0x30, 0, 0, 9),  # load the protocol
    (0x15, 0, 6, 17),  # UDP, else drop
    (0x28, 0, 0, 6),  # load the place of the fragment
    (0x45, 4, 0, 0x1FFF),  # drop if it is not the first
    (0xB1, 0, 0, 0),  # the length of the header
    (0x48, 0, 0, 2),  # load the port of the receiver
    (0x15, 0, 1, CLIENT_PORT),
    (0x06, 0, 0, 0xFFFF),  # accept
    (0x06, 0, 0, 0),  # drop
)
# options
_PAD, _END = 0, 255
_MASK, _ROUTER, _WANTED_ADDRESS, _LEASE_TIME, _TYPE, _SERVER, _PARAMETERS = 1, 3, 50, 51, 53, 54, 55
_MESSAGE, _MAX_SIZE, _RENEWAL_TIME, _REBINDING_TIME, _CLIENT, _ROUTES = 56, 57, 58, 59, 61, 121


class DhcpError(RetriableError):
    """There is no lease: no server answers, or a server refuses.

    refused: whether a server has said that the client may not have the address.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An address for some time.

    address: the address with prefix length.
    mac: the hardware address of the client.
    client: the client identifier, in hexadecimal digits.
    server: the address of the server.
    server_mac: the hardware address to which messages for the server go: its own, or that of a relay.
    router: the default gateway; empty for none.
    routes: networks and their gateways (option 121); 0.0.0.0 for a network without a gateway.
    began: when the lease began, in seconds since the node booted.
    seconds: how long it lasts. None: it has no end.
    renewal: after how many seconds it is to be renewed (T1).
    rebinding: after how many seconds any server may renew it (T2).
    """

    address: str
    mac: str
    client: str
    server: str
    server_mac: str
    router: str = ""
    routes: tuple[tuple[str, str], ...] = ()
    began: float = 0.0
    seconds: int | None = None
    renewal: float = 0.0
    rebinding: float = 0.0

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Lease:
        """Return the lease that a record keeps."""
        return _ADAPTER.validate_python(entry)

    @property
    def entry(self) -> dict[str, Any]:
        """What a record keeps, as JSON."""
        return dict(_ADAPTER.dump_python(self, mode="json"))

    @property
    def ip(self) -> str:
        """The address alone."""
        return self.address.partition("/")[0]

    def age(self) -> float:
        """Return seconds since it began."""
        return boot_seconds() - self.began

    def left(self) -> int | None:
        """Return whole seconds until it ends, at least 0. None: it does not end."""
        return None if self.seconds is None else max(0, int(self.seconds - self.age()))


_ADAPTER: Final = TypeAdapter(Lease)


def boot_seconds() -> float:
    """Return seconds since the node booted, also while it was suspended; the same for all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def packet_socket(interface: str) -> socket.socket:
    """Open a packet socket for the functions below on an interface of this thread's namespace. Raises OSError."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    try:
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in _TO_DHCP_CLIENTS))
        program = struct.pack("@HP", len(_TO_DHCP_CLIENTS), ctypes.addressof(code))
        packets.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        packets.bind((interface, ETHERTYPE))
    except OSError:
        packets.close()
        raise
    return packets


def acquire(packets: socket.socket, mac: str, seconds: float, *, client: str = "", wanted: str = "") -> Lease:
    """Get a lease. Raises DhcpError if no server grants one in time.

    packets: a packet socket (SOCK_DGRAM) for IPv4, bound to the interface.
    mac: the hardware address of the client; answers are asked as broadcasts, so that of the interface may be another.
    client: the client identifier, in hexadecimal digits; by default the hardware address.
    wanted: the address that the client had, if any.
    """
    end = time.monotonic() + seconds
    identifier = client or "01" + mac.replace(":", "")
    asked = {_CLIENT: bytes.fromhex(identifier), **({_WANTED_ADDRESS: _packed(wanted)} if wanted else {})}
    message = _Message(DISCOVER, mac, _BROADCAST_FLAG, options={**asked, **_QUESTIONS})
    began = boot_seconds()
    offer = _exchange(packets, message, end, OFFER)
    if _SERVER not in offer.options:
        raise DhcpError(f"the DHCP server that offers {offer.yours} does not give its address")
    chosen = {_WANTED_ADDRESS: _packed(offer.yours), _SERVER: offer.options[_SERVER]}
    request = _Message(REQUEST, mac, _BROADCAST_FLAG, options={**asked, **chosen, **_QUESTIONS}, number=message.number)
    answer = _exchange(packets, request, end, ACK, NAK)
    return _granted(answer, mac, identifier, began)


def renew(packets: socket.socket, lease: Lease, seconds: float, *, any_server: bool = False) -> Lease:
    """Extend a lease. Raises DhcpError if the server does not answer or refuses.

    any_server: ask all servers and not only the one that granted it.
    """
    options = {_CLIENT: bytes.fromhex(lease.client), **_QUESTIONS}
    message = _Message(REQUEST, lease.mac, 0, client=lease.ip, options=options)
    place = (_BROADCAST, BROADCAST_MAC) if any_server else (lease.server, lease.server_mac)
    began = boot_seconds()
    answer = _exchange(packets, message, time.monotonic() + seconds, ACK, NAK, source=lease.ip, place=place)
    return _granted(answer, lease.mac, lease.client, began)


def release(packets: socket.socket, lease: Lease) -> None:
    """Tell the server that the address is free again; it does not answer. OSError if it cannot be sent."""
    options = {_CLIENT: bytes.fromhex(lease.client), _SERVER: _packed(lease.server)}
    message = _Message(RELEASE, lease.mac, 0, client=lease.ip, options=options)
    _send(packets, message.encode(), lease.ip, lease.server, lease.server_mac)


# -- messages


_QUESTIONS: Final = {
    _PARAMETERS: bytes([_MASK, _ROUTER, _LEASE_TIME, _SERVER, _RENEWAL_TIME, _REBINDING_TIME, _ROUTES]),
    _MAX_SIZE: _LARGEST.to_bytes(2, "big"),
}


class _Message:
    """A message of a client, or the answer of a server."""

    def __init__(
        self,
        kind: int,
        mac: str,
        flags: int,
        *,
        client: str = _ANY,
        options: Mapping[int, bytes],
        number: int | None = None,
    ) -> None:
        self.kind, self.mac, self.flags, self.client, self.options = kind, mac, flags, client, options
        self.number = int.from_bytes(os.urandom(4), "big") if number is None else number
        self.yours = _ANY
        self.sender_mac = ""

    def encode(self) -> bytes:
        hardware = bytes.fromhex(self.mac.replace(":", ""))
        nothing = _packed(_ANY)
        addresses = (_packed(self.client), nothing, nothing, nothing)
        header = _HEADER.pack(1, 1, len(hardware), 0, self.number, 0, self.flags, *addresses, hardware, _COOKIE)
        options = {_TYPE: bytes([self.kind]), **self.options}
        coded = b"".join(bytes([code, len(value)]) + value for code, value in options.items())
        return (header + coded + bytes([_END])).ljust(_SHORTEST, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Read the answer of a server. None if it is anything else."""
        if len(data) < _HEADER.size:
            return None
        operation, _, length, _, number, _, flags, client, yours, _, _, hardware, cookie = _HEADER.unpack_from(data)
        options = dict(_options(data[_HEADER.size :]))
        if operation != _REPLY or cookie != _COOKIE or len(options.get(_TYPE, b"")) != 1:
            return None
        mac = hardware[:length].hex(":")
        answer = cls(options[_TYPE][0], mac, flags, client=socket.inet_ntoa(client), options=options, number=number)
        answer.yours = socket.inet_ntoa(yours)
        return answer

    def is_answer_to(self, message: _Message) -> bool:
        """Return whether the server has answered this message of this client."""
        return (self.number, self.mac) == (message.number, message.mac)


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the options of a message; join one that is given in parts (RFC 3396)."""
    options: dict[int, bytes] = {}
    place = 0
    while place < len(data) and data[place] != _END:
        code = data[place]
        if code == _PAD:
            place += 1
            continue
        length = data[place + 1] if place + 1 < len(data) else 0
        options[code] = options.get(code, b"") + data[place + 2 : place + 2 + length]
        place += 2 + length
    yield from options.items()


def _granted(answer: _Message, mac: str, client: str, began: float) -> Lease:
    """Return the lease of an acknowledgement. Raises DhcpError if it is a refusal, or has no lease."""
    options = answer.options
    server = _address(options.get(_SERVER, b""))
    if answer.kind == NAK:
        reason = options.get(_MESSAGE, b"").decode(errors="replace")
        raise DhcpError(f"the DHCP server {server} refuses the lease" + (f": {reason}" if reason else ""), refused=True)
    if not server or len(options.get(_LEASE_TIME, b"")) != _WORD or answer.yours == _ANY:
        raise DhcpError(f"the answer of the DHCP server {server} has no lease: its address, server or time is missing")
    given = ipaddress.ip_address(answer.yours)
    if given.is_loopback or given.is_multicast or given.is_reserved:
        raise DhcpError(f"the DHCP server {server} grants {given}, which is no address of a station")
    prefix = int.from_bytes(options.get(_MASK, b"\xff\xff\xff\xff"), "big").bit_count()
    seconds = _number(options, _LEASE_TIME, 0)
    return Lease(
        address=f"{answer.yours}/{prefix}",
        mac=mac,
        client=client,
        server=server,
        server_mac=answer.sender_mac,
        router=_address(options.get(_ROUTER, b"")),
        routes=tuple(_routes(options.get(_ROUTES, b""))),
        began=began,
        seconds=None if seconds == _FOREVER else seconds,
        renewal=_number(options, _RENEWAL_TIME, seconds / 2),
        rebinding=_number(options, _REBINDING_TIME, seconds * 7 / 8),
    )


def _number(options: Mapping[int, bytes], code: int, default: float) -> Any:
    value = options.get(code, b"")
    return int.from_bytes(value, "big") if len(value) == _WORD else default


def _routes(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield networks and gateways: the length of a prefix, as many bytes of the network as it needs, the gateway."""
    place = 0
    while place < len(data):
        prefix = data[place]
        length = (prefix + 7) // 8
        network = data[place + 1 : place + 1 + length].ljust(4, b"\0")
        gateway = data[place + 1 + length : place + 5 + length]
        place += 5 + length
        if prefix > 8 * _WORD or len(gateway) != _WORD:
            raise DhcpError("the answer of the DHCP server has routes (option 121) that cannot be read")
        yield str(ipaddress.ip_network((network, prefix), strict=False)), socket.inet_ntoa(gateway)


def _address(data: bytes) -> str:
    """Return the first address of an option; empty if there is none."""
    return socket.inet_ntoa(data[:_WORD]) if len(data) >= _WORD else ""


def _packed(text: str) -> bytes:
    return socket.inet_aton(text)


# -- packets


def _exchange(
    packets: socket.socket,
    message: _Message,
    end: float,
    *kinds: int,
    source: str = _ANY,
    place: tuple[str, str] = (_BROADCAST, BROADCAST_MAC),
) -> _Message:
    """Send a message until a server answers with one of some kinds. Raises DhcpError at the end."""
    wait, data = _FIRST_WAIT, message.encode()
    problem = "no server answers"
    while time.monotonic() < end:
        try:
            _send(packets, data, source, *place)
        except OSError as error:  # such as an interface whose link is not ready yet
            problem = f"the interface does not send: {error.strerror}"
        again = min(end, time.monotonic() + wait)
        while (left := again - time.monotonic()) > 0:
            answer = _receive(packets, left)
            if answer is not None and answer.is_answer_to(message) and answer.kind in kinds:
                return answer
        wait = min(2 * wait, _LONGEST_WAIT)
    raise DhcpError(f"there is no DHCP lease for {message.mac}: {problem}")


def _send(packets: socket.socket, data: bytes, source: str, server: str, mac: str) -> None:
    length = 8 + len(data)
    udp = struct.pack("!HHHH", CLIENT_PORT, SERVER_PORT, length, 0)
    pseudo = _packed(source) + _packed(server) + struct.pack("!BBH", 0, _UDP, length)
    udp = udp[:6] + struct.pack("!H", _checksum(pseudo + udp + data) or 0xFFFF)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0x10, 20 + length, 0, 0, 64, _UDP, 0, _packed(source), _packed(server))
    header = header[:10] + struct.pack("!H", _checksum(header)) + header[12:]
    name = packets.getsockname()[0]
    packets.sendto(header + udp + data, (name, ETHERTYPE, 0, 0, bytes.fromhex(mac.replace(":", ""))))


def _receive(packets: socket.socket, seconds: float) -> _Message | None:
    """Receive the next packet, if it is a server's answer. Its UDP checksum may be missing: a card adds it later."""
    packets.settimeout(max(seconds, 0.001))
    try:
        data, sender = packets.recvfrom(1 << 16)
    except TimeoutError:
        return None
    except OSError:  # the interface went down or away; the caller sends again until its time is over
        time.sleep(min(seconds, 0.05))
        return None
    header = (data[0] & 0x0F) * 4 if data else 0
    if len(data) < header + 8 or data[9] != _UDP:
        return None
    if struct.unpack_from("!HH", data, header) != (SERVER_PORT, CLIENT_PORT):
        return None
    answer = _Message.decode(data[header + 8 :])
    if answer is not None:
        answer.sender_mac = sender[4].hex(":")
    return answer


def _checksum(data: bytes) -> int:
    """Return the checksum of the internet (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
