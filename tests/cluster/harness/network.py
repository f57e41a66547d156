"""The cluster's addresses on this machine's loopback interface, and interfaces of pods that outlived them.

The API server and the kubelet each get an address of the cluster's own instead of 127.0.0.1: a node may not have a
loopback address, and pods of the pod network reach these as they would reach another machine.
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
"""The port of the API server's service; Kubernetes has no flag for another."""

_IP_FREEBIND = 15
"""ip(7): bind to an address that is not there; Python 3.11 has no name for it."""


def add_addresses(layout: Layout) -> None:
    """Puts the cluster's addresses on the loopback interface; HarnessError when one is taken."""
    for address in _addresses(layout):
        if holders := interfaces_with(address, _listing()):
            raise HarnessError(
                f"address {address} of cluster {layout.name!r} is already on interface {holders[0]}: "
                "choose another cluster name, its addresses follow from it"
            )
        _ip("address", "add", f"{address}/32", "dev", "lo")


def remove_addresses(layout: Layout) -> None:
    """Takes the cluster's addresses off the loopback interface, where they are on it."""
    for address in _addresses(layout):
        if "lo" in interfaces_with(address, _listing()):
            _ip("address", "delete", f"{address}/32", "dev", "lo")


def remove_pod_interfaces(gateway: str) -> None:
    """Removes pods' interfaces from the machine's side; most go with their pod's network namespace."""
    for name in interfaces_with(gateway, _listing()):
        if name.startswith("veth"):
            # it may go by itself meanwhile
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def interfaces_with(address: str, listing: list[dict[str, Any]]) -> list[str]:
    """Returns the interfaces that have `address`, from what `ip -json address` prints."""
    return [entry["ifname"] for entry in listing if any(a.get("local") == address for a in entry.get("addr_info", []))]


def is_free(address: str, port: int) -> bool:
    """Tells whether a TCP server could listen there now; the address need not be on this machine yet."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections still linger
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
