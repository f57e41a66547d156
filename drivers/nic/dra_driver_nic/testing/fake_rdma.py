"""RDMA devices in memory, for tests: sockets of RDMA netlink that answer by the bytes of the kernel.

The namespaces are those of the real kernel. Source: include/uapi/rdma/rdma_netlink.h of the kernel.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dra_driver_nic.testing.namespaces import PrivateNamespace

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_COMMAND: Final = 0x3FF
_DEVICES, _MOVE, _MAKE, _REMOVE, _MODE = 1, 2, 3, 4, 6  # RDMA_NLDEV_CMD_*


class RdmaKernel:
    """RDMA devices in network namespaces, which `open` serves as the kernel does, to the thread's namespace.

    where: the namespace of each device, as the number of its inode, by name.
    exclusive: the mode; in the shared mode every namespace sees every device.
    refused: the error number with which moves are refused; 0 for none.
    moved: the name of each device that was moved.
    on: the interface of each device in software.
    made: each device in software that was made, with its interface.
    """

    def __init__(self, node: PrivateNamespace, *names: str, exclusive: bool = True) -> None:
        self._home = node.enter(namespace_of_thread)
        self.where = dict.fromkeys(names, self._home)
        self.exclusive = exclusive
        self.refused = 0
        self.moved: list[str] = []
        self.on: dict[str, str] = {}
        self.made: list[tuple[str, str]] = []

    def open(self) -> RdmaConnection:
        """Open a socket in the namespace of the calling thread."""
        return RdmaConnection(self, namespace_of_thread())

    def names_in(self, namespace: PrivateNamespace) -> set[str]:
        """Return the devices of a namespace."""
        inode = namespace.enter(namespace_of_thread)
        return {name for name, where in self.where.items() if where == inode}

    def write(self, path: Path) -> None:
        """Keep the devices in a file, for a process that goes on when this one is killed."""
        path.write_text(json.dumps([self.where, self.on]), encoding="utf-8")

    def read(self, path: Path) -> None:
        """Take the devices from a file."""
        self.where, self.on = json.loads(path.read_text(encoding="utf-8"))


class RdmaConnection:
    """A socket of netlink in one namespace."""

    def __init__(self, kernel: RdmaKernel, namespace: int) -> None:
        self._kernel, self._namespace = kernel, namespace
        self._answer = b""

    def send(self, message: bytes) -> int:
        """Do what a message asks for."""
        _length, kind, _flags, sequence, _port = _HEADER.unpack_from(message)
        calls = {
            _DEVICES: self._devices,
            _MOVE: self._move,
            _MAKE: self._make,
            _REMOVE: self._remove,
            _MODE: self._mode,
        }
        answers = calls[kind & _COMMAND](message[_HEADER.size :])
        self._answer = b"".join(
            _HEADER.pack(_HEADER.size + len(body), kind, 0, sequence, 0) + body for kind, body in answers
        )
        return len(message)

    def recv(self, size: int) -> bytes:
        """Return the answer to the last message, which must not be longer than `size`."""
        if len(self._answer) > size:
            raise OSError(errno.EMSGSIZE, f"the answer has {len(self._answer)} bytes")
        return self._answer

    def close(self) -> None:
        """Forget the answer."""
        self._answer = b""

    def _mode(self, _attributes: bytes) -> Iterator[tuple[int, bytes]]:
        yield 0x1406, struct.pack("=HHB3x", 5, 66, not self._kernel.exclusive)
        yield 2, bytes(20)

    def _devices(self, _attributes: bytes) -> Iterator[tuple[int, bytes]]:
        for index, (name, where) in enumerate(self._kernel.where.items()):
            if where == self._namespace or not self._kernel.exclusive:
                text = name.encode() + b"\0"
                padding = bytes(-len(text) % 4)
                yield 0x1401, struct.pack("=HHIHH", 8, 1, index, 4 + len(text), 2) + text + padding
        yield 3, bytes(4)

    def _make(self, attributes: bytes) -> Iterator[tuple[int, bytes]]:
        texts = []
        while attributes:
            length, _kind = struct.unpack_from("=HH", attributes)
            texts.append(attributes[4 : length - 1].decode())
            attributes = attributes[-(-length // 4) * 4 :]
        name, kind, interface = texts
        number = errno.EEXIST if name in self._kernel.where else self._kernel.refused
        number = number if kind == "rxe" else errno.EINVAL
        if not number:
            self._kernel.where[name] = self._namespace
            self._kernel.on[name] = interface
            self._kernel.made.append((name, interface))
        yield 2, struct.pack("=i16x", -number)

    def _remove(self, attributes: bytes) -> Iterator[tuple[int, bytes]]:
        _, _, index = struct.unpack("=HHI", attributes)
        name = list(self._kernel.where)[index]
        del self._kernel.where[name]
        yield 2, bytes(20)

    def _move(self, attributes: bytes) -> Iterator[tuple[int, bytes]]:
        _, _, index, _, _, file = struct.unpack("=HHIHHI", attributes)
        name = list(self._kernel.where)[index]
        here = self._kernel.where[name] == self._namespace
        number = self._kernel.refused if here else errno.ENODEV
        if not number:
            self._kernel.where[name] = os.fstat(file).st_ino
            self._kernel.moved.append(name)
        yield 2, struct.pack("=i16x", -number)


def is_change(message: bytes) -> bool:
    """Return whether a message moves, makes or removes a device."""
    return _HEADER.unpack_from(message)[1] & _COMMAND in {_MOVE, _MAKE, _REMOVE}


def namespace_of_thread() -> int:
    """Return the network namespace of the calling thread, as the number of its inode."""
    return Path("/proc/thread-self/ns/net").stat().st_ino
