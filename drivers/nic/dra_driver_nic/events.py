"""Events of network interfaces by netlink: they only say that it is worth looking again.

`LinkEvents` is a source for `dra_sdk.hardware.uevents.watch`, which waits until no further event comes. Uevents would
not do: those of an interface go only to its own network namespace. Source: rtnetlink(7).
"""

from __future__ import annotations

import errno
import socket
from typing import Final

_LARGEST: Final = 1 << 16  # bytes of one message
_BUFFER: Final = 1 << 20
_GROUPS: Final = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE."""


class LinkEvents:
    """Changes of interfaces, addresses and routes in the network namespace of the calling thread.

    OSError if there is no netlink here.
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
        """Empty if something has changed, None if nothing has within some seconds."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            self._socket.recv(_LARGEST)
        except TimeoutError:
            return None
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
        return b""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
