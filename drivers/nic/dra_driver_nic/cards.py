"""What the kernel driver of a card tells and sysfs does not: its firmware (ethtool), the mode of its eswitch (devlink).

Both are about interfaces and cards of the calling thread's network namespace. Source: linux/ethtool.h and
linux/devlink.h; Documentation/networking/devlink/devlink-eswitch-attr.rst of the kernel.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pyroute2 import GenericNetlinkSocket
from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST
from pyroute2.netlink.devlink import DEVLINK_NAMES, devlinkcmd
from pyroute2.netlink.exceptions import NetlinkError

log = logging.getLogger(__name__)
_SIOCETHTOOL: Final = 0x8946
_GET_DRIVER_INFO: Final = 3  # ETHTOOL_GDRVINFO
# struct ethtool_drvinfo: command; driver, version, firmware, bus, expansion ROM; reserved; five numbers
_DRIVER_INFO: Final = struct.Struct("I32s32s32s32s32s12s5I")
_REQUEST: Final = struct.Struct("16sP")  # struct ifreq with a pointer
_REQUEST_BYTES: Final = 40
_NO_FIRMWARE: Final = frozenset({"", "N/A", "n/a"})
_MODES: Final = {0: "legacy", 1: "switchdev"}


def read_firmware(interfaces: Iterable[str]) -> dict[str, str]:
    """The firmware version of each interface, as `ethtool -i` shows it; those without one are left out."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name in interfaces:
            version = _firmware(control, name)
            if version not in _NO_FIRMWARE:
                found[name] = version
    return found


def _firmware(control: socket.socket, name: str) -> str:
    info = ctypes.create_string_buffer(_DRIVER_INFO.size)
    struct.pack_into("I", info, 0, _GET_DRIVER_INFO)
    request = _REQUEST.pack(name.encode(), ctypes.addressof(info)).ljust(_REQUEST_BYTES, b"\0")
    try:
        fcntl.ioctl(control, _SIOCETHTOOL, request)
    except OSError:  # the driver tells nothing, or the interface has gone
        return ""
    firmware: bytes = _DRIVER_INFO.unpack(info.raw)[3]
    return firmware.partition(b"\0")[0].decode(errors="replace").strip()


def read_eswitch_modes(connect: Callable[[], Any] = GenericNetlinkSocket) -> dict[str, str]:
    """`legacy` or `switchdev` for each card with an eswitch, by PCI address; empty if the kernel has no devlink.

    connect: opens a generic netlink socket.
    """
    found = {}
    try:
        devlink = connect()
    except OSError:
        return {}
    try:
        devlink.bind("devlink", devlinkcmd)
        for card in list(_request(devlink, "DEVLINK_CMD_GET", NLM_F_DUMP)):
            bus, address = (card.get_attr(f"DEVLINK_ATTR_{each}") for each in ("BUS_NAME", "DEV_NAME"))
            if bus == "pci" and (mode := _mode(devlink, address)) in _MODES:
                found[str(address)] = _MODES[mode]
    except (NetlinkError, OSError):
        log.debug("this kernel tells no modes of eswitches", exc_info=True)
    finally:
        devlink.close()
    return found


def _mode(devlink: Any, address: str) -> int:
    """The number of the mode; -1 if the card has no eswitch."""
    attributes = [["DEVLINK_ATTR_BUS_NAME", "pci"], ["DEVLINK_ATTR_DEV_NAME", address]]
    try:
        answers = list(_request(devlink, "DEVLINK_CMD_ESWITCH_GET", NLM_F_ACK, attributes))
    except NetlinkError:
        return -1
    modes = [each.get_attr("DEVLINK_ATTR_ESWITCH_MODE") for each in answers]
    return next((each for each in modes if each is not None), -1)


def _request(devlink: Any, command: str, flags: int, attributes: Sequence[Sequence[str]] = ()) -> Iterable[Any]:
    message = devlinkcmd()
    message["cmd"] = DEVLINK_NAMES[command]
    message["attrs"] = list(attributes)
    answers: Iterable[Any] = devlink.nlm_request(message, msg_type=devlink.prid, msg_flags=NLM_F_REQUEST | flags)
    return answers
