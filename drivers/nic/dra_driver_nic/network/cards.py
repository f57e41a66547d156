"""What the kernel driver of a card knows and sysfs does not: its firmware (ethtool), its eswitch mode (devlink).

Both are about interfaces and cards of the calling thread's network namespace. Source: linux/ethtool.h and
linux/devlink.h; Documentation/networking/devlink/devlink-eswitch-attr.rst of the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from pyroute2.netlink import CTRL_CMD_GETFAMILY, GENL_ID_CTRL, NETLINK_GENERIC, ctrlmsg
from pyroute2.netlink.devlink import DEVLINK_NAMES, devlinkcmd
from pyroute2.netlink.exceptions import NetlinkError

from dra_driver_nic.network.netlink import Content, MessageKind, NetlinkSocket
from dra_sdk.hardware import leave_out_fact

_SIOCETHTOOL: Final = 0x8946
_GET_DRIVER_INFO: Final = 3  # ETHTOOL_GDRVINFO
# struct ethtool_drvinfo: command; driver, version, firmware, bus, expansion ROM; reserved; five numbers
_DRIVER_INFO: Final = struct.Struct("I32s32s32s32s32s12s5I")
_REQUEST: Final = struct.Struct("16sP")  # struct ifreq with a pointer
_REQUEST_BYTES: Final = 40
_NO_FIRMWARE: Final = frozenset({"", "N/A", "n/a"})
_NOT_OFFERED: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV})
_MODES: Final = {0: "legacy", 1: "switchdev"}


def read_firmware(interfaces: Iterable[str]) -> dict[str, str]:
    """Return the firmware version of each interface, as `ethtool -i` shows it, without those that have none."""
    versions = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name in interfaces:
            version = _firmware(control, name)
            if version not in _NO_FIRMWARE:
                versions[name] = version
    return versions


def _firmware(control: socket.socket, name: str) -> str:
    info = ctypes.create_string_buffer(_DRIVER_INFO.size)
    struct.pack_into("I", info, 0, _GET_DRIVER_INFO)
    request = _REQUEST.pack(name.encode(), ctypes.addressof(info)).ljust(_REQUEST_BYTES, b"\0")
    try:
        fcntl.ioctl(control, _SIOCETHTOOL, request)
    except OSError:  # the driver has no such call, or the interface no longer exists
        return ""
    firmware: bytes = _DRIVER_INFO.unpack(info.raw)[3]
    return firmware.partition(b"\0")[0].decode(errors="replace").strip()


class GenericSocket(Protocol):
    """A socket of generic netlink: the part of `NetlinkSocket` that reads."""

    def read_one(self, kind: MessageKind, command: int, content: Content) -> Any:
        """Implement `NetlinkSocket.read_one`."""

    def read_all(self, kind: MessageKind, command: int, content: Content) -> list[Any]:
        """Implement `NetlinkSocket.read_all`."""

    def close(self) -> None:
        """Close it."""


def open_generic() -> GenericSocket:
    """Open a socket of generic netlink in the namespace of the calling thread. OSError if there is none."""
    return NetlinkSocket(NETLINK_GENERIC)


def read_eswitch_modes(connect: Callable[[], GenericSocket] = open_generic) -> dict[str, str]:
    """Return `legacy` or `switchdev` for each card with an eswitch, by PCI address; nothing without devlink.

    connect: opens a socket of generic netlink.
    """
    try:
        opened = connect()
    except OSError:
        return {}
    try:
        return dict(_modes(opened))
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno
        if number not in _NOT_OFFERED:
            leave_out_fact("modes of eswitches", f"devlink cannot be read: {error}")
        return {}
    finally:
        opened.close()


def _modes(opened: GenericSocket) -> Iterator[tuple[str, str]]:
    name = Content({"cmd": CTRL_CMD_GETFAMILY, "version": 1}, [("CTRL_ATTR_FAMILY_NAME", "devlink")])
    family = opened.read_one(ctrlmsg, GENL_ID_CTRL, name).get_attr("CTRL_ATTR_FAMILY_ID")
    for card in opened.read_all(devlinkcmd, family, Content({"cmd": DEVLINK_NAMES["DEVLINK_CMD_GET"]})):
        bus, address = (card.get_attr(f"DEVLINK_ATTR_{name}") for name in ("BUS_NAME", "DEV_NAME"))
        if bus == "pci" and (mode := _mode(opened, family, address)) in _MODES:
            yield str(address), _MODES[mode]


def _mode(opened: GenericSocket, family: int, address: str) -> int:
    """Return the number of the mode; -1 if the card has no eswitch."""
    attributes = [("DEVLINK_ATTR_BUS_NAME", "pci"), ("DEVLINK_ATTR_DEV_NAME", address)]
    asked = Content({"cmd": DEVLINK_NAMES["DEVLINK_CMD_ESWITCH_GET"]}, attributes)
    try:
        mode = opened.read_one(devlinkcmd, family, asked).get_attr("DEVLINK_ATTR_ESWITCH_MODE")
    except NetlinkError as error:
        if error.code not in _NOT_OFFERED:
            leave_out_fact(f"eswitch of {address}", f"devlink cannot read the mode of {address}: {error}")
        return -1
    return -1 if mode is None else int(mode)
