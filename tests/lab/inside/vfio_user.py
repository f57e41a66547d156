"""Uses a PCI function through VFIO, as a virtual machine monitor does.

Source: Documentation/driver-api/vfio.rst and include/uapi/linux/vfio.h.
"""

from __future__ import annotations

import os
import struct
from fcntl import ioctl
from types import TracebackType
from typing import Self

_SET_IOMMU, _GROUP_STATUS, _SET_CONTAINER, _DEVICE_FD, _REGION_INFO = 0x3B66, 0x3B67, 0x3B68, 0x3B6A, 0x3B6C
_TYPE1 = 1
_VIABLE = 1
_CONFIG_SPACE = 7
_STATUS, _REGION = "II", "IIIIQQ"  # argsz, flags; argsz, flags, index, cap_offset, size, offset


class VfioUser:
    """The open function at `address`, by the device node `group` of its IOMMU group; `with` closes it."""

    def __init__(self, address: str, group: str) -> None:
        self._open: dict[str, int] = {}
        try:
            self._open["container"] = os.open("/dev/vfio/vfio", os.O_RDWR)
            self._open["group"] = os.open(group, os.O_RDWR)
            assert viable(self._open["group"]), f"{group} is not viable"
            ioctl(self._open["group"], _SET_CONTAINER, struct.pack("i", self._open["container"]))
            ioctl(self._open["container"], _SET_IOMMU, _TYPE1)
            self._open["device"] = ioctl(self._open["group"], _DEVICE_FD, bytearray(address.encode() + b"\0"))
        except BaseException:
            self.close()
            raise

    def ids(self) -> tuple[int, int]:
        """Returns the ids of vendor and device, from the function's configuration space."""
        region = bytearray(struct.pack(_REGION, struct.calcsize(_REGION), 0, _CONFIG_SPACE, 0, 0, 0))
        ioctl(self._open["device"], _REGION_INFO, region)
        offset = struct.unpack(_REGION, region)[5]
        return struct.unpack("<HH", os.pread(self._open["device"], 4, offset))

    def close_group(self) -> None:
        """Closes the group. The device stays open and usable."""
        os.close(self._open.pop("group"))

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def group_is_viable(number: int) -> bool:
    """Returns whether the kernel allows use of a group: each function has a VFIO driver, a harmless one, or none."""
    group = os.open(f"/dev/vfio/{number}", os.O_RDWR)
    try:
        return viable(group)
    finally:
        os.close(group)


def viable(group: int) -> bool:
    """Returns `group_is_viable` for an open group."""
    status = bytearray(struct.pack(_STATUS, struct.calcsize(_STATUS), 0))
    ioctl(group, _GROUP_STATUS, status)
    return bool(struct.unpack(_STATUS, status)[1] & _VIABLE)
