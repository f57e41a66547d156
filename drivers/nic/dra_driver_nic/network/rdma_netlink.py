"""RDMA devices and network namespaces by netlink, of which pyroute2 has nothing.

In the shared mode of the kernel every namespace sees every RDMA device. In the exclusive mode a device is in one
namespace, as an interface is, and `RDMA_NLDEV_CMD_SET` moves it. A device keeps its name, which no other device of the
machine has in any namespace; the kernel moves it to the first namespace when its own ends. A device in software
stands on an interface and never moves: the kernel removes it when the interface moves, and
`RDMA_NLDEV_CMD_NEWLINK` makes another one, on an interface of the thread's namespace.

A namespace is that of the thread which opens the socket. Source: include/uapi/rdma/rdma_netlink.h and
drivers/infiniband/core/nldev.c of the kernel; netlink(7).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final, Protocol

from dra_driver_nic.network.links import NetworkError
from dra_driver_nic.network.netlink_decode import pairs

NETLINK_RDMA: Final = 20
_NLDEV: Final = 5 << 10  # RDMA_NL_NLDEV: the upper bits of a message's type
_GET, _SET, _NEW_LINK, _DELETE_LINK, _SYS_GET = 1, 2, 3, 4, 6  # RDMA_NLDEV_CMD_*
_DEV_INDEX, _DEV_NAME, _NDEV_NAME, _LINK_TYPE, _NET_NS_FD = 1, 2, 51, 65, 68  # RDMA_NLDEV_ATTR_*
_NETNS_MODE: Final = 66  # RDMA_NLDEV_SYS_ATTR_NETNS_MODE
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300  # NLM_F_*
_ERROR, _DONE = 2, 3  # NLMSG_*
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ATTRIBUTE: Final = struct.Struct("=HH")  # nlattr: length, type
_ALIGNED: Final = 4
_LARGEST: Final = 1 << 16
_SECONDS: Final = 2.0


class RdmaSocket(Protocol):
    """A socket of netlink. Methods raise OSError."""

    def send(self, message: bytes) -> int:
        """Send one message."""

    def recv(self, size: int) -> bytes:
        """Receive some messages."""

    def close(self) -> None:
        """Close it."""


OpenRdmaSocket = Callable[[], RdmaSocket]


def open_socket() -> RdmaSocket:
    """Open a socket in the thread's network namespace. OSError: EPROTONOSUPPORT if the kernel has no RDMA."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_RDMA)
    opened.settimeout(_SECONDS)
    return opened


def is_exclusive(open_rdma: OpenRdmaSocket) -> bool:
    """Return whether each RDMA device is in one network namespace. False on a kernel without RDMA. NetworkError."""
    try:
        opened = open_rdma()
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            return False
        raise NetworkError(f"RDMA netlink cannot be opened: {os.strerror(error.errno or 0)}") from error
    with closing(opened):
        answers = _ask(opened, "read the mode of RDMA and namespaces", _SYS_GET, _REQUEST | _ACK)
        return any(answer.get(_NETNS_MODE) == b"\0" for answer in answers)


def devices(open_rdma: OpenRdmaSocket) -> dict[str, int]:
    """Return the indexes of the RDMA devices that the thread's namespace sees, by name. NetworkError."""
    with closing(_opened(open_rdma)) as opened:
        answers = _ask(opened, "list RDMA devices", _GET, _REQUEST | _DUMP)
    return {
        answer[_DEV_NAME].rstrip(b"\0").decode(): int.from_bytes(answer[_DEV_INDEX], "little")
        for answer in answers
        if _DEV_NAME in answer and _DEV_INDEX in answer
    }


def move(open_rdma: OpenRdmaSocket, name: str, index: int, namespace: int) -> None:
    """Move a device from the thread's namespace to that of an open file. NetworkError."""
    changes = _attribute(_DEV_INDEX, index) + _attribute(_NET_NS_FD, namespace)
    with closing(_opened(open_rdma)) as opened:
        _ask(opened, f"move RDMA device {name} to another network namespace", _SET, _REQUEST | _ACK, changes)


def add_link(open_rdma: OpenRdmaSocket, name: str, kind: str, interface: str) -> None:
    """Make a device in software, of a kind such as `rxe`, on an interface of the thread's namespace. NetworkError."""
    changes = _text(_DEV_NAME, name) + _text(_LINK_TYPE, kind) + _text(_NDEV_NAME, interface)
    with closing(_opened(open_rdma)) as opened:
        _ask(opened, f"make RDMA device {name} on interface {interface}", _NEW_LINK, _REQUEST | _ACK, changes)


def remove_link(open_rdma: OpenRdmaSocket, name: str, index: int) -> None:
    """Remove a device in software, which the thread's namespace sees. NetworkError."""
    with closing(_opened(open_rdma)) as opened:
        _ask(opened, f"remove RDMA device {name}", _DELETE_LINK, _REQUEST | _ACK, _attribute(_DEV_INDEX, index))


def _opened(open_rdma: OpenRdmaSocket) -> RdmaSocket:
    try:
        return open_rdma()
    except OSError as error:
        raise NetworkError(f"RDMA netlink cannot be opened: {error.strerror}", error.errno or 0) from error


def _ask(opened: RdmaSocket, what: str, command: int, flags: int, attributes: bytes = b"") -> list[Mapping[int, bytes]]:
    """Send a command; return the attributes of each message of the answer."""
    length = _HEADER.size + len(attributes)
    answers: list[Mapping[int, bytes]] = []
    try:
        opened.send(_HEADER.pack(length, _NLDEV | command, flags, 1, 0) + attributes)
        while True:
            for kind, content in _messages(opened.recv(_LARGEST)):
                if kind == _ERROR:
                    (number,) = struct.unpack_from("=i", content)
                    if number:
                        raise NetworkError(f"the kernel refused to {what}: {os.strerror(-number)}", -number)
                if kind in {_ERROR, _DONE}:
                    return answers
                answers.append(dict(pairs(content)))
    except OSError as error:
        raise NetworkError(f"the kernel did not {what}: {error}", error.errno or 0) from error


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind, _flags, _sequence, _port = _HEADER.unpack_from(data)
        if length < _HEADER.size:
            return
        yield kind, data[_HEADER.size : length]
        data = data[_padded(length) :]


def _attribute(kind: int, number: int) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + 4, kind) + struct.pack("=I", number)


def _text(kind: int, text: str) -> bytes:
    content = text.encode() + b"\0"
    length = _ATTRIBUTE.size + len(content)
    return (_ATTRIBUTE.pack(length, kind) + content).ljust(_padded(length), b"\0")


def _padded(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED
