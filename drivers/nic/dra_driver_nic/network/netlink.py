"""Sockets of netlink: a blocking one for requests, with the messages of pyroute2, and one for events of interfaces.

pyroute2 knows the messages. Its own sockets run an event loop for each request; a change takes eight times as long with
them, and a container runtime waits for a dozen changes. The kernel answers a request before `send` returns, so there is
nothing to wait for. Source: netlink(7), rtnetlink(7), linux/netlink.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pyroute2.netlink.exceptions import NetlinkDecodeError, NetlinkError

_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300  # NLM_F_*
_INTERRUPTED: Final = 0x10  # NLM_F_DUMP_INTR: something has changed while the kernel listed it
_ERROR, _DONE = 2, 3  # NLMSG_*
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_NUMBER: Final = struct.Struct("=i")
_ALIGNED: Final = 4
_LARGEST: Final = 1 << 17  # bytes: the settings of 250 virtual functions are one message
_ATTEMPTS: Final = 20
_BUFFER: Final = 1 << 20  # bytes of events that have not been received
# RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE
_GROUPS: Final = 0x1 | 0x10 | 0x40 | 0x100 | 0x400


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says.

    fields: the fields of its own header, such as `index`.
    attributes: its attributes with their names, such as `IFLA_MTU`.
    """

    fields: dict[str, int] = field(default_factory=dict)
    attributes: list[tuple[str, Any]] = field(default_factory=list)


class MessageKind(Protocol):
    """A class of messages of pyroute2, such as `ifinfmsg`."""

    def __call__(self, data: bytes | None = None, offset: int = 0) -> Any:
        """Make an empty message, or that which lies at an offset of some bytes."""


class NetlinkSocket:
    """A socket in the network namespace of the thread that makes it. It is for one thread. OSError if there is none.

    protocol: NETLINK_ROUTE, or another protocol of netlink.
    """

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._sequence = 0

    def change(self, kind: MessageKind, command: int, content: Content, flags: int = 0) -> None:
        """Send a command, such as RTM_NEWLINK, and wait until the kernel has done it. Raises NetlinkError, OSError.

        flags: NLM_F_CREATE and others.
        """
        self._send(kind, command, _REQUEST | _ACK | flags, content)
        self._answers()

    def read_one(self, kind: MessageKind, command: int, content: Content) -> Any:
        """Return the one message that the kernel answers. Raises NetlinkError, OSError."""
        return decoded(kind, self.read_message(kind, command, content), 0)

    def read_message(self, kind: MessageKind, command: int, content: Content) -> bytes:
        """Return the same as the kernel has sent it."""
        self._send(kind, command, _REQUEST | _ACK, content)
        answers, _ = self._answers()
        if not answers:
            raise OSError(errno.ENODATA, "the kernel has answered nothing")
        data, begin = answers[0]
        return data[begin:]

    def read_all(self, kind: MessageKind, command: int, content: Content | None = None) -> list[Any]:
        """Return all messages that the kernel lists. Raises NetlinkError, OSError."""
        return [decoded(kind, *answer) for answer in self.answers(kind, command, content)]

    def answers(self, kind: MessageKind, command: int, content: Content | None = None) -> list[tuple[bytes, int]]:
        """Return the same as the kernel has sent them: for each message some bytes, and where it begins in them.

        A list during which something has changed may lack something, so it is asked for again.
        """
        for _ in range(_ATTEMPTS):
            self._send(kind, command, _REQUEST | _DUMP, content or Content())
            answers, is_whole = self._answers()
            if is_whole:
                return answers
        raise OSError(errno.EINTR, f"it changed during each of {_ATTEMPTS} readings")

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _send(self, kind: MessageKind, command: int, flags: int, content: Content) -> None:
        self._sequence += 1
        message = kind()
        message.update(content.fields)
        message["attrs"] = content.attributes
        message["header"].update(type=command, flags=flags, sequence_number=self._sequence)
        message.encode()
        self._socket.send(message.data)

    def _answers(self) -> tuple[list[tuple[bytes, int]], bool]:
        """Receive the answers to the last request, each as bytes and where it begins in them; and whether it is all."""
        answers: list[tuple[bytes, int]] = []
        is_whole = True
        while True:
            data = self._socket.recv(_LARGEST)
            for kind, flags, sequence, begin in _headers(data):
                if sequence != self._sequence:
                    continue
                is_whole = is_whole and not flags & _INTERRUPTED
                if kind in {_ERROR, _DONE}:
                    _check(data, begin)
                    return answers, is_whole
                answers.append((data, begin))


def _headers(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, flags, sequence and beginning of each message in some bytes."""
    begin = 0
    while begin + _HEADER.size <= len(data):
        length, kind, flags, sequence, _port = _HEADER.unpack_from(data, begin)
        if length < _HEADER.size or begin + length > len(data):
            raise OSError(errno.EBADMSG, "the kernel's answer is cut off")
        yield kind, flags, sequence, begin
        begin += -(-length // _ALIGNED) * _ALIGNED


def _check(data: bytes, begin: int) -> None:
    """Raise the error of an answer that has one."""
    end = begin + _HEADER.size
    if len(data) < end + _NUMBER.size:
        return
    (number,) = _NUMBER.unpack_from(data, end)
    if number < 0:
        raise NetlinkError(-number, os.strerror(-number))


def decoded(kind: MessageKind, data: bytes, begin: int) -> Any:
    """Decode the message that lies in some bytes. Raises OSError if they are none of its kind."""
    message = kind(data, offset=begin)
    try:
        message.decode()
    except NetlinkDecodeError as error:
        raise OSError(errno.EBADMSG, f"the kernel's answer cannot be read: {error}") from error
    return message


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
        """Return an empty message if something has changed, None if nothing has within some seconds.

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
