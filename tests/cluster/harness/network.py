"""The cluster's addresses on this machine's loopback interface, and the interfaces that pods leave behind.

The API server and the kubelet get addresses of the cluster's own: a node may not have an address of 127.0.0.0/8, and
pods of the pod network reach these as they would reach another machine.
"""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from .layout import Layout

HTTPS = 443
"""The port of the API server's service; Kubernetes has no flag for another one."""
_IP_FREEBIND = 15
"""Lets a socket bind to an address that no interface has (ip(7)); Python 3.11 has no name for it."""


def add_addresses(layout: Layout) -> None:
    """Adds the cluster's addresses to the loopback interface; HarnessError if an interface has one already."""
    for address in _addresses(layout):
        if holders := interfaces_with(address, _listing()):
            raise HarnessError(
                f"address {address} of cluster {layout.name!r} is already on interface {holders[0]}: "
                "choose another cluster name, from which its addresses follow"
            )
        _ip("address", "add", f"{address}/32", "dev", "lo")


def remove_addresses(layout: Layout) -> None:
    """Removes those of the cluster's addresses that are on the loopback interface."""
    for address in _addresses(layout):
        if "lo" in interfaces_with(address, _listing()):
            _ip("address", "delete", f"{address}/32", "dev", "lo")


def remove_pod_interfaces(gateway: str) -> None:
    """Removes the machine's side of pods' interfaces. Most end with their pod's network namespace."""
    for name in interfaces_with(gateway, _listing()):
        if name.startswith("veth"):
            # It may end by itself at the same time.
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def interfaces_with(address: str, listing: list[dict[str, Any]]) -> list[str]:
    """Returns the interfaces that have `address`, from what `ip -json address` prints."""
    return [entry["ifname"] for entry in listing if any(a.get("local") == address for a in entry.get("addr_info", []))]


def is_free(address: str, port: int) -> bool:
    """Tells whether a TCP server could listen there now. This machine need not have the address yet."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # in spite of closed connections
        attempt.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        try:
            attempt.bind((address, port))
        except OSError:
            return False
    return True


def _addresses(layout: Layout) -> tuple[str, str]:
    return layout.service_address, layout.node_address


def _listing() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_ip("-json", "address") or "[]")
    return found


def _ip(*args: str) -> str:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"ip {' '.join(args)} failed: {done.stderr.strip()}")
    return done.stdout
