"""The protocol of DHCP alone: which answers are a lease, and which are refused."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest
from dra_driver_nic.network.dhcp import NAK, REQUEST, DhcpError, Lease, acquire

pytest_plugins = ["dra_sdk.testing.plugin"]
MAC = "02:00:00:00:00:55"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({51: b""}, "has no lease: its address, server or time is missing"),
        ({121: b"\x40\x0a"}, r"has routes \(option 121\) that cannot be read"),
    ],
)
def test_an_answer_that_is_no_lease_is_refused(
    dhcp_server: Any, client: socket.socket, options: dict[int, bytes], message: str
) -> None:
    dhcp_server.options |= options
    with pytest.raises(DhcpError, match=message):
        acquire(client, MAC, 30)


def test_an_address_of_no_station_is_refused(dhcp_server: Any, client: socket.socket) -> None:
    dhcp_server.address = "127.0.0.1"
    with pytest.raises(DhcpError, match=r"grants 127\.0\.0\.1, which is no address of a station"):
        acquire(client, MAC, 30)


def test_a_refusal_has_the_servers_reason(dhcp_server: Any, client: socket.socket) -> None:
    dhcp_server.answers[REQUEST] = NAK
    dhcp_server.options[56] = b"wrong network"
    with pytest.raises(DhcpError, match=r"server 10\.60\.0\.1 refuses the lease: wrong network") as refused:
        acquire(client, MAC, 30)
    assert refused.value.refused


def test_a_lease_without_end_is_one(dhcp_server: Any, client: socket.socket) -> None:
    dhcp_server.options[51] = b"\xff" * 4
    lease = acquire(client, MAC, 30)
    assert (lease.address, lease.seconds, lease.left()) == ("10.60.0.50/24", None, None)
    assert Lease.from_entry(lease.entry) == lease
    assert replace(lease, seconds=0).left() == 0
